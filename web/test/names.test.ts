import assert from "node:assert/strict";
import { test } from "node:test";
import { keepName, nameOfPlace, placeOf } from "../src/place/names";
import { chosenName, typed } from "../src/place/place";

const berlin = { requestedLat: 52.520008, requestedLng: 13.404954 };

test("the name of a chosen place is shown beside its coordinates, and of coordinates there is none", () => {
  assert.equal(placeOf(berlin), "52.52001, 13.40495");
  assert.equal(chosenName(typed("52.520008, 13.404954")), null);
  assert.equal(chosenName(typed("geo:52.520008,13.404954")), null);
  assert.equal(chosenName(typed("Berlin")), null, "not yet chosen");
  assert.equal(chosenName({ text: "Berlin, Germany", point: { lat: 52.520008, lng: 13.404954 } }), "Berlin, Germany");
  keepName("Berlin, Germany", { lat: 52.520008, lng: 13.404954 });
  assert.equal(placeOf(berlin), "Berlin, Germany · 52.52001, 13.40495");
});

test("only the newest names are kept", () => {
  for (let at = 0; at < 60; at++) keepName(`Town ${at}`, { lat: at, lng: 1 });
  assert.equal(nameOfPlace(berlin), null);
  assert.equal(nameOfPlace({ requestedLat: 59, requestedLng: 1 }), "Town 59");
});
