// Runs the verifier over docs/vectors/receipts.json, which the Python verifier passes too.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { verifyReceipt } from "sightline-js";

const vectors = JSON.parse(readFileSync(new URL("../../../docs/vectors/receipts.json", import.meta.url), "utf8"));
const first = vectors.receipts[0];
const forged = vectors.forged.map(({ path, value, ...rest }) => {
  const receipt = structuredClone(first.receipt);
  path.slice(0, -1).reduce((at, key) => at[key], receipt)[path.at(-1)] = value;
  return { ...rest, receipt, deployment: first.deployment, chain: first.chain };
});

for (const { name, receipt, deployment, chain, failures, skipped } of [...vectors.receipts, ...forged])
  test(name, () => {
    const found = verifyReceipt(receipt, deployment, chain);
    assert.deepEqual(found.failures.map(({ check, line }) => ({ check, line })), failures);
    assert.deepEqual(Object.fromEntries(found.skipped), skipped);
  });
