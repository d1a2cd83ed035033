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
}
/** Position and video are proved about every 2 s, so two of them that stop together seem to stop this far from each other. */
const TOGETHER_MS = 2000;

/** The time that is not charged, cut where another reason begins or ends: parts that do not overlap, each with all its reasons. */
export function gapsOf(windows: readonly Model["MeterWindow"][], endMs: number): Gap[] {
  return merged(windows, endMs).flatMap((span) => distinct(partsOf(span, windows, endMs)));
}

function partsOf([from, to]: Span, windows: readonly Model["MeterWindow"][], endMs: number): Gap[] {
  const spans = windows.map((each): [...Span, Reason] => [Date.parse(each.from), each.to === null ? endMs : Date.parse(each.to), each.reason]);
  const inside = spans.flatMap(([start, end]) => [start, end]).filter((each) => each > from && each < to);
  const cuts = [...new Set([from, ...inside, to])].sort((a, b) => a - b);
  return cuts.slice(0, -1).map((start, index) => {
    const end = cuts[index + 1] ?? to;
    const reasons = spans.filter((each) => each[0] <= start && each[1] >= end).map((each) => each[2]);
    return { from: start, to: end, reasons: [...new Set(reasons)].sort() };
  });
}

/** Parts of one pause without those that are too short to tell anything: each becomes part of its longer neighbour. */
function distinct(parts: readonly Gap[]): Gap[] {
  const lengthOf = (part: Gap | undefined): number => (part === undefined ? 0 : part.to - part.from);
  const found: Gap[] = [];
  for (const part of parts) {
    const before = found.at(-1);
    if (before?.reasons.join() === part.reasons.join()) found[found.length - 1] = { ...before, to: part.to };
    else found.push(part);
  }
  const index = found.reduce((least, part, at) => (lengthOf(part) < lengthOf(found[least]) ? at : least), 0);
  const [before, short, after] = [found[index - 1], found[index], found[index + 1]];
  if (short === undefined || found.length === 1 || lengthOf(short) >= TOGETHER_MS) return found;
  if (before !== undefined && lengthOf(before) >= lengthOf(after)) found.splice(index - 1, 2, { ...before, to: short.to });
  else if (after !== undefined) found.splice(index, 2, { ...after, from: short.from });
  return distinct(found);
}

/** What was not charged of a session that is over, in whole seconds, and its parts, which add up to it. */
export interface Uncharged {
  seconds: number;
  parts: readonly (Gap & { seconds: number })[];
}
export function unchargedOf(session: { startedAt: string; endedAt: string; cleanSeconds: number }, windows: readonly Model["MeterWindow"][]): Uncharged {
  const end = Date.parse(session.endedAt);
  const lasted = Math.max(1, end - Date.parse(session.startedAt));
  const seconds = Math.max(0, Math.floor(lasted / 1000) - session.cleanSeconds);
  const gaps = gapsOf(windows, end);
  const rounded = inSeconds(gaps, seconds);
  return { seconds, parts: gaps.map((each, index) => ({ ...each, seconds: rounded[index] ?? 0 })) };
}

/** Whole seconds of each part, rounded so that they add up to the seconds that were not charged. */
export function inSeconds(parts: readonly Pick<Gap, "from" | "to">[], notCharged: number): number[] {
  const lengths = parts.map((each) => (each.to - each.from) / 1000);
  const sum = lengths.reduce((all, each) => all + each, 0);
  // They are further apart where the shortest charge or the longest time decided, and not the pauses.
  const factor = Math.abs(notCharged - sum) < 2 && sum > 0 ? notCharged / sum : 1;
  let [exact, told] = [0, 0];
  return lengths.map((each) => {
    exact += each * factor;
    const until = Math.round(exact);
    const seconds = until - told;
    told = until;
    return seconds;
  });
}

/** Milliseconds that are in at least one pause. */
export const pausedMs = (pauses: readonly Pause[], endMs: number): number => merged(pauses, endMs).reduce((sum, [from, to]) => sum + Math.max(0, to - from), 0);

/** When the session ends by its longest time; null before its start. */
export const timeEndsAt = ({ startedAt, maxDurationSeconds }: Pick<Model["Session"], "startedAt" | "maxDurationSeconds">): number | null =>
  startedAt === null ? null : Date.parse(startedAt) + maxDurationSeconds * 1000;

/** When a session that is paused ends by itself: after 60 s of one pause, 180 s of all, or by its longest time. */
export function pauseEndsAt({ windows }: Pick<Model["Meter"], "windows">, timeEnds: number | null): number | null {
  if (windows.every((each) => each.to !== null)) return null;
  const spans = merged(windows, Infinity);
  const [since] = spans.at(-1) ?? [0];
  const before = spans.slice(0, -1).reduce((sum, [from, to]) => sum + to - from, 0);
  return Math.min(since + Math.min(PAUSE_MAX_MS, PAUSES_MAX_MS - before), timeEnds ?? Infinity);
}
