// Cities and towns by name: in English, in their own language and script. Data: GeoNames, CC BY 4.0; loaded when somebody types a name.
import file from "./places.gen.txt";
import { listed } from "../format";
import { language } from "../strings";
import { recover, shortCode } from "./plus_code";

export interface City {
  name: string;
  /** Other names, for example in the script of the country. */
  others: readonly string[];
  region: string;
  country: string;
  lat: number;
  lng: number;
  /** All names as they are compared. */
  keys: readonly string[];
}
export interface Suggestion {
  label: string;
  lat: number;
  lng: number;
  /** Whether the text is not its name, but differs from it as a typing error does. */
  isAlike?: boolean;
}

const SCALE = 1000;
/** Separates the words of a name, as in "Berlin Germany" and "Springfield, Illinois". */
const WORDS = /[\s,]+/;

/** Regions, an empty line, and places from the largest to the smallest: name, region, latitude, longitude, other names. */
export function readPlaces(text: string): City[] {
  const [head = "", body = ""] = text.split("\n\n");
  const regions = head.split("\n").map((line) => line.split("\t"));
  return body.split("\n").map((line) => {
    const [name = "", at = "", lat = "", lng = "", rest = ""] = line.split("\t");
    const [country = "", region = ""] = regions[parseInt(at, 36)] ?? [];
    const others = rest === "" ? [] : rest.split("|");
    return { name, others, region, country, lat: Number(lat) / SCALE, lng: Number(lng) / SCALE, keys: [name, ...others].map(plain) };
  });
}

let loading: Promise<readonly City[]> | null = null;
/** All places. Loaded once; a failure is tried again at the next call. */
export function places(): Promise<readonly City[]> {
  loading ??= fetch(file)
    .then((answer) => {
      if (!answer.ok) throw new Error(String(answer.status));
      return answer.text();
    })
    .then(readPlaces)
    .catch((error: unknown) => {
      loading = null;
      throw error;
    });
  return loading;
}

