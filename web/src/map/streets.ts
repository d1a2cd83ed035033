// Streets from one PMTiles file of this server: vector tiles, drawn on a canvas. Loaded when the server has such a file.
import * as L from "leaflet";
import { leafletLayer } from "protomaps-leaflet";
import { language } from "../strings";

// The library takes Leaflet from the page's global `L`.
Object.assign(globalThis, { L });

export interface StreetFile {
  url: string;
  /** West, south, east, north. */
  bounds: readonly [number, number, number, number];
  minZoom: number;
  maxZoom: number;
}

const isDark = (): boolean => {
  const { theme } = document.documentElement.dataset;
  return theme === "dark" || (theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
};

export function streetLayer(file: StreetFile): L.GridLayer {
  const [west, south, east, north] = file.bounds;
  const layer = leafletLayer({
    url: new URL(file.url, location.href).href,
    flavor: isDark() ? "dark" : "light",
    lang: language.value,
    maxDataZoom: file.maxZoom,
    minZoom: file.minZoom,
    bounds: [[south, west], [north, east]],
    className: "map-streets",
    attribution: "", // the map states the credit of the file
  } as Parameters<typeof leafletLayer>[0]) as unknown as L.GridLayer & { backgroundColor?: string };
  layer.backgroundColor = "transparent"; // around the area of the file, the built-in map goes on
  return layer;
}
