// Why a request is open again after an operator had it.
import type { Model } from "../api";
import type { Word } from "../strings";

const WORDS: Record<string, Word> = { DECLINED: "operatorDeclined", NOT_ACKNOWLEDGED: "operatorSilent", START_TIMEOUT: "operatorLate" };

/** What the last operator did that had the request; null if none had it. Events are oldest first. */
export function reopenedBy(events: readonly Pick<Model["MeterEvent"], "kind" | "facts">[]): Word | null {
  const last = events.filter((each) => each.kind === "REOPENED").at(-1);
  const reason = last?.facts.find((each) => each.name === "reason")?.value;
  return WORDS[String(reason)] ?? null;
}
