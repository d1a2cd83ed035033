// Streets from one PMTiles file of this server: vector tiles, drawn on a canvas. Loaded when the server has such a file.
import * as L from "leaflet";
import { PmtilesSource, leafletLayer } from "protomaps-leaflet";
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

/** A street with its name, and a point on it. */
export interface NamedLine {
  name: string;
  lat: number;
  lng: number;
}

/** Layers with names of streets, in the schemas of Protomaps, OpenMapTiles and Shortbread. */
const NAMED = ["roads", "transportation_name", "street_labels"];
const TILE_PX = 256;
let source: PmtilesSource | null = null;

/** The streets with a name in a tile of the file; none in a tile that it lacks. */
export async function namedLines(file: StreetFile, z: number, x: number, y: number): Promise<NamedLine[]> {
  source ??= new PmtilesSource(new URL(file.url, location.href).href, false);
  const layers = await source.get({ z, x, y }, TILE_PX);
  const lines: NamedLine[] = [];
  for (const { props, geom } of NAMED.flatMap((each) => layers.get(each) ?? [])) {
    const { name } = props;
    const [line = []] = geom;
    const middle = line[Math.floor(line.length / 2)];
    if (typeof name !== "string" || middle === undefined) continue;
    const north = Math.PI * (1 - (2 * (y + middle.y / TILE_PX)) / 2 ** z);
    lines.push({ name, lat: (Math.atan(Math.sinh(north)) * 180) / Math.PI, lng: ((x + middle.x / TILE_PX) / 2 ** z) * 360 - 180 });
  }
  return lines;
}
