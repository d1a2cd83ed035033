import assert from "node:assert/strict";
import { test } from "node:test";
import { shownGrade } from "../src/live/grade";

test("video that has just begun is called fair only after ten seconds, and weak at once", () => {
  assert.deepEqual(shownGrade("fair", 4_000), { grade: "starting", word: "qualityStarting" });
  assert.equal(shownGrade("fair", 10_000).grade, "fair");
  assert.equal(shownGrade("good", 2_000).grade, "good");
  assert.equal(shownGrade("poor", 2_000).grade, "poor");
});
