// The largest cities of the world and its capitals, for names on the map. Data: GeoNames, CC BY 4.0.
import { language } from "../strings";
import file from "./cities.gen.json";
import arabicFile from "./cities_ar.gen.json";

export interface City {
  name: string;
  country: string;
  lat: number;
  lng: number;
}

const loading = new Map<string, Promise<readonly City[]>>();

/** All cities, those that a map shows first, by their names in the chosen language where they are known. Loaded once; a failure is tried again at the next call. */
export function cities(): Promise<readonly City[]> {
  const name = language.value;
  const found = loading.get(name) ?? read(name === "ar").catch((error: unknown) => {
    loading.delete(name);
    throw error;
  });
  loading.set(name, found);
  return found;
}

async function read(isArabic: boolean): Promise<readonly City[]> {
  const json = async <T>(url: string): Promise<T> => (await (await fetch(url)).json()) as T;
  const [rows, arabic] = await Promise.all([json<[string, string, number, number][]>(file), isArabic ? json<Record<number, string>>(arabicFile) : {}]);
  return rows.map(([name, country, lat, lng], at) => ({ name: (arabic as Record<number, string>)[at] ?? name, country, lat, lng }));
}
