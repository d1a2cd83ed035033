// Streets by name, where the server has a file of them. They are read from the tiles around a town when somebody types one.
import { mapFiles } from "../map/files";
import type { NamedLine, StreetFile } from "../map/streets";
import { plain, search, type City, type Suggestion } from "./search";

interface Point {
  lat: number;
  lng: number;
}
/** A street that a text may mean, and around which point it is looked for. */
export interface Wanted {
  /** The name of the street as names are compared, without the house number. */
  key: string;
  /** The same with its number, which may be part of the name. */
  whole: string;
  /** The name of its town, to be shown; empty where the file has none. */
  town: string;
  centre: Point;
}

/** Zoom of the tiles that are read: the names of small streets are in them. */
const ZOOM = 14;
/** Tiles to each side of the town's centre: 14 km at the equator, 9 km in the middle of Europe. */
const RINGS = 6;
const KEY_FROM = 3;
const TILES_KEPT = 2_000;
const HOUSE_NUMBER = /[\s,]+\d+\s?\p{L}?$/u;

/** The town is the part after a comma, or else the last or first words; where none is named it is the largest of the file. */
export function wantedStreets(all: readonly City[], file: StreetFile, text: string): Wanted[] {
  const [west, south, east, north] = file.bounds;
  const towns = all.filter(({ lat, lng }) => west <= lng && lng <= east && south <= lat && lat <= north);
  const found: Wanted[] = [];
  for (const [street, town] of partsOf(text)) {
    const [key, whole] = keysOf(street);
    const [at] = town.length < KEY_FROM ? [] : search(towns, town, 1);
    if (key.length >= KEY_FROM && at !== undefined && at.isAlike !== true) found.push({ key, whole, town: at.label, centre: at });
  }
  const [key, whole] = keysOf(text);
  if (found.length > 0 || key.length < KEY_FROM || /,.*\p{L}/u.test(text)) return found;
  const [largest] = towns;
  const middle = { lat: (south + north) / 2, lng: (west + east) / 2 };
  return [{ key, whole, town: largest === undefined ? "" : (search([largest], largest.name, 1)[0]?.label ?? ""), centre: largest ?? middle }];
}

const keysOf = (street: string): [string, string] => [plain(street.replace(HOUSE_NUMBER, "")), plain(street.replace(/,/g, " "))];

/** Every reading of a text as a street and a town. */
function partsOf(text: string): [string, string][] {
  const [street = "", ...after] = text.split(",");
  if (after.length > 0) return [[street, after.filter((each) => /\p{L}/u.test(each)).join(",").trim()]];
  const words = text.trim().split(/\s+/);
  const parts: [string, string][] = [];
  for (let count = 1; count < words.length; count += 1) parts.push([words.slice(0, -count).join(" "), words.slice(-count).join(" ")], [words.slice(count).join(" "), words.slice(0, count).join(" ")]);
  return parts;
}

/** Streets whose name begins with the text, the whole name and the nearest to the town's centre first. Stops when `isOver` says so. */
export async function searchStreets(all: readonly City[], text: string, count: number, isOver: () => boolean): Promise<Suggestion[]> {
  const { streets: file } = await mapFiles();
  if (file === null) return [];
  const { namedLines } = await import("../map/streets");
  for (const { key, whole, town, centre } of wantedStreets(all, file, text)) {
    const found = new Map<string, NamedLine & { key: string }>();
    for (const ring of ringsAround(centre, Math.min(ZOOM, file.maxZoom))) {
      for (const each of (await Promise.all(ring.map((tile) => linesOf(tile, () => namedLines(file, ...tile))))).flat())
        if (each.key.startsWith(key) && !found.has(each.key)) found.set(each.key, each);
      if (isOver()) return [];
      if (found.has(whole) || found.has(key) || found.size >= count) break;
    }
    const best = found.get(whole) ?? found.get(key);
    const sorted = [...(best === undefined ? [] : [best]), ...[...found.values()].filter((each) => each !== best)];
    if (sorted.length > 0) return sorted.slice(0, count).map(({ name, lat, lng }) => ({ label: [name, town].filter((each) => each !== "").join(", "), lat, lng }));
  }
  return [];
}

type Tile = readonly [z: number, x: number, y: number];
const kept = new Map<string, Promise<readonly (NamedLine & { key: string })[]>>();

/** The streets of a tile. A tile that did not arrive is asked for again at the next search. */
function linesOf(tile: Tile, read: () => Promise<readonly NamedLine[]>): Promise<readonly (NamedLine & { key: string })[]> {
  const id = tile.join("/");
  let lines = kept.get(id);
  if (lines === undefined) {
    if (kept.size >= TILES_KEPT) kept.clear();
    lines = read().then((found) => found.map((each) => ({ ...each, key: plain(each.name) })), () => (kept.delete(id), []));
    kept.set(id, lines);
  }
  return lines;
}

/** The tile of a point, then the squares of tiles around it. */
function ringsAround({ lat, lng }: Point, z: number): Tile[][] {
  const across = 2 ** z;
  const radians = (lat * Math.PI) / 180;
  const column = Math.floor(((lng + 180) / 360) * across);
  const row = Math.floor(((1 - Math.log(Math.tan(radians) + 1 / Math.cos(radians)) / Math.PI) / 2) * across);
  return Array.from({ length: RINGS + 1 }, (_, ring) => {
    const tiles: Tile[] = [];
    for (let x = column - ring; x <= column + ring; x += 1)
      for (let y = row - ring; y <= row + ring; y += 1)
        if (Math.max(Math.abs(x - column), Math.abs(y - row)) === ring && y >= 0 && y < across) tiles.push([z, (x + across) % across, y]);
    return tiles;
  });
}
