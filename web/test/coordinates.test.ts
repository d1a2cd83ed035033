import assert from "node:assert/strict";
import { test } from "node:test";
import { isOffEarth, isShortLink, parsePoint } from "../src/place/coordinates";
import { language } from "../src/strings";

const near = (text: string, lat: number, lng: number, within = 0.0002): void => {
  const found = parsePoint(text);
  assert.ok(found !== null, `${text} is not understood`);
  assert.ok(Math.abs(found.lat - lat) <= within && Math.abs(found.lng - lng) <= within, `${text}: ${JSON.stringify(found)}`);
};

test("Berlin in every way that people write coordinates", () => {
  for (const text of [
    "52.520008, 13.404954", "52.520008,13.404954", "52.520008 13.404954", "52.520008;13.404954", "(52.520008, 13.404954)", "52.520008 / 13.404954",
    "52,520008 13,404954", "52,520008; 13,404954", "52,520008, 13,404954", "+52.520008, +13.404954",
    "52.520008N 13.404954E", "52.520008° N, 13.404954° E", "N 52.520008, E 13.404954", "13.404954 E, 52.520008 N", "52,520008°N 13,404954°E",
    "52°31'12\"N 13°24'18\"E", "52° 31′ 12″ N, 13° 24′ 18″ E", "52º31’12”N 13º24’18”E", "52°31'12''N 13°24'18''E", "52 31 12 N 13 24 18 E",
    "N52°31.2' E013°24.3'", "n 52 31.2 e 13 24.3", "52°31'12\", 13°24'18\"", "52.520008°, 13.404954°", "52.520008° 13.404954°", "52°31′12′′N 13°24′18′′E",
  ])
    near(text, 52.52, 13.405);
});

test("O is east in German only, because in French, Spanish and Italian it is west", (t) => {
  const text = "52° 31,2' N 13° 24,3' O";
  assert.equal(parsePoint(text), null);
  t.after(() => void (language.value = "en"));
  language.value = "de";
  near(text, 52.52, 13.405);
});

test("signs and hemispheres south and west", () => {
  near("-33.868820, 151.209290", -33.86882, 151.20929);
  near("−33.868820, −70.5", -33.86882, -70.5);
  near("33°52'7.8\"S 151°12'33.4\"E", -33.8688, 151.2093);
  near("22.9068S 43.1729W", -22.9068, -43.1729);
  near("-33°52'07\", -70°30'00\"", -33.8686, -70.5);
  near("S 33.8688 W 70.5", -33.8688, -70.5);
});

test("links of maps, and the place before the middle of the picture", () => {
  for (const text of [
    "https://www.google.com/maps/@52.520008,13.404954,15z",
    "https://www.google.com/maps/place/Alexanderplatz/@52.1,13.1,17z/data=!3m1!4b1!4m6!3m5!1s0x0:0x0!8m2!3d52.520008!4d13.404954!16zL20",
    "https://www.google.com/maps?q=52.520008,13.404954",
    "https://www.google.com/maps/search/?api=1&query=52.520008%2C13.404954",
    "https://www.google.com/maps/place/52.520008,13.404954/@52.1,13.1,12z",
    "https://www.google.com/maps/search/52.520008,+13.404954",
    "https://www.google.com/maps/dir/?api=1&destination=52.520008,13.404954",
    "https://maps.apple.com/?ll=52.520008,13.404954&q=Pin",
    "https://maps.apple.com/place?coordinate=52.520008,13.404954&name=Pin",
    "https://www.openstreetmap.org/#map=15/52.520008/13.404954",
    "https://www.openstreetmap.org/?mlat=52.520008&mlon=13.404954#map=5/50/10",
    "https://www.bing.com/maps?cp=52.520008~13.404954&lvl=15",
    "geo:52.520008,13.404954?z=15",
  ])
    near(text, 52.52, 13.405);
  assert.ok(isShortLink("https://maps.app.goo.gl/AbCdEf123"));
  assert.equal(parsePoint("https://maps.app.goo.gl/AbCdEf123"), null);
});

test("plus codes", () => {
  near("9F4MGCC3+2X", 52.52, 13.405, 0.001);
  near("8FVC9G8F+6X", 47.365563, 8.524937, 0.0001); // of the specification's test data
  near("8fvc2222+22", 47.0000625, 8.0000625, 0.00001);
});

test("what is no place on Earth", () => {
  for (const text of ["", "95.1, 13.4", "52.5", "52.5, 181", "52°75'N 13°E", "52N 13N", "Berlin", "https://example.com/", "1 2 3", "52.5, 13.4, 7"])
    assert.equal(parsePoint(text), null, text);
});

test("numbers that are too large for a latitude or a longitude are told from names", () => {
  for (const text of ["95.0, 13", "52.5, 181", "95° N 13° E", "-91 13.4", "geo:95.0,13"]) assert.ok(isOffEarth(text), text);
  for (const text of ["52.5, 13.4", "Berlin", "", "52°75'N 13°E", "10115"]) assert.ok(!isOffEarth(text), text);
});
