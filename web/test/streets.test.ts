import "./browser";
import assert from "node:assert/strict";
import { test } from "node:test";
import file from "../src/place/places.gen.txt";
import { readPlaces } from "../src/place/search";
import { wantedStreets } from "../src/place/streets";

const all = readPlaces(file);
const BERLIN = { url: "/console/streets", bounds: [12.9, 52.2, 13.9, 52.8], minZoom: 0, maxZoom: 15 } as const;
const read = (text: string, bounds: readonly [number, number, number, number] = BERLIN.bounds) =>
  wantedStreets(all, { ...BERLIN, bounds }, text).map(({ key, town }) => `${key} | ${town}`);

test("a street and its town are told apart, before and after a comma, and with the number of a house", () => {
  for (const text of ["Torstraße 5, Berlin", "Torstraße, Berlin, Germany", "Torstraße 12a Berlin", "Berlin Torstraße 5", "torstrasse berlin germany"])
    assert.ok(read(text).includes("torstrasse | Berlin, Germany"), `${text}: ${read(text).join("; ")}`);
  assert.ok(read("Unter den Linden Berlin").includes("unter den linden | Berlin, Germany"));
  assert.match(read("Brandenburger Str. Potsdam").join(), /brandenburger str \| Potsdam/);
});

test("a street without a town is looked for in the largest town of the file, or in its middle", () => {
  assert.deepEqual(read("Torstraße 5"), ["torstrasse | Berlin, Germany"]);
  assert.deepEqual(read("Torstraße", [-30, 30, -29, 31]), ["torstrasse | "]);
});

test("a town outside of the file is none of a street, and one letter is no street", () => {
  assert.deepEqual(read("Torstraße, Paris"), []);
  assert.deepEqual(read("T"), []);
});
