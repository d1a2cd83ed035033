import assert from "node:assert/strict";
import { test } from "node:test";
import { clock, effect, inCents, microOf, monthsSince, roughly, usdc, used } from "../src/format";

const plain = (text: string): string => text.replaceAll("\u00a0", " ");

test("a price has at most three digits, and cents below one USDC", () => {
  assert.deepEqual([71_280n, 1_250_000n, 3_210n, 0n].map((each) => plain(roughly(each))), ["0.0713 USDC", "1.25 USDC", "0.00321 USDC", "0 USDC"]);
  assert.deepEqual([71_280n, 1_250_000n, 3_210n, 0n].map(inCents), [", about 7 cents", "", ", about 0.32 cents", ""]);
  assert.deepEqual([1.1875, 1, 0.8].map(effect), ["+18.8%", "0%", "-20%"]);
});

test("a use within the last minute is not told exactly", () => {
  const ago = (ms: number): string => new Date(Date.now() - ms).toISOString();
  assert.equal(used(null), "never used");
  assert.equal(used(ago(50_000)), "used within the last minute");
  assert.match(used(ago(70_000)), /^last used /);
});

test("amounts are exact", () => {
  assert.equal(plain(usdc("71280")), "0.07128 USDC");
  assert.equal(plain(usdc("-1")), "−0.000001 USDC");
  assert.equal(microOf("5,5"), 5_500_000n);
  assert.equal(microOf("5.0000001"), null);
  assert.equal(microOf("1.125"), 1_125_000n);
  assert.equal(microOf("0,125"), 125_000n);
  assert.equal(microOf("1,000"), null, "a thousand for one who writes as this language does");
  assert.equal(clock(3_661), "1:01:01");
});

test("months of statements since the workspace was made, in UTC", () => {
  assert.deepEqual(monthsSince("2026-09-30T23:59:59Z", Date.parse("2026-11-25T00:00:00Z")), ["2026-11", "2026-10", "2026-09"]);
  assert.deepEqual(monthsSince("2026-11-01T00:00:00Z", Date.parse("2026-11-30T23:59:59Z")), ["2026-11"]);
});
