import assert from "node:assert/strict";
import { test } from "node:test";
import { gapsOf, inSeconds, merged, pauseEndsAt, pausedMs, timeEndsAt, unchargedOf, type Pause } from "../src/live/pauses";

const T0 = Date.parse("2026-11-25T10:00:00Z");
const at = (seconds: number): string => new Date(T0 + seconds * 1000).toISOString();
const pause = (from: number, to: number | null): Pause => ({ from: at(from), to: to === null ? null : at(to) });
const meter = (...windows: Pause[]) => ({ windows }) as unknown as Parameters<typeof pauseEndsAt>[0];
const after = (seconds: number): number => T0 + seconds * 1000;

test("pauses that overlap count once", () => {
  const pauses = [pause(10, 19), pause(12, 24), pause(40, 55)];
  assert.equal(pausedMs(pauses, after(74)), 29_000);
  assert.deepEqual(merged(pauses, after(74)), [[after(10), after(24)], [after(40), after(55)]]);
  assert.equal(pausedMs([pause(10, null), pause(30, 40)], after(50)), 40_000);
  assert.equal(pausedMs([], after(50)), 0);
});

test("an open pause ends the session after 60 s", () => {
  assert.equal(pauseEndsAt(meter(), null), null);
  assert.equal(pauseEndsAt(meter(pause(5, 9)), null), null);
  assert.equal(pauseEndsAt(meter(pause(10, null)), null), after(70));
  const oneMinute = timeEndsAt({ startedAt: new Date(after(0)).toISOString(), maxDurationSeconds: 60 });
  assert.equal(pauseEndsAt(meter(pause(10, null)), oneMinute), after(60));
});

test("an open pause that another one leads into begins with that one", () => {
  assert.equal(pauseEndsAt(meter(pause(10, 30), pause(25, null)), null), after(70));
  assert.equal(pauseEndsAt(meter(pause(25, null), pause(10, 30)), null), after(70));
});

test("all pauses together end the session after 180 s", () => {
  const before = [pause(0, 50), pause(60, 110), pause(120, 165)];
  assert.equal(pauseEndsAt(meter(...before, pause(200, null)), null), after(235));
  assert.equal(pauseEndsAt(meter(...before, pause(20, 40), pause(200, null)), null), after(235), "a pause within another counts once");
});

test("each part of a pause has the reasons of its own time, and the parts add up", () => {
  const windows = [
    { from: at(10), to: at(13), reason: "GEOFENCE_EXIT" },
    { from: at(12), to: at(20), reason: "LOCATION_STALE" },
    { from: at(40), to: at(52), reason: "LOCATION_STALE" },
    { from: at(41), to: at(51), reason: "MEDIA_LOST" },
    { from: at(60), to: at(64), reason: "MEDIA_LOST" },
    { from: at(63), to: null, reason: "LOCATION_STALE" },
  ] as const;
  const gaps = gapsOf(windows, after(90));
  assert.deepEqual(gaps.map(({ from, to, reasons }) => [(from - T0) / 1000, (to - T0) / 1000, ...reasons]), [
    [10, 12, "GEOFENCE_EXIT"],
    [12, 20, "LOCATION_STALE"],
    [40, 52, "LOCATION_STALE", "MEDIA_LOST"],
    [60, 63, "MEDIA_LOST"],
    [63, 90, "LOCATION_STALE"],
  ]);
  assert.equal(gaps.reduce((sum, { from, to }) => sum + to - from, 0), pausedMs(windows, after(90)));
});

test("a phone that left the area and was then closed has a part for each reason", () => {
  const windows = [
    { from: at(10), to: at(22), reason: "GEOFENCE_EXIT" },
    { from: at(21), to: at(35), reason: "MEDIA_LOST" },
    { from: at(20.5), to: at(34), reason: "LOCATION_STALE" },
  ] as const;
  const parts = (found: ReturnType<typeof gapsOf>) => found.map(({ from, to, reasons }) => [(from - T0) / 1000, (to - T0) / 1000, ...reasons]);
  assert.deepEqual(parts(gapsOf(windows, after(60))), [[10, 21, "GEOFENCE_EXIT"], [21, 35, "LOCATION_STALE", "MEDIA_LOST"]]);
  const never = [{ ...windows[0], to: null }, windows[1], windows[2]] as const;
  assert.deepEqual(parts(gapsOf(never, after(60))), [
    [10, 20.5, "GEOFENCE_EXIT"], [20.5, 34, "GEOFENCE_EXIT", "LOCATION_STALE", "MEDIA_LOST"], [34, 60, "GEOFENCE_EXIT"],
  ]);
});

test("the seconds of the parts add up to what was not charged, whatever was rounded", () => {
  const parts = [{ from: 0, to: 12_500 }, { from: 20_000, to: 33_400 }];
  assert.deepEqual(inSeconds(parts, 26), [13, 13]);
  assert.deepEqual(inSeconds(parts, 25), [12, 13]);
  assert.deepEqual(inSeconds(parts, 40), [13, 13], "not where the shortest charge or the longest time decided");
  assert.deepEqual(inSeconds([], 0), []);
});

test("the parts of what was not charged add up to the time that a session lasted and was not charged", () => {
  const windows = [
    { from: at(10.4), to: at(20.1), reason: "GEOFENCE_EXIT" as const },
    { from: at(30.2), to: at(38.4), reason: "MEDIA_LOST" as const },
  ];
  const found = unchargedOf({ startedAt: at(0), endedAt: at(60.9), cleanSeconds: 42 }, windows);
  assert.equal(found.seconds, 18);
  assert.deepEqual(found.parts.map((each) => each.seconds), [10, 8]);
});
