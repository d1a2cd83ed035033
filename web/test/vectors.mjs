// Runs the console's verifier over docs/vectors/receipts.json; prints what differs, and exits 1 if anything does.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = fileURLToPath(new URL("..", import.meta.url));
const built = await build({ absWorkingDir: here, entryPoints: ["src/verify.ts"], bundle: true, format: "esm", write: false });
const { verifyReceipt } = await import(`data:text/javascript;base64,${Buffer.from(built.outputFiles[0].text).toString("base64")}`);
const vectors = JSON.parse(readFileSync(process.argv[2] ?? `${here}/../docs/vectors/receipts.json`, "utf8"));
const first = vectors.receipts[0];

const forged = vectors.forged.map(({ path, value, ...rest }) => {
  const receipt = structuredClone(first.receipt);
  path.slice(0, -1).reduce((at, key) => at[key], receipt)[path.at(-1)] = value;
  return { ...rest, receipt, chain: first.chain };
});
let wrong = 0;
for (const { name, receipt, chain, failures, skipped } of [...vectors.receipts, ...forged]) {
  const found = verifyReceipt(receipt, chain);
  const seen = JSON.stringify([found.failures.map(({ check, line }) => ({ check, line })), [...found.skipped].sort()]);
  const wanted = JSON.stringify([failures, skipped]);
  if (seen !== wanted) {
    wrong += 1;
    console.error(`${name}\n  expected ${wanted}\n  found    ${seen}`);
  }
}
console.log(`${vectors.receipts.length + forged.length} vectors, ${wrong} wrong`);
process.exitCode = wrong === 0 ? 0 : 1;
