// Pauses of a session. Position and video can be missing at the same time, so pauses overlap: what is not charged is their union.
import type { Model } from "../api";

export interface Pause {
  from: string;
  to: string | null;
}
type Span = readonly [from: number, to: number];

const PAUSE_MAX_MS = 60_000;
const PAUSES_MAX_MS = 180_000;

/** Pauses in order, with those that touch made one. An open pause lasts until `endMs`. */
export function merged(pauses: readonly Pause[], endMs: number): Span[] {
  const spans = pauses
    .map((each): Span => [Date.parse(each.from), each.to === null ? endMs : Date.parse(each.to)])
    .sort(([a], [b]) => a - b);
  const found: Span[] = [];
  for (const [from, to] of spans) {
    const last = found.at(-1);
    if (last !== undefined && from <= last[1]) found[found.length - 1] = [last[0], Math.max(last[1], to)];
    else found.push([from, to]);
  }
  return found;
}

type Reason = Model["MeterWindow"]["reason"];
export interface Gap {
  from: number;
  to: number;
  reasons: readonly Reason[];
  /** Whether for most of it neither position nor picture arrived: not the device alone, but its way to the server was cut. */
  isSilent: boolean;
}
/** The time that is not charged, in pieces that do not overlap, each with what was missing in it. */
export function gapsOf(windows: readonly Model["MeterWindow"][], endMs: number): Gap[] {
  return merged(windows, endMs).map(([from, to]) => {
    const within = windows.filter((each) => Date.parse(each.from) >= from && Date.parse(each.from) <= to);
    const lastedMs = (reason: Reason): number => pausedMs(within.filter((each) => each.reason === reason), endMs);
    const isSilent = 2 * Math.min(lastedMs("LOCATION_STALE"), lastedMs("MEDIA_LOST")) > to - from;
    return { from, to, reasons: [...new Set(within.map((each) => each.reason))], isSilent };
  });
}

/** Milliseconds that are in at least one pause. */
export const pausedMs = (pauses: readonly Pause[], endMs: number): number => merged(pauses, endMs).reduce((sum, [from, to]) => sum + Math.max(0, to - from), 0);

/** When the open pause ends the session: 60 s of one pause, or 180 s of all. */
export function pauseEndsAt({ windows }: Pick<Model["Meter"], "windows">): number | null {
  if (windows.every((each) => each.to !== null)) return null;
  const spans = merged(windows, Infinity);
  const [since] = spans.at(-1) ?? [0];
  const before = spans.slice(0, -1).reduce((sum, [from, to]) => sum + to - from, 0);
  return since + Math.min(PAUSE_MAX_MS, PAUSES_MAX_MS - before);
}
