// What the host of this server gave for the map and the search of places.
import type { StreetFile } from "./streets";

export interface MapFiles {
  /** Pictures of another server. */
  tilesUrl: string | null;
  attribution: string;
  /** The file of this server. */
  streets: StreetFile | null;
  /** URL of the postcodes. */
  postcodes: string | null;
}

let loading: Promise<MapFiles> | null = null;
/** Loaded once; a failure is tried again at the next call. */
export function mapFiles(): Promise<MapFiles> {
  loading ??= fetch("/console/map.json")
    .then(async (answer) => (await answer.json()) as MapFiles)
    .catch((error: unknown) => {
      loading = null;
      throw error;
    });
  return loading;
}
