// How well a publisher sends, judged from the browser's reports.
import assert from "node:assert/strict";
import { test } from "node:test";
import { qualityOf } from "../dist/quality.js";

const look = (atMs, bytesSent, fields = {}, remote = {}) => [
  { type: "codec", timestamp: atMs },
  { type: "outbound-rtp", kind: "audio", timestamp: atMs, bytesSent: 999_999 },
  { type: "outbound-rtp", kind: "video", timestamp: atMs, bytesSent, frameHeight: 720, framesPerSecond: 30, qualityLimitationReason: "none", ...fields },
  { type: "remote-inbound-rtp", kind: "video", timestamp: atMs, fractionLost: 0, roundTripTime: 0.05, ...remote },
];
const judged = (fields, remote, bytes = 250_000) => qualityOf(look(2_000, bytes, fields, remote), { atMs: 0, bytes: 0 })[0];

test("two looks give the rate, the picture and a grade", () => {
  const [first, sent] = qualityOf(look(1_000, 100_000), null);
  assert.equal(first, null);
  const [quality] = qualityOf(look(3_000, 350_000), sent);
  assert.deepEqual(quality, { grade: "good", height: 720, framesPerSecond: 30, kilobitsPerSecond: 1_000, loss: 0, roundTripMs: 50 });
});

test("each way in which a picture suffers lowers the grade", () => {
  assert.equal(judged({ qualityLimitationReason: "bandwidth" }).grade, "fair");
  assert.equal(judged({ qualityLimitationReason: "cpu" }).grade, "fair");
  assert.equal(judged({ framesPerSecond: 12 }).grade, "fair");
  assert.equal(judged({}, { fractionLost: 0.05 }).grade, "fair");
  assert.equal(judged({}, { roundTripTime: 0.8 }).grade, "fair");
  assert.equal(judged({ framesPerSecond: 3 }).grade, "poor");
  assert.equal(judged({}, { fractionLost: 0.2 }).grade, "poor");
  assert.equal(judged({}, {}, 10_000).grade, "poor");
});

test("the highest of several layers is what is judged, and all of them are counted", () => {
  const low = { type: "outbound-rtp", kind: "video", timestamp: 2_000, bytesSent: 50_000, frameHeight: 180, framesPerSecond: 30 };
  const [quality] = qualityOf([low, ...look(2_000, 200_000)], { atMs: 0, bytes: 0 });
  assert.deepEqual([quality.height, quality.kilobitsPerSecond], [720, 1_000]);
});

test("without video there is nothing to judge, and a server that reports nothing is no fault", () => {
  assert.deepEqual(qualityOf([], null), [null, null]);
  const quality = qualityOf(look(2_000, 250_000).slice(0, 3), { atMs: 0, bytes: 0 })[0];
  assert.deepEqual([quality.grade, quality.loss, quality.roundTripMs], ["good", null, null]);
});
