// Where operators are online, for the part of the Earth that a map shows.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api, need, type Model } from "../api";

/** The API answers at most this many degrees each way. */
const BOX_DEGREES_MAX = 20;
const AFTER_MS = 300;
const EVERY_MS = 10_000;

type Box = readonly [number, number, number, number];
type Shown = Pick<Model["Coverage"], "items" | "cellDegrees">;

/** The coverage of the box that the map told last. A map of more than the API answers shows the last one. */
export function useCoverage(): { coverage: Shown | null; onView: (box: Box) => void } {
  const box = useSignal<Box | null>(null);
  const coverage = useSignal<Shown | null>(null);
  useEffect(() => {
    if (box.value === null) return;
    const [west, south, east, north] = [Math.max(-180, box.value[0]), Math.max(-90, box.value[1]), Math.min(180, box.value[2]), Math.min(90, box.value[3])];
    if (east - west > BOX_DEGREES_MAX || north - south > BOX_DEGREES_MAX) return;
    const query = { bbox: [west, south, east, north].map((each) => each.toFixed(4)).join(",") };
    // The map works without: coverage is also a line of the price.
    const read = (): Promise<unknown> => need(api.GET("/api/v1/coverage", { params: { query } })).then((found) => (coverage.value = found)).catch(() => undefined);
    const first = setTimeout(() => void read(), AFTER_MS);
    const again = setInterval(() => document.hidden || void read(), EVERY_MS);
    return () => (clearTimeout(first), clearInterval(again));
  }, [box.value]);
  return { coverage: coverage.value, onView: (shown) => (box.value = shown) };
}

/** Operators online in the cell of a place. */
export const operatorsAt = ({ items, cellDegrees }: Shown, at: { lat: number; lng: number }): number =>
  items.find(({ south, west }) => at.lat >= south && at.lat < south + cellDegrees && at.lng >= west && at.lng < west + cellDegrees)?.operators ?? 0;
