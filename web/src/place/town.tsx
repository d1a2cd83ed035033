// The name of the city that is nearest to a place, for people who read coordinates badly.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { distanceM, metres } from "../format";
import { cities, type City } from "../map/cities";
import { language, t } from "../strings";

/** A city that is farther away says little about a place. */
const NEAR_M = 50_000;

export interface Near {
  name: string;
  awayM: number;
}

/** The nearest of the cities, with the distance of its centre; null if none is within 50 km. */
export function nearestTown(all: readonly City[], lat: number, lng: number): Near | null {
  let found: Near | null = null;
  for (const city of all) {
    if (Math.abs(city.lat - lat) > 1) continue; // 111 km
    const awayM = distanceM(lat, lng, city.lat, city.lng);
    if (awayM <= (found?.awayM ?? NEAR_M)) found = { name: city.name, awayM };
  }
  return found;
}

/** A place that is nearer to the centre of its city is at the centre. */
const CENTRE_M = 50;
/** "Berlin, 600 m from its centre", or "Centre of Berlin". */
export const townText = ({ name, awayM }: Near): string =>
  awayM < CENTRE_M ? t("townCentre", { town: name }) : t("townAway", { town: name, away: metres(awayM) });

/** The nearest city in words; nothing until the cities of the map are loaded, and where none is near. */
export function Town({ lat, lng }: { lat: number; lng: number }) {
  const town = useSignal<Near | null>(null);
  useEffect(() => {
    let isOver = false;
    cities().then((all) => isOver || (town.value = nearestTown(all, lat, lng)), () => undefined); // the coordinates are enough
    return () => void (isOver = true);
  }, [lat, lng, language.value]);
  return town.value === null ? null : <span class="town">{townText(town.value)}</span>;
}
