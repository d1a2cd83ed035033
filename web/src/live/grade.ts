// How the quality of what a phone sends is called.
import type { Grade } from "sightline-js/quality";
import type { Word } from "../strings";

/** A browser raises its bit rate step by step: for so long, a fair picture says nothing about the connection. */
const STARTING_MS = 10_000;
const WORDS = { good: "qualityGood", fair: "qualityFair", poor: "qualityPoor", starting: "qualityStarting" } as const satisfies Record<string, Word>;

/** The grade of video that is sent for `forMs`, and its word. */
export function shownGrade(grade: Grade, forMs: number): { grade: keyof typeof WORDS; word: Word } {
  const shown = grade === "fair" && forMs < STARTING_MS ? "starting" : grade;
  return { grade: shown, word: WORDS[shown] };
}
