// Writes the data of the map and of the places where the sources import it.
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { arabicCities, cities, places, world } from "./geography.mjs";

const sources = join(fileURLToPath(new URL(".", import.meta.url)), "src");
const made = {
  "map/world.gen.json": world(),
  "map/cities.gen.json": cities(),
  "map/cities_ar.gen.json": arabicCities(),
  "place/places.gen.txt": places(),
};
for (const [name, data] of Object.entries(made)) {
  const path = join(sources, name);
  if (existsSync(path) && Buffer.from(data).equals(readFileSync(path))) continue;
  // Another build may read it meanwhile.
  writeFileSync(`${path}.${process.pid}`, data);
  renameSync(`${path}.${process.pid}`, path);
}
