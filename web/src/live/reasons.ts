// Why the meter pauses, in the words of who watches.
import { clock, distanceM, metres } from "../format";
import { t, type Word } from "../strings";

/** A position that is less certain proves nothing (spec: geofence). */
export const ACCURACY_MAX_M = 100;
/** Why no position counts although some arrive: what is said where the last one is too uncertain. */
export const uncertain = (accuracyM: number): string =>
  t("ownUncertain", { accuracy: `±\u00a0${metres(accuracyM)}`, max: `±\u00a0${metres(ACCURACY_MAX_M)}` });

interface Seen {
  lat: number;
  lng: number;
  accuracyMeters: number;
  /** 0: it is where the device is now. */
  ageMs: number;
}
/** How far from the requested place a device is, as exactly as that is known, or that it was there some time ago. */
export function awayFrom({ requestedLat, requestedLng }: { requestedLat: number; requestedLng: number }, seen: Seen): string {
  const distance = t("plusMinus", { distance: metres(distanceM(seen.lat, seen.lng, requestedLat, requestedLng)), accuracy: metres(seen.accuracyMeters) });
  return seen.ageMs === 0 ? distance : t("lastKnown", { distance, time: clock(seen.ageMs / 1000) });
}

export const REASONS: Record<string, Word> = {
  LOCATION_STALE: "reasonLocation",
  GEOFENCE_EXIT: "reasonFence",
  MEDIA_LOST: "reasonMedia",
};
/** The same to who filmed, after the end. */
const OWN_REASONS: Record<string, Word> = {
  LOCATION_STALE: "ownReasonLocation",
  GEOFENCE_EXIT: "ownReasonFence",
  MEDIA_LOST: "ownReasonMedia",
};
/** The word for a value of the API; the value itself if it has none. */
export const wordOf = (words: Record<string, Word>, key: string | null): string => {
  const word = key === null ? undefined : words[key];
  return word === undefined ? (key ?? "") : t(word);
};
/** All reasons of a pause. Where both signals are missing, it is not the device alone: its way to the server is cut. */
export function reasonsOf(reasons: readonly string[], isOwn = false): string {
  const isSilent = reasons.includes("LOCATION_STALE") && reasons.includes("MEDIA_LOST");
  const others = isSilent ? reasons.filter((each) => each === "GEOFENCE_EXIT") : reasons;
  return [...others.map((each) => wordOf(isOwn ? OWN_REASONS : REASONS, each)), ...(isSilent ? [t("reasonSilent")] : [])].join(" ");
}
