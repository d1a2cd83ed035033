import assert from "node:assert/strict";
import { test } from "node:test";
import { keepPlace, keptPlace, placeAt, typed } from "../src/place/place";

test("a place that was kept has its name and its point", () => {
  assert.deepEqual(keptPlace(), { text: "", point: null });
  const berlin = { text: "Berlin, Germany", point: { lat: 52.524, lng: 13.411 } };
  keepPlace(berlin);
  assert.deepEqual(keptPlace(), berlin);
});

test("coordinates are a place as they are typed, a name is none before it is chosen", () => {
  assert.deepEqual(typed("52.52, 13.405").point, { lat: 52.52, lng: 13.405 });
  assert.equal(typed("Berlin").point, null);
  assert.deepEqual(placeAt(52.52, 13.405), { text: "52.52000, 13.40500", point: { lat: 52.52, lng: 13.405 } });
});

test("coordinates that an earlier version kept are still known", () => {
  localStorage.setItem("sightline.place", "52.52, 13.405");
  assert.deepEqual(keptPlace(), { text: "52.52, 13.405", point: { lat: 52.52, lng: 13.405 } });
});
