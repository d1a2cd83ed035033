// Where operators are online, for the part of the Earth that a map shows.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api, need, type Model } from "../api";
import { distanceM } from "../format";

/** The API answers at most this many degrees each way. */
const BOX_DEGREES_MAX = 20;
const AFTER_MS = 300;
const EVERY_MS = 10_000;

type Box = readonly [number, number, number, number];
type Shown = Pick<Model["Coverage"], "items" | "cellDegrees" | "everywhere">;

const isTooWide = ([west, south, east, north]: Box): boolean => east - west > BOX_DEGREES_MAX || north - south > BOX_DEGREES_MAX;

/** The coverage of the box that the map told last. A map of more than the API answers shows the last one, and is too wide. */
export function useCoverage(): { coverage: Shown | null; isWide: boolean; onView: (box: Box) => void } {
  const box = useSignal<Box | null>(null);
  const coverage = useSignal<Shown | null>(null);
  useEffect(() => {
    if (box.value === null) return;
    if (isTooWide(box.value)) return;
    const query = { bbox: box.value.map((each) => each.toFixed(4)).join(",") };
    // The map works without: coverage is also a line of the price.
    const read = (): Promise<unknown> => need(api.GET("/api/v1/coverage", { params: { query } })).then((found) => (coverage.value = found)).catch(() => undefined);
    const first = setTimeout(() => void read(), AFTER_MS);
    const again = setInterval(() => document.hidden || void read(), EVERY_MS);
    return () => (clearTimeout(first), clearInterval(again));
  }, [box.value]);
  const onView = ([west, south, east, north]: Box): void => {
    box.value = [Math.max(-180, west), Math.max(-90, south), Math.min(180, east), Math.min(90, north)];
  };
  return { coverage: coverage.value, isWide: box.value !== null && isTooWide(box.value), onView };
}

export interface Cell {
  south: number;
  west: number;
  degrees: number;
}

/** The cell with operators online that is nearest to a place, of those that the API shows at once; null if there is none. */
export async function nearestCell(at: { lat: number; lng: number }): Promise<Cell | null> {
  const half = BOX_DEGREES_MAX / 2 - 0.1; // the API widens the box to whole cells
  const box = [Math.max(-180, at.lng - half), Math.max(-90, at.lat - half), Math.min(180, at.lng + half), Math.min(90, at.lat + half)];
  const { items, cellDegrees } = await need(api.GET("/api/v1/coverage", { params: { query: { bbox: box.map((each) => each.toFixed(4)).join(",") } } }));
  const away = ({ south, west }: { south: number; west: number }): number => distanceM(at.lat, at.lng, south + cellDegrees / 2, west + cellDegrees / 2);
  const [first] = [...items].sort((a, b) => away(a) - away(b));
  return first === undefined ? null : { south: first.south, west: first.west, degrees: cellDegrees };
}

/** Operators online in the cell of a place. */
export const operatorsAt = ({ items, cellDegrees }: Pick<Shown, "items" | "cellDegrees">, at: { lat: number; lng: number }): number =>
  items.find(({ south, west }) => at.lat >= south && at.lat < south + cellDegrees && at.lng >= west && at.lng < west + cellDegrees)?.operators ?? 0;
