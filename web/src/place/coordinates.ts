// Coordinates as people write them and maps link to them.
import { language } from "../strings";
import { plusCode } from "./plus_code";

export interface Coordinates {
  lat: number;
  lng: number;
}

const NUMBER = String.raw`\d{1,3}(?:[.,]\d+)?`;
const PART = String.raw`\d{1,2}(?:[.,]\d+)?`;
/** Degrees, then minutes and seconds, each with or without its mark. */
const ANGLE = String.raw`([-+]?${NUMBER})\s*°?(?:\s*(?<=[\s°])(${PART})\s*'?(?:\s*(?<=[\s'])(${PART})\s*"?)?)?\s*`;
const HEMISPHERE = "([NSEWO])";
const AFTER = new RegExp(`^${ANGLE}${HEMISPHERE}[\\s,;/]*${ANGLE}${HEMISPHERE}$`, "i");
const BEFORE = new RegExp(`^${HEMISPHERE}\\s*${ANGLE}[\\s,;/]*${HEMISPHERE}\\s*${ANGLE}$`, "i");
const MARKED = new RegExp(`^(?=.*°)${ANGLE}[\\s,;/]+${ANGLE}$`);
const DECIMAL = String.raw`[-+]?\d{1,3}(?:\.\d+)?`;
const PAIR = new RegExp(String.raw`^\(?\s*(${DECIMAL})\s*[,;/\s]\s*(${DECIMAL})\s*\)?$`);
const DECIMAL_COMMAS = /^([-+]?\d{1,3},\d+)\s*[;,/\s]\s*([-+]?\d{1,3},\d+)$/;
/** The marker of a link comes before the middle of the map that it shows. */
const LINKS = [
  new RegExp(`!3d(${DECIMAL})!4d(${DECIMAL})`),
  new RegExp(`[?&]mlat=(${DECIMAL})&mlon=(${DECIMAL})`),
  new RegExp(String.raw`(?:[?&](?:q|query|ll|sll|coordinate|daddr|destination|center|cp)=(?:loc:)?|/(?:place|search|dir)/+|^geo:)(${DECIMAL})[,~]\s*\+?(${DECIMAL})`),
  new RegExp(`@(${DECIMAL}),(${DECIMAL})`),
  new RegExp(`#map=[\\d.]+/(${DECIMAL})/(${DECIMAL})`),
];
const SHORT_LINK = /^https?:\/\/(?:maps\.app\.goo\.gl|goo\.gl|g\.co|osm\.org\/go|maps\.apple)\//;

/** Marks of the writing direction, which copied texts have. */
const DIRECTION_MARKS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** Links without coordinates in them: only the map's own server knows the place. */
export const isShortLink = (text: string): boolean => SHORT_LINK.test(text.trim());

/** A place as people write it, or as maps link to it; null if it is not a place on Earth. */
export function parsePoint(text: string): Coordinates | null {
  const found = readNumbers(text);
  return found !== null && isOnEarth(found) ? found : null;
}

/** Whether a text has the form of coordinates whose numbers are too large. */
export function isOffEarth(text: string): boolean {
  const found = readNumbers(text);
  return found !== null && !isOnEarth(found);
}

const isOnEarth = ({ lat, lng }: Coordinates): boolean => Math.abs(lat) <= 90 && Math.abs(lng) <= 180;

function readNumbers(text: string): Coordinates | null {
  const trimmed = text
    .replace(DIRECTION_MARKS, "")
    .replace(/[٠-٩]/g, (digit) => String("٠١٢٣٤٥٦٧٨٩".indexOf(digit)))
    .replace(/٫/g, ".")
    .replace(/،/g, ",")
    .trim()
    .replace(/[−–]/g, "-")
    .replace(/[º˚]/g, "°")
    .replace(/[’‘′]/g, "'")
    .replace(/''|[”“″]/g, '"');
  return /^(?:https?|geo):/i.test(trimmed) ? linked(trimmed) : (plusCode(trimmed) ?? hemispheres(trimmed) ?? pair(trimmed));
}

function linked(link: string): Coordinates | null {
  const text = decoded(link);
  for (const form of LINKS) {
    const match = form.exec(text);
    if (match !== null) return { lat: numberOf(match[1]), lng: numberOf(match[2]) };
  }
  return null;
}

function decoded(link: string): string {
  try {
    return decodeURIComponent(link);
  } catch {
    return link;
  }
}

function hemispheres(text: string): Coordinates | null {
  const after = AFTER.exec(text);
  const [, ...parts] = after ?? BEFORE.exec(text) ?? [];
  if (parts.length === 0) return null;
  const [first, second] = after === null ? [parts.slice(1, 4), parts.slice(5, 8)] : [parts.slice(0, 3), parts.slice(4, 7)];
  const [one, two] = (after === null ? [parts[0], parts[4]] : [parts[3], parts[7]]).map((each) => each?.toUpperCase() ?? "");
  const [a, b] = [angle(first), angle(second)];
  if (a === null || b === null || one === undefined || two === undefined) return null;
  // O is east in German and west in the Romance languages: a guess could send somebody to the other side of Greenwich.
  if (language.value !== "de" && [one, two].includes("O")) return null;
  const signed = (value: number, hemisphere: string): number => Math.abs(value) * ("SW".includes(hemisphere) ? -1 : 1);
  const isLatitude = (hemisphere: string): boolean => "NS".includes(hemisphere);
  if (isLatitude(one) === isLatitude(two)) return null;
  return isLatitude(one) ? { lat: signed(a, one), lng: signed(b, two) } : { lat: signed(b, two), lng: signed(a, one) };
}

function pair(text: string): Coordinates | null {
  const marked = MARKED.exec(text);
  const match = DECIMAL_COMMAS.exec(text) ?? PAIR.exec(text);
  const [lat, lng] = marked !== null ? [angle(marked.slice(1, 4)), angle(marked.slice(4, 7))] : match !== null ? [numberOf(match[1]), numberOf(match[2])] : [null, null];
  return lat == null || lng == null ? null : { lat, lng };
}

/** Degrees of degrees, minutes and seconds; null if there are 60 of a part. */
function angle([degrees, minutes, seconds]: readonly (string | undefined)[]): number | null {
  const [m, s] = [numberOf(minutes), numberOf(seconds)];
  if (m >= 60 || s >= 60) return null;
  const size = Math.abs(numberOf(degrees)) + m / 60 + s / 3600;
  return degrees?.startsWith("-") ? -size : size;
}

const numberOf = (text: string | undefined): number => Number((text ?? "0").replace(",", "."));