/** A text as names are compared: without accents, case and punctuation. */
export function plain(text: string): string {
  return text.normalize("NFKD").replace(/\p{M}/gu, "").normalize("NFC").toLowerCase().replace(/ß/g, "ss").replace(/[-'’./()\s]+/g, " ").trim();
}

/** Places whose name begins with the text, with the whole name first, then the largest. Region or country may follow the name. */
export function search(all: readonly City[], text: string, count: number): Suggestion[] {
  const short = shortCode(text);
  if (short !== null)
    return search(all, short.near, count).map((each) => ({ label: `${text.trim().split(WORDS)[0] ?? ""} ${each.label}`, ...recover(short.code, each) }));
  const found = named(all, text, count);
  return found.length > 0 ? suggested(found) : suggested(alike(all, text, count)).map((each) => ({ ...each, isAlike: true }));
}

function suggested(found: readonly Match[]): Suggestion[] {
  const labels = found.map(({ city, key }) => labelOf(city, key));
  return found.map(({ city: { lat, lng } }, at) => {
    const label = labels[at] ?? "";
    const isTwice = labels.filter((each) => each === label).length > 1;
    return { label: isTwice ? `${label} (${lat.toFixed(2)}, ${lng.toFixed(2)})` : label, lat, lng };
  });
}

interface Match {
  city: City;
  /** Which of its names the text begins. */
  key: number;
}

function named(all: readonly City[], text: string, count: number): Match[] {
  for (const [name, area] of readings(text)) {
    const whole: Match[] = [];
    const begun: Match[] = [];
    for (const city of all) {
      const exact = city.keys.indexOf(name);
      const key = exact >= 0 ? exact : city.keys.findIndex((each) => each.startsWith(name));
      if (key < 0 || !lies(city, area)) continue;
      (exact >= 0 ? whole : begun).push({ city, key });
      if (whole.length === count) break;
    }
    const found = [...whole, ...begun].slice(0, count);
    if (found.length > 0) return found;
  }
  return wordsOf(all, plain(text), count);
}

/** Places with these words in their name, in order: "Frankfurt/Main" for Frankfurt am Main. */
function wordsOf(all: readonly City[], text: string, count: number): Match[] {
  const words = text.split(" ");
  if (words.length < 2) return [];
  const found: Match[] = [];
  for (const city of all) {
    const key = city.keys.findIndex((each) => {
      const own = each.split(" ");
      let at = -1;
      return own[0] === words[0] && words.every((word) => (at = own.findIndex((part, place) => place > at && part.startsWith(word))) >= 0);
    });
    if (key >= 0 && found.push({ city, key }) === count) break;
  }
  return found;
}

const ALIKE_FROM = 4;
/** Letters of a name from which two errors are forgiven, where it is one before. */
const TWO_FROM = 8;

/**
 * The places that a part of the text names, as Berlin for "Berlin Mitte"; else the largest whose name differs from it by a typing error,
 * the nearest names first, of which the first letter must be right; else Berlin for "Brandenburg Gate, Berlin".
 */
function alike(all: readonly City[], text: string, count: number): Match[] {
  for (const [name, area] of readings(text)) {
    const found = area === "" ? [] : all.map((city): Match => ({ city, key: city.keys.indexOf(name) })).filter(({ key }) => key >= 0);
    if (found.length > 0) return found.slice(0, count);
  }
  for (const [name, area] of readings(text)) {
    if (name.length < ALIKE_FROM) continue;
    const most = name.length < TWO_FROM ? 1 : 2;
    const found: Match[][] = Array.from({ length: most + 1 }, () => []);
    for (const city of all) {
      let best = most + 1;
      let key = -1;
      city.keys.forEach((each, at) => {
        if (each[0] !== name[0] || Math.abs(each.length - name.length) > most) return;
        const errors = errorsBetween(name, each, most);
        if (errors < best) [best, key] = [errors, at];
      });
      if (key >= 0 && lies(city, area)) found[best]?.push({ city, key });
    }
    const nearest = found.flat().slice(0, count);
    if (nearest.length > 0) return nearest;
  }
  const comma = text.indexOf(",");
  return comma > 0 ? named(all, text.slice(comma + 1), count) : [];
}

/** Letters that are missing, too many, wrong or exchanged with their neighbour (optimal string alignment); above `most`: more than `most`. */
function errorsBetween(one: string, other: string, most: number): number {
  let before: number[] = [];
  let last = Array.from({ length: other.length + 1 }, (_, at) => at);
  for (let row = 1; row <= one.length; row++) {
    const next = [row];
    for (let at = 1; at <= other.length; at++) {
      const isSame = one[row - 1] === other[at - 1];
      let least = Math.min(last[at]! + 1, next[at - 1]! + 1, last[at - 1]! + (isSame ? 0 : 1));
      if (row > 1 && at > 1 && one[row - 1] === other[at - 2] && one[row - 2] === other[at - 1]) least = Math.min(least, before[at - 2]! + 1);
      next.push(least);
    }
    if (Math.min(...next) > most) return most + 1;
    [before, last] = [last, next];
  }
  return last[other.length]!;
}

/** What people write for the name of a large city. */
const SHORT: Record<string, string> = { nyc: "new york", la: "los angeles", sf: "san francisco" };

/** The name and the area that a text may mean, the likeliest first. One letter is a name in the scripts of China and Japan only. */
function readings(text: string): [string, string][] {
  const comma = text.indexOf(",");
  const whole = plain(text);
  if (whole.length < 2 && !/[\p{Script=Han}\p{Script=Hangul}]/u.test(whole)) return [];
  if (comma >= 0) return comma === 0 ? [] : spelt([[plain(text.slice(0, comma)), plain(text.slice(comma + 1).replace(/,/g, " "))]]);
  const words = whole.split(" ");
  const splits = words.map((_, at): [string, string] => [words.slice(0, words.length - at).join(" "), words.slice(words.length - at).join(" ")]);
  const [first = "", second] = words;
  return spelt(words.length === 2 && second !== undefined ? [...splits, [second, first]] : splits);
}

/** Each reading with the other ways to write its name: "NYC", and "St Pölten" for "Sankt Pölten". */
const spelt = (read: readonly [string, string][]): [string, string][] =>
  read.flatMap(([name, area]): [string, string][] => {
    const short = SHORT[name];
    const holy = name.startsWith("st ") ? ["sankt", "saint"].map((word): [string, string] => [word + name.slice(2), area]) : [];
    return [...(short === undefined ? [] : [[short, area] as [string, string]]), [name, area], ...holy];
  });

function lies(city: City, area: string): boolean {
  if (area === "") return true;
  const country = countriesOf(city.country);
  const names = [city.region, ...country, `${city.region} ${countryIn(city.country, language.value)}`];
  return names.some((each) => plain(each).startsWith(area)) || (city.country === "US" && plain(STATES[area.replaceAll(" ", "")] ?? "?") === plain(city.region));
}

/** What people write for a country beside its code and its names. */
const ALSO: Record<string, readonly string[]> = {
  AE: ["UAE", "Emirates"],
  CZ: ["Czech Republic"],
  GB: ["UK", "Great Britain", "Britain"],
  NL: ["Holland", "The Netherlands"],
  US: ["USA", "America"],
  TR: ["Turkey"],
};
const STATES: Record<string, string> = Object.fromEntries(
  ("al Alabama,ak Alaska,az Arizona,ar Arkansas,ca California,co Colorado,ct Connecticut,de Delaware,dc District of Columbia,fl Florida,ga Georgia,hi Hawaii,id Idaho,il Illinois,in Indiana,ia Iowa,ks Kansas,ky Kentucky," +
    "la Louisiana,me Maine,md Maryland,ma Massachusetts,mi Michigan,mn Minnesota,ms Mississippi,mo Missouri,mt Montana,ne Nebraska,nv Nevada,nh New Hampshire,nj New Jersey,nm New Mexico,ny New York,nc North Carolina," +
    "nd North Dakota,oh Ohio,ok Oklahoma,or Oregon,pa Pennsylvania,ri Rhode Island,sc South Carolina,sd South Dakota,tn Tennessee,tx Texas,ut Utah,vt Vermont,va Virginia,wa Washington,wv West Virginia,wi Wisconsin,wy Wyoming"
  ).split(",").map((each) => [each.slice(0, 2), each.slice(3)]),
);

const countriesOf = (code: string): string[] => [code, countryIn(code, language.value), countryIn(code, "en"), ...(ALSO[code] ?? [])];

const displays = new Map<string, Intl.DisplayNames>();
export function countryIn(code: string, tongue: string): string {
  const known = displays.get(tongue) ?? new Intl.DisplayNames(tongue, { type: "region" });
  displays.set(tongue, known);
  return known.of(code) ?? code;
}

const ARABIC = /^[\p{Script=Arabic}\s-]+$/u;

/** The name that was found and the usual one, with region and country. Names of regions are known in Latin letters only. */
function labelOf({ name, others, region, country }: City, key: number): string {
  const arabic = language.value === "ar" ? others.find((each) => ARABIC.test(each)) : undefined;
  const found = key === 0 ? name : (others[key - 1] ?? "");
  const usual = arabic ?? name;
  const own = found === usual ? found : arabic !== undefined && key === 0 ? `${usual} (${found})` : `${found} (${usual})`;
  const hasRegion = arabic === undefined && region !== "" && !plain(region).includes(plain(name));
  return listed([own, ...(hasRegion ? [region] : []), countryIn(country, language.value)]);
}
