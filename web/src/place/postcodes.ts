// Postcodes, where the server has a file of them. Data: GeoNames, CC BY 4.0; loaded when somebody types one.
import { mapFiles } from "../map/files";
import { countryIn, plain, type Suggestion } from "./search";
import { language } from "../strings";

export interface Postcode {
  country: string;
  code: string;
  name: string;
  lat: number;
  lng: number;
  /** The code as codes are compared. */
  key: string;
}

/** A postcode has a digit, and begins with it or with the one or two letters of a country or district. */
export const mayBePostcode = (text: string): boolean => /^\s*(?:\p{L}{1,2}[\s-]?)?\p{L}{0,2}\d/u.test(text);

const keyOf = (code: string): string => code.replace(/[\s-]/g, "").toUpperCase();

/** Lines of country, code, place, latitude and longitude. */
export const readPostcodes = (text: string): Postcode[] =>
  text.split("\n").map((line) => {
    const [country = "", code = "", name = "", lat = "", lng = ""] = line.split("\t");
    return { country, code, name, lat: Number(lat), lng: Number(lng), key: keyOf(code) };
  });

let loading: Promise<readonly Postcode[]> | null = null;
/** All postcodes of the server; none if it has no file. Loaded once; a failure is tried again at the next call. */
export function postcodes(): Promise<readonly Postcode[]> {
  loading ??= mapFiles()
    .then(async ({ postcodes: url }) => (url === null ? [] : readPostcodes(await (await fetch(url)).text())))
    .catch((error: unknown) => {
      loading = null;
      throw error;
    });
  return loading;
}

/** Places whose postcode begins with the text; the whole code first. A country before it, a name or country after it narrow them. */
export function searchPostcodes(all: readonly Postcode[], text: string, count: number): Suggestion[] {
  const words = text.trim().split(/[\s,]+/);
  const [, land, bare] = /^([a-z]{2})-(\d.*)$/i.exec(words[0] ?? "") ?? [];
  const first = bare ?? words[0] ?? "";
  // "SW1A 1AA" is one code of two words, "10115 Berlin" a code and a name.
  for (const [code, rest] of [[first + (words[1] ?? ""), words.slice(2)], [first, words.slice(1)]] as const) {
    const key = keyOf(code);
    const area = plain(rest.join(" "));
    const found = all.filter((each) => each.key.startsWith(key) && (land === undefined || each.country === land.toUpperCase()) && lies(each, area));
    if (found.length === 0) continue;
    const sorted = [...found.filter((each) => each.key === key), ...found.filter((each) => each.key !== key)];
    return sorted.slice(0, count).map((each) => ({ label: `${each.code} ${each.name}, ${countryIn(each.country, language.value)}`, lat: each.lat, lng: each.lng }));
  }
  return [];
}

const lies = (place: Postcode, area: string): boolean =>
  area === "" || [place.name, place.country, countryIn(place.country, language.value), countryIn(place.country, "en")].some((each) => plain(each).startsWith(area));
