// The ICE servers of a Link header (RFC 9725, section 4.6).
import assert from "node:assert/strict";
import { test } from "node:test";
import { iceServersOf } from "../dist/webrtc.js";

test("STUN and TURN servers are read, also credentials with the signs that separate links", () => {
  const link =
    '<stun:stun.example:3478>; rel=ice-server, <turn:t.example?transport=tcp>; rel="ice-server"; ' +
    'username="1795505353:a;b"; credential="c, <d>=\\"e\\\\"; credential-type="password"';
  assert.deepEqual(iceServersOf(link), [
    { urls: "stun:stun.example:3478" },
    { urls: "turn:t.example?transport=tcp", username: "1795505353:a;b", credential: 'c, <d>="e\\' },
  ]);
});

test("other links, and TURN servers without credentials, are left out", () => {
  assert.deepEqual(iceServersOf('<https://docs.example/>; rel="help", <turn:t.example>; rel="ice-server"'), []);
  assert.deepEqual(iceServersOf(null), []);
});
