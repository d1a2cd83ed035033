import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";
import { connect } from "sightline-js";
import { Locator } from "../src/live/locator";

interface Beat {
  sequence: number;
  lat: number;
}
type Answer = { status: number; body: object };
type Take = (position: { coords: { latitude: number; longitude: number; accuracy: number } }) => void;

const ACCEPTED: Answer = { status: 202, body: { ok: true, data: {}, serverTime: "2026-11-25T10:00:00.000Z" } };
let sent: Beat[][] = [];
let answers: Answer[] = [];
let isOffline = false;
let take: Take = () => undefined;
let refuse: (error: { code: number }) => void = () => undefined;
let locator: Locator;
let asked: { found: Take; failed: typeof refuse } | null = null;

const settle = async (): Promise<void> => {
  for (let turn = 0; turn < 20; turn++) await new Promise((done) => setImmediate(done));
};
const measure = (latitude: number): void => take({ coords: { latitude, longitude: 13.4, accuracy: 8.4 } });

beforeEach(() => {
  [sent, answers, isOffline] = [[], [], false];
  mock.timers.enable({ apis: ["Date", "setInterval"], now: Date.parse("2026-11-25T10:00:00Z") });
  const geolocation = {
    watchPosition: (found: Take, failed: typeof refuse) => ((take = found), (refuse = failed), 1),
    clearWatch: () => undefined,
    getCurrentPosition: (found: Take, failed: typeof refuse) => void (asked = { found, failed }),
  };
  const kept = new Map<string, string>();
  const localStorage = { getItem: (name: string) => kept.get(name) ?? null, setItem: (name: string, value: string) => kept.set(name, value), removeItem: (name: string) => kept.delete(name) };
  Object.defineProperty(globalThis, "localStorage", { value: localStorage, configurable: true });
  Object.defineProperty(globalThis, "navigator", { value: { geolocation, language: "en" }, configurable: true });
  globalThis.fetch = async (request) => {
    const body = JSON.parse(await (request as Request).text());
    sent.push(body.items ?? [body]);
    if (isOffline) throw new TypeError("offline");
    const answer = answers.shift() ?? ACCEPTED;
    return new Response(JSON.stringify(answer.body), { status: answer.status, headers: { "content-type": "application/json" } });
  };
  locator = new Locator(connect({ url: "http://127.0.0.1:8080", key: "test" }), "11111111-1111-4111-8111-111111111111");
});
afterEach(() => {
  locator.stop();
  mock.timers.reset();
});

test("while somebody asks for the position, it is being checked, and the answer counts at once", async () => {
  refuse({ code: 1 });
  assert.equal(locator.error.value, "positionRefused");
  const checked = locator.check();
  assert.equal(locator.isChecking.value, true);
  asked?.found({ coords: { latitude: 52.5, longitude: 13.4, accuracy: 8.4 } });
  await checked;
  assert.deepEqual([locator.isChecking.value, locator.error.value, locator.fix.value?.lat], [false, null, 52.5]);
  const refused = locator.check();
  asked?.failed({ code: 1 });
  await refused;
  assert.deepEqual([locator.isChecking.value, locator.error.value], [false, "positionRefused"]);
});

test("a position is sent at once, and one that was not measured again is not", async () => {
  measure(52.5);
  await settle();
  assert.deepEqual(sent.map((each) => each.map(({ lat }) => lat)), [[52.5]]);
  mock.timers.tick(2000);
  await settle();
  assert.equal(sent.length, 1);
  measure(52.6);
  await settle();
  assert.deepEqual(sent.at(-1)?.map(({ lat }) => lat), [52.6]);
});

test("positions of a time without network are sent together, in order, when it is back", async () => {
  isOffline = true;
  for (const lat of [52.1, 52.2, 52.3]) {
    measure(lat);
    await settle();
    mock.timers.tick(2000);
    await settle();
  }
  assert.ok(locator.missed.value >= 2);
  isOffline = false;
  measure(52.4);
  await settle();
  const last = sent.at(-1) ?? [];
  assert.deepEqual(last.map(({ lat }) => lat), [52.1, 52.2, 52.3, 52.4]);
  assert.ok(last.every(({ sequence }, at) => at === 0 || sequence === (last[at - 1]?.sequence ?? 0) + 1));
  assert.equal(locator.missed.value, 0);
});

test("after a long time without network, no call is too large, and the rest follows", async () => {
  isOffline = true;
  for (let beat = 0; beat < 120; beat++) {
    measure(52 + beat / 1000);
    await settle();
    mock.timers.tick(2000);
  }
  await settle();
  isOffline = false;
  const before = sent.length;
  for (let beat = 0; beat < 4; beat++) {
    mock.timers.tick(2000);
    await settle();
  }
  assert.deepEqual(sent.slice(before).map(({ length }) => length), [50, 50, 20]);
  assert.equal(locator.missed.value, 0);
});

