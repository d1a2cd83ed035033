import assert from "node:assert/strict";
import { test } from "node:test";
import file from "../src/place/places.gen.txt";
import { readPlaces, search } from "../src/place/search";
import { language } from "../src/strings";

const all = readPlaces(file); // the tests' bundle has the file's text in place of its address
const best = (text: string) => search(all, text, 6)[0];
const isNear = (text: string, lat: number, lng: number): void => {
  const found = best(text);
  assert.ok(found !== undefined, `${text} is not found`);
  assert.ok(Math.abs(found.lat - lat) < 0.3 && Math.abs(found.lng - lng) < 0.3, `${text}: ${JSON.stringify(found)}`);
};

test("cities by their name in English and in their own language and script", () => {
  for (const text of ["Munich", "München", "munchen", "MÜNCHEN", "Munich, Germany", "München, Bavaria"]) isNear(text, 48.14, 11.58);
  for (const text of ["Tokyo", "東京"]) isNear(text, 35.69, 139.69);
  for (const text of ["Moscow", "Москва"]) isNear(text, 55.75, 37.62);
  for (const text of ["Cairo", "القاهرة", "cairo, egypt"]) isNear(text, 30.06, 31.25);
  for (const text of ["Athens, Greece", "Αθήνα"]) isNear(text, 37.98, 23.73);
  for (const text of ["Seoul", "서울"]) isNear(text, 37.57, 126.98);
  for (const text of ["Köln", "Koeln", "Cologne"]) isNear(text, 50.93, 6.95);
  for (const text of ["Wien", "Vienna"]) isNear(text, 48.21, 16.37);
  isNear("Zürich", 47.37, 8.55);
  isNear("São Paulo", -23.55, -46.63);
  isNear("sao paulo", -23.55, -46.63);
});

test("towns, and words after the name without a comma", () => {
  isNear("Oberstdorf", 47.41, 10.28);
  isNear("Paris Texas", 33.66, -95.56);
  isNear("Paris, United States", 33.66, -95.56);
  isNear("Berlin Germany", 52.52, 13.41);
  isNear("Saint-Denis, Réunion", -20.88, 55.45);
});

test("a label says region and country, and places of one name are told apart", () => {
  assert.equal(best("cairo")?.label, "Cairo, Egypt");
  assert.match(best("münchen")?.label ?? "", /^München \(Munich\), Bavaria, Germany$/);
  const labels = search(all, "Springfield", 6).map((each) => each.label);
  assert.equal(labels.length, 6);
  assert.equal(new Set(labels).size, 6, labels.join("; "));
  assert.ok(labels.every((each) => /^Springfield, \w+/.test(each)), labels.join("; "));
  language.value = "de";
  assert.equal(best("cairo, ägypten")?.label, "Cairo, Ägypten");
  language.value = "en";
});

test("in Arabic, a city has its Arabic name where one is known", () => {
  language.value = "ar";
  try {
    const found = ["Berlin", "برلين", "München", "القاهرة", "برشلونة", "Oberstdorf"].map((each) => best(each)?.label);
    assert.deepEqual(found, ["برلين (Berlin)، ألمانيا", "برلين، ألمانيا", "München (ميونخ)، ألمانيا", "القاهرة، مصر", "برشلونة، إسبانيا", "Oberstdorf، Bavaria، ألمانيا"]);
  } finally {
    language.value = "en";
  }
  assert.equal(best("برلين")?.label, "برلين (Berlin), Germany");
});

test("the whole name comes before a larger city that only begins with it", () => {
  assert.match(best("York")?.label ?? "", /^York, England/);
});

test("a short plus code is completed by its city", () => {
  const found = best("GCC3+2X Berlin");
  assert.ok(found !== undefined && Math.abs(found.lat - 52.52) < 0.01 && Math.abs(found.lng - 13.405) < 0.01, JSON.stringify(found));
});

test("what is no name finds nothing", () => {
  for (const text of ["", "x", "nowhere at all", ", Egypt", "52.5, 13.4"]) assert.deepEqual(search(all, text, 6), [], text);
});

test("a misspelt name finds the largest places whose name is like it, marked as such", () => {
  const expected = { Berln: "Berlin", Amstredam: "Amsterdam", Barcelonna: "Barcelona", Munchn: "Munich", "Frankfrt, Germany": "Frankfurt", Pariss: "Paris" };
  for (const [text, name] of Object.entries(expected)) {
    const found = best(text);
    assert.ok(found?.label.includes(name), `${text}: ${found?.label}`);
    assert.equal(found.isAlike, true);
  }
  assert.equal(best("Berlin")?.isAlike, undefined);
  for (const text of ["Xqzzyw", "Nowhereville", "nowhere at all", "Qzx"]) assert.deepEqual(search(all, text, 6), [], text);
});

test("countries, states and cities as people shorten them, and saints in two languages", () => {
  for (const text of ["London UK", "London, UK", "London Great Britain"]) isNear(text, 51.51, -0.13);
  for (const text of ["Washington DC", "Washington, D.C."]) isNear(text, 38.9, -77.04);
  for (const text of ["NYC", "nyc", "New York NY", "New York USA"]) isNear(text, 40.71, -74.01);
  isNear("LA", 34.05, -118.24);
  isNear("Portland OR", 45.52, -122.68);
  isNear("Paris, TX", 33.66, -95.56);
  for (const text of ["St. Pölten", "St Pölten", "Sankt Pölten"]) isNear(text, 48.2, 15.63);
  isNear("St. Louis", 38.63, -90.2);
  for (const text of ["Frankfurt/Main", "Frankfurt am Main", "Frankfurt Main"]) isNear(text, 50.12, 8.68);
  isNear("Frankfurt/Oder", 52.35, 14.55);
  isNear("Berlin Mitte", 52.52, 13.4);
  assert.equal(best("Berlin Mitte")?.isAlike, true);
  for (const text of ["Brandenburg Gate, Berlin", "Brandenburg Gate, Berlin, Germany"]) {
    isNear(text, 52.52, 13.41);
    assert.equal(best(text)?.isAlike, true);
  }
  isNear("Lagos", 6.45, 3.39);
});
