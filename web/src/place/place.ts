// A place as a field has it: what people read, and where that is. It is kept in this browser, so that a form can be left.
import { coordinates } from "../format";
import { parsePoint, type Coordinates } from "./coordinates";
import { keep, remembered } from "../kept";

export interface Place {
  text: string;
  /** Null as long as the text is only a name. */
  point: Coordinates | null;
}

export const typed = (text: string): Place => ({ text, point: parsePoint(text) });
export const placeAt = (lat: number, lng: number): Place => typed(coordinates(lat, lng));

/** The name that was chosen; null if the text is coordinates or a link. */
export const chosenName = ({ text, point }: Place): string | null => (point === null || parsePoint(text) !== null ? null : text);

const NAME = "place";
export const keepPlace = (place: Place): void => keep(NAME, JSON.stringify(place));
/** The place that was kept last, or an empty one. */
export function keptPlace(): Place {
  const kept = remembered(NAME);
  if (kept === null || !kept.startsWith("{")) return typed(kept ?? "");
  return JSON.parse(kept) as Place;
}
