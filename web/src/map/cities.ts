// The largest cities of the world, for names on the map and for the search by name. Data: GeoNames, CC BY 4.0.
import file from "./cities.gen.json";
import { language } from "../strings";

export interface City {
  name: string;
  country: string;
  lat: number;
  lng: number;
}

let loading: Promise<readonly City[]> | null = null;

/** All cities, largest first. Loaded once; a failure is tried again at the next call. */
export function cities(): Promise<readonly City[]> {
  loading ??= fetch(file)
    .then((answer) => answer.json())
    .then((rows: [string, string, number, number][]) => rows.map(([name, country, lat, lng]) => ({ name, country, lat, lng })))
    .catch((error: unknown) => {
      loading = null;
      throw error;
    });
  return loading;
}

/** The city with the name of its country, in the language of the console. */
export const labelOf = (city: City): string => `${city.name}, ${new Intl.DisplayNames(language.value, { type: "region" }).of(city.country) ?? city.country}`;

const plain = (text: string): string => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase().trim();

/** Cities whose label begins with the text, largest first; accents and case do not matter. */
export function search(all: readonly City[], text: string, count: number): City[] {
  const wanted = plain(text);
  if (wanted.length < 2) return [];
  const found: City[] = [];
  for (const city of all) {
    if (!plain(city.name).startsWith(wanted.split(",")[0] ?? "") || !plain(labelOf(city)).startsWith(wanted)) continue;
    found.push(city);
    if (found.length === count) break;
  }
  return found;
}
