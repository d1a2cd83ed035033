// ICE restarts (RFC 9725, section 4.3.3): the fragment of an offer, and an answer with a fragment.
import assert from "node:assert/strict";
import { test } from "node:test";
import { fragmentOf, ranked, withFragment } from "../dist/webrtc.js";

const SDP = [
  "v=0",
  "s=-",
  "a=group:BUNDLE 0 1",
  "m=video 9 UDP/TLS/RTP/SAVPF 96",
  "a=mid:0",
  "a=ice-ufrag:old1",
  "a=ice-pwd:old-password",
  "a=fingerprint:sha-256 AB",
  "a=candidate:1 1 udp 1 192.0.2.1 1000 typ host",
  "a=end-of-candidates",
  "m=audio 9 UDP/TLS/RTP/SAVPF 111",
  "a=mid:1",
  "a=ice-ufrag:old1",
  "a=ice-pwd:old-password",
  "a=candidate:2 1 udp 1 192.0.2.2 1000 typ host",
  "",
].join("\r\n");

test("a fragment has the credentials and candidates of the m-line that carries the transport, and nothing else", () => {
  assert.equal(
    fragmentOf(SDP),
    [
      "a=ice-options:trickle",
      "m=video 9 UDP/TLS/RTP/SAVPF 96",
      "a=mid:0",
      "a=ice-ufrag:old1",
      "a=ice-pwd:old-password",
      "a=candidate:1 1 udp 1 192.0.2.1 1000 typ host",
      "a=end-of-candidates",
      "",
    ].join("\r\n"),
  );
});

test("an answer gets the credentials of a fragment in every m-line, and its candidates once", () => {
  const fragment = "a=ice-ufrag:new1\r\na=ice-pwd:new-password\r\na=candidate:9 1 udp 1 192.0.2.9 9 typ host\r\n";
  const lines = withFragment(SDP, fragment).split("\r\n");
  assert.deepEqual(lines.filter((line) => line.startsWith("a=ice-")), [
    "a=ice-ufrag:new1",
    "a=ice-pwd:new-password",
    "a=ice-ufrag:new1",
    "a=ice-pwd:new-password",
  ]);
  assert.deepEqual(lines.filter((line) => line.startsWith("a=candidate:")), ["a=candidate:9 1 udp 1 192.0.2.9 9 typ host"]);
  assert.equal(lines.indexOf("a=candidate:9 1 udp 1 192.0.2.9 9 typ host"), lines.indexOf("a=ice-pwd:new-password") + 1);
  assert.ok(lines.includes("a=fingerprint:sha-256 AB"));
});

test("candidates of a restart have a higher priority than all before it, in the same order and below the browser's TCP", () => {
  const answer = [
    "a=mid:0",
    "a=candidate:1 1 udp 2130706431 192.0.2.1 1000 typ host",
    "a=candidate:2 1 udp 2130706175 192.0.2.2 1000 typ host",
    "a=candidate:3 1 tcp 1518280447 192.0.2.1 443 typ host tcptype passive",
    "a=candidate:4 1 udp 16777215 192.0.2.9 1000 typ relay",
    "",
  ].join("\r\n");
  const prioritiesOf = (sdp) => [...sdp.matchAll(/^a=candidate:\d+ 1 \w+ (\d+) /gm)].map(([, priority]) => Number(priority));
  let below = -1;
  for (let restarts = 0; restarts <= 4; restarts++) {
    const sdp = ranked(answer, restarts);
    const priorities = prioritiesOf(sdp);
    assert.deepEqual(priorities, priorities.toSorted((one, other) => other - one), "their order");
    assert.ok(priorities.at(-1) > below);
    below = priorities[0];
    assert.equal(sdp.replace(/ \d+ (?=192)/g, " P "), answer.replace(/ \d+ (?=192)/g, " P "), "nothing else is changed");
  }
  assert.ok(below < 90 * 2 ** 24);
  assert.deepEqual(prioritiesOf(ranked(answer, 9)), prioritiesOf(ranked(answer, 4)));
});
