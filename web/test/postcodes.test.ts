import assert from "node:assert/strict";
import { test } from "node:test";
import { mayBePostcode, readPostcodes, searchPostcodes } from "../src/place/postcodes";

const all = readPostcodes(
  ["DE\t10115\tBerlin\t52.5323\t13.3846", "DE\t10117\tBerlin\t52.5170\t13.3872", "US\t10115\tNew York\t40.8111\t-73.9642", "GB\tSW1A 1AA\tLondon\t51.5010\t-0.1416", "JP\t100-0001\tTokyo\t35.6845\t139.7516"].join("\n"),
);
const found = (text: string): string[] => searchPostcodes(all, text, 6).map(({ label }) => label);

test("a place by its postcode, narrowed by country or name, as people write it", () => {
  assert.deepEqual(found("10115"), ["10115 Berlin, Germany", "10115 New York, United States"]);
  assert.deepEqual(found("10115 Berlin"), ["10115 Berlin, Germany"]);
  assert.deepEqual(found("10115, United States"), ["10115 New York, United States"]);
  assert.deepEqual(found("DE-10115"), ["10115 Berlin, Germany"]);
  assert.deepEqual(found("1011"), ["10115 Berlin, Germany", "10117 Berlin, Germany", "10115 New York, United States"]);
  assert.deepEqual(found("sw1a 1aa"), ["SW1A 1AA London, United Kingdom"]);
  assert.deepEqual(found("SW1A"), ["SW1A 1AA London, United Kingdom"]);
  assert.deepEqual(found("1000001"), ["100-0001 Tokyo, Japan"]);
  assert.deepEqual(found("99999"), []);
  assert.deepEqual(searchPostcodes(all, "10115", 1)[0], { label: "10115 Berlin, Germany", lat: 52.5323, lng: 13.3846 });
});

test("names and coordinates are no postcodes", () => {
  assert.deepEqual(["10115", "SW1A 1AA", "DE-10115", "K1A 0B1"].map(mayBePostcode), [true, true, true, true]);
  assert.deepEqual(["Berlin", "München", "https://maps.example/1", ""].map(mayBePostcode), [false, false, false, false]);
});
