import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiError, need, reach, type Model } from "../src/api";
import { frame } from "sightline-js";
import { explain, online } from "../src/errors";

test("a call that does not reach the server says whether this device is offline, and never in words of the browser", async (context) => {
  const fetched = globalThis.fetch;
  context.after(() => void ((globalThis.fetch = fetched), (online.value = true)));
  globalThis.fetch = () => Promise.reject(new TypeError("Failed to fetch"));
  const calls = [
    () => reach("http://127.0.0.1:8080/rpc"),
    () => frame({ url: "http://127.0.0.1:8080" }, "s1"),
    () => need<Model["Wallet"]>(globalThis.fetch("/api/v1/wallet") as never),
  ];
  for (const call of calls) {
    const error = await call().then(() => assert.fail("reached"), (found: unknown) => found);
    assert.ok(error instanceof ApiError);
    online.value = true;
    assert.equal(explain(error), "The server cannot be reached");
    online.value = false;
    assert.equal(explain(error), "You are offline");
  }
});

test("an abort stays an abort", async (context) => {
  const fetched = globalThis.fetch;
  context.after(() => void (globalThis.fetch = fetched));
  globalThis.fetch = () => Promise.reject(new DOMException("stopped", "AbortError"));
  await assert.rejects(reach("http://127.0.0.1:8080/rpc"), { name: "AbortError" });
});