test("another device that was ahead renumbers what waits", async () => {
  answers = [{ status: 409, body: { ok: false, code: "CONFLICT", message: "", detail: "location:sequence", lastSequence: 5_000_000_000 } }];
  measure(52.5);
  await settle();
  mock.timers.tick(2000);
  await settle();
  assert.equal(sent.at(-1)?.[0]?.sequence, 5_000_000_011, "far enough ahead that the next one of the other device is behind");
});

test("a refused position is an error in own words, which the next position clears", async () => {
  refuse({ code: 1 });
  assert.equal(locator.error.value, "positionRefused");
  measure(52.5);
  await settle();
  assert.equal(locator.error.value, null);
});

test("a suspension is told, and the positions stay for the time after it", async () => {
  const told: unknown[] = [];
  locator.stop();
  locator = new Locator(connect({ url: "http://127.0.0.1:8080", key: "test" }), "11111111-1111-4111-8111-111111111111", (error) => told.push(error));
  answers = [{ status: 403, body: { ok: false, code: "NOT_AUTHORIZED", message: "", detail: "workspace:suspended" } }];
  measure(52.5);
  await settle();
  assert.equal(told.length, 1);
  mock.timers.tick(2000);
  await settle();
  assert.deepEqual(sent.at(-1)?.map(({ lat }) => lat), [52.5]);
  assert.equal(told.length, 1);
});

test("another device that goes on sending is noticed, and forgotten when it stops", async () => {
  const ahead = (lastSequence: number): Answer => ({ status: 409, body: { ok: false, error: "m", code: "CONFLICT", lastSequence } });
  const beat = async (latitude: number): Promise<void> => {
    mock.timers.tick(2000);
    measure(latitude);
    await settle();
  };
  for (const [turn, last] of [9_000_000_000, 9_000_000_100, 9_000_000_200].entries()) {
    assert.equal(locator.isShared.value, false, `after ${turn}`);
    answers = [ahead(last)];
    await beat(52 + turn / 100);
    answers = [];
    await beat(52.5 + turn / 100);
  }
  assert.equal(locator.isShared.value, true);
  for (let turn = 0; turn < 16; turn++) await beat(53 + turn / 100);
  assert.equal(locator.isShared.value, false);
});

test("positions whose answers were lost are refused when they come again, and are no other device", async () => {
  const taken = (lastSequence: number): Answer => ({ status: 409, body: { ok: false, error: "m", code: "CONFLICT", lastSequence } });
  for (let turn = 0; turn < 4; turn++) {
    isOffline = true;
    measure(52 + turn / 10);
    await settle();
    isOffline = false;
    answers = [taken(9_000_000_000 + 100 * turn)];
    mock.timers.tick(2000);
    await settle();
    assert.equal(locator.isShared.value, false);
  }
});

const ahead = (lastSequence: number): Answer => ({ status: 409, body: { ok: false, error: "m", code: "CONFLICT", lastSequence } });
const again = (): Locator => (locator.stop(), (locator = new Locator(connect({ url: "http://127.0.0.1:8080", key: "test" }), "11111111-1111-4111-8111-111111111111")));

test("a device that takes over goes far ahead of the other one, which then knows it, also after a reload", async () => {
  measure(52.5);
  await settle();
  const before = sent.at(-1)?.[0]?.sequence ?? 0;
  answers = [ahead(before + 7)];
  await locator.takeOver();
  const taken = sent.at(-1)?.[0]?.sequence ?? 0;
  assert.ok(taken - before > 50_000_000, "far ahead of what the other one sent");
  assert.equal(locator.takenOver.value, 0);
  again();
  answers = [ahead(taken + 100_000_000)];
  measure(52.6);
  await settle();
  assert.equal(locator.takenOver.value, 1);
});

test("a device that is only ahead takes nothing over, and a browser without a past cannot know", async () => {
  measure(52.5);
  await settle();
  mock.timers.tick(2000);
  answers = [ahead((sent.at(-1)?.[0]?.sequence ?? 0) + 40)];
  measure(52.6);
  await settle();
  assert.equal(locator.takenOver.value, 0);
  localStorage.removeItem("sightline.sequence.11111111-1111-4111-8111-111111111111");
  again();
  answers = [ahead(9_000_000_000_000)];
  measure(52.7);
  await settle();
  assert.equal(locator.takenOver.value, 0);
});

test("a device without a camera sends no position, and its last one as soon as it can film", async () => {
  locator.quieten(true);
  measure(52.5);
  mock.timers.tick(2000);
  measure(52.6);
  await settle();
  assert.deepEqual([sent, locator.missed.value], [[], 0]);
  locator.quieten(false);
  await settle();
  assert.deepEqual(sent.map((each) => each.map(({ lat }) => lat)), [[52.6]]);
});
