// The largest cities of the world, for names on the map. Data: GeoNames, CC BY 4.0.
import file from "./cities.gen.json";

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
