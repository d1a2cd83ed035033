// Why the meter pauses, in the words of who watches.
import { t, type Word } from "../strings";

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
