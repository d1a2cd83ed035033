import assert from "node:assert/strict";
import { test } from "node:test";
import { nearestTown, townText } from "../src/place/town";

const CITIES = [
  { name: "Berlin", country: "DE", lat: 52.524, lng: 13.411 },
  { name: "Potsdam", country: "DE", lat: 52.399, lng: 13.066 },
  { name: "Suva", country: "FJ", lat: -18.142, lng: 178.442 },
  { name: "Labasa", country: "FJ", lat: -16.417, lng: 179.383 },
];

test("the nearest city is named with the distance of its centre, also across the date line, and none that is far", () => {
  const found = nearestTown(CITIES, 52.52, 13.405);
  assert.deepEqual([found?.name, Math.round((found?.awayM ?? 0) / 100)], ["Berlin", 6]);
  assert.equal(nearestTown(CITIES, 52.42, 13.1)?.name, "Potsdam");
  assert.equal(nearestTown(CITIES, -16.5, 179.5)?.name, "Labasa");
  assert.equal(nearestTown([{ name: "Taveuni", country: "FJ", lat: -16.8, lng: -179.98 }], -16.8, 179.99)?.name, "Taveuni");
  assert.equal(nearestTown(CITIES, 48.1, 11.6), null);
});

test("a place in the middle of its city is named without a distance", () => {
  assert.equal(townText({ name: "Vienna", awayM: 49 }), "Centre of Vienna");
  assert.equal(townText({ name: "Vienna", awayM: 620 }), "Vienna, 620\u00a0m from its centre");
});
