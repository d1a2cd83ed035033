// Names of places as they were chosen in this browser. The server knows coordinates only.
import { signal } from "@preact/signals";
import { coordinates, point } from "../format";
import { keep, onKeptElsewhere, remembered } from "../kept";

const NAME = "placeNames";
const KEPT_MAX = 50;
const read = (): Map<string, string> => new Map(JSON.parse(remembered(NAME) ?? "[]") as [string, string][]);
/** Coordinates and the name chosen for them, the newest last. */
const names = signal(read());
onKeptElsewhere(NAME, () => (names.value = read()));

/** Remember the name of a chosen place. */
export function keepName(name: string, at: { lat: number; lng: number }): void {
  const key = coordinates(at.lat, at.lng);
  const others = [...names.value].filter(([each]) => each !== key);
  names.value = new Map([...others, [key, name] as [string, string]].slice(-KEPT_MAX));
  keep(NAME, JSON.stringify([...names.value]));
}

type Where = { requestedLat: number; requestedLng: number };
/** The name that was chosen here for the place of a session; null if there is none. */
export const nameOfPlace = ({ requestedLat, requestedLng }: Where): string | null => names.value.get(coordinates(requestedLat, requestedLng)) ?? null;
/** What a session is called: the first line of its instructions, or the name of its place; null without both. */
export const titleOf = (session: Where & { instructions: string | null }): string | null => session.instructions?.split(/[.\n]/)[0] || nameOfPlace(session);
/** The name and the coordinates of a session's place, or the coordinates alone. */
export function placeOf(session: Where): string {
  const at = point(session.requestedLat, session.requestedLng);
  const name = nameOfPlace(session);
  return name === null ? at : `${name} · ${at}`;
}
/** What was asked for and where, as far as both have words. */
export const calledIn = (session: Where & { instructions: string | null }): string =>
  [...new Set([titleOf(session), nameOfPlace(session)])].filter(Boolean).join(" · ") || placeOf(session);
