import assert from "node:assert/strict";
import { test } from "node:test";
import { clock, coordinates, dateTime, metres, point, positionOf, usdc } from "../src/format";
import { arabic } from "../src/languages/ar";
import { german } from "../src/languages/de";
import { english } from "../src/languages/en";
import { parsePoint } from "../src/place/coordinates";
import { isFromRight, language, speak, t } from "../src/strings";

const valuesOf = (text: string): string[] => (text.match(/{\w+}/g) ?? []).sort();

test("every text has the same values in every language, and none is empty", () => {
  for (const [name, catalogue] of Object.entries({ german, arabic })) {
    assert.deepEqual(Object.keys(catalogue), Object.keys(english), name);
    for (const [key, text] of Object.entries(catalogue)) {
      assert.notEqual(text.trim(), "", `${name} ${key}`);
      assert.deepEqual(valuesOf(text), valuesOf(english[key as keyof typeof english]), `${name} ${key}`);
    }
  }
});

test("the Arabic texts are Arabic", () => {
  const others = Object.entries(arabic).filter(([, text]) => !/[\u0600-\u06ff]/.test(text)).map(([key]) => key);
  assert.deepEqual(others, ["plusMinus"]);
});

test("in a language from right to left, values keep their own direction, and digits are the same", async (context) => {
  context.after(() => speak("en"));
  await speak("ar");
  assert.equal(isFromRight(), true);
  assert.equal(usdc("71280"), "\u20660.07128\u00a0USDC\u2069");
  assert.equal(point(52.52, 13.405), "\u206652.52000, 13.40500\u2069");
  assert.equal(coordinates(52.52, 13.405), "52.52000, 13.40500");
  assert.equal(metres(1_500), "1.5\u00a0كم");
  assert.equal(positionOf("52.52,13.405;8"), "\u206652.52, 13.405\u2069");
  assert.match(positionOf("unknown"), /^[\u0600-\u06ff\s]+$/);
  assert.equal(clock(83), "1:23");
  assert.match(dateTime("2026-11-25T07:00:00Z"), /25.*2026/);
  assert.equal(t("atMost", { amount: "5" }), "من \u20685\u2069 بحدّ أقصى");
  assert.deepEqual(parsePoint(point(52.52, 13.405)), { lat: 52.52, lng: 13.405 }, "what is copied can be pasted");
  assert.deepEqual(parsePoint("٥٢٫٥٢، ١٣٫٤٠٥"), { lat: 52.52, lng: 13.405 });
});

test("without a right-to-left language, texts have no marks", async () => {
  await speak("de");
  assert.equal(language.value, "de");
  assert.equal(t("atMost", { amount: usdc("71280") }), "von höchstens 0,07128\u00a0USDC");
  await speak("en");
  assert.equal(point(1, 2), "1.00000, 2.00000");
});
