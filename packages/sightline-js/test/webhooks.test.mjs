// Runs the verifier over docs/vectors/webhooks.json, which the Python verifier passes too.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { WebhookError, verifyWebhook } from "sightline-js";

const { nowS, secret, messages } = JSON.parse(readFileSync(new URL("../../../docs/vectors/webhooks.json", import.meta.url), "utf8"));
const options = { nowMs: nowS * 1000 };

for (const { name, body, headers, event } of messages)
  test(name, () => {
    const verify = () => verifyWebhook(body, headers, secret, options);
    if (event === null) assert.throws(verify, WebhookError);
    else assert.deepEqual(verify(), event);
  });

const { body, headers } = messages[0];

test("bytes, the Headers of fetch and the header lists of Node are accepted", () => {
  assert.equal(verifyWebhook(new TextEncoder().encode(body), new Headers(headers), secret, options).type, "session.live");
  const lists = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), [value]]));
  assert.equal(verifyWebhook(body, lists, secret, options).type, "session.live");
});

test("the clock of this machine is the default", () => {
  assert.throws(() => verifyWebhook(body, headers, secret), /differs by more than 300 s/);
});

test("a malformed secret is an error of the program", () => {
  assert.throws(() => verifyWebhook(body, headers, "my secret!", options), RangeError);
});
