// Why the meter pauses, in the words of who watches.
import { metres } from "../format";
import { t, type Word } from "../strings";

/** A position that is less certain proves nothing (spec: geofence). */
export const ACCURACY_MAX_M = 100;
/** Why no position counts although some arrive: what is said where the last one is too uncertain. */
export const uncertain = (word: "ownUncertain" | "positionInaccurate", accuracyM: number): string =>
  t(word, { accuracy: `±\u00a0${metres(accuracyM)}`, max: `±\u00a0${metres(ACCURACY_MAX_M)}` });

export const REASONS: Record<string, Word> = {
  LOCATION_STALE: "reasonLocation",
  GEOFENCE_EXIT: "reasonFence",
  MEDIA_LOST: "reasonMedia",
};
/** The word for a value of the API; the value itself if it has none. */
export const wordOf = (words: Record<string, Word>, key: string | null): string => {
  const word = key === null ? undefined : words[key];
  return word === undefined ? (key ?? "") : t(word);
};
