// Numbers, times and places as people read them.
import { language } from "./strings";

/** Micro-USDC as USDC: at least two decimals, and as many as the amount needs. */
export function usdc(micro: string | bigint, isSigned = false): string {
  const value = BigInt(micro);
  const whole = value < 0n ? -value : value;
  const text = new Intl.NumberFormat(language.value, { minimumFractionDigits: 2, maximumFractionDigits: 6 }).format(
    `${whole / 1_000_000n}.${String(whole % 1_000_000n).padStart(6, "0")}` as Intl.StringNumericLiteral,
  );
  const sign = value < 0n ? "−" : isSigned ? "+" : "";
  return `${sign}${text}\u00a0USDC`;
}

/** What remains for the operator of a charge, as the contract divides it: the fee is rounded down. */
export const withoutFee = (micro: string | bigint, feeBps: number): bigint => BigInt(micro) - (BigInt(micro) * BigInt(feeBps)) / 10_000n;

/** A typed amount of USDC in micro-USDC; null if it is not one. */
export function microOf(text: string): bigint | null {
  const match = /^\s*(\d{1,12})(?:[.,](\d{0,6}))?\s*$/.exec(text);
  return match === null ? null : BigInt(match[1] ?? "0") * 1_000_000n + BigInt((match[2] ?? "").padEnd(6, "0"));
}

/** Seconds as m:ss, or h:mm:ss. */
export function clock(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  const parts = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const [hours = 0, ...rest] = parts;
  const tail = rest.map((each) => String(each).padStart(2, "0")).join(":");
  return hours > 0 ? `${hours}:${tail}` : tail.replace(/^0/, "");
}

export const dateTime = (iso: string): string =>
  new Intl.DateTimeFormat(language.value, { dateStyle: "medium", timeStyle: "short" }).format(new Date(iso));
export const timeOf = (iso: string): string =>
  new Intl.DateTimeFormat(language.value, { timeStyle: "medium" }).format(new Date(iso));

export const point = (lat: number, lng: number): string => `${lat.toFixed(5)}, ${lng.toFixed(5)}`;

const NUMBER = String.raw`[-+−]?\d{1,3}(?:\.\d+)?`;
const PAIR = new RegExp(String.raw`^\(?\s*(${NUMBER})\s*[,;/\s]\s*(${NUMBER})\s*\)?$`);
const DECIMAL_COMMAS = /^([-+−]?\d{1,3}),(\d+)\s*[;,\s]\s*([-+−]?\d{1,3}),(\d+)$/;
/** The part of a map's link that has the place: `@52.5,13.4`, `q=52.5,13.4`, `#map=15/52.5/13.4`, `mlat=52.5&mlon=13.4`, `geo:52.5,13.4`. */
const LINK = new RegExp(String.raw`(?:@|[?&](?:q|ll|query|center)=|#map=[\d.]+/|[?&]mlat=|^geo:)(${NUMBER})(?:,|%2C|/|&mlon=)(${NUMBER})`, "i");
const ANGLE = String.raw`(\d{1,3}(?:\.\d+)?)\s*°\s*(?:(\d{1,2}(?:\.\d+)?)\s*['′]\s*)?(?:(\d{1,2}(?:\.\d+)?)\s*(?:"|″|'')\s*)?`;
const DEGREES = new RegExp(String.raw`^${ANGLE}([NS])[,;\s]*${ANGLE}([EWO])$`, "i");

/** A place as people write and maps link to it; null if it is not a place on Earth. */
export function parsePoint(text: string): { lat: number; lng: number } | null {
  const trimmed = text.trim();
  const commas = DECIMAL_COMMAS.exec(trimmed);
  const degrees = DEGREES.exec(trimmed);
  let found: [number, number];
  if (degrees !== null) {
    const [, ...parts] = degrees;
    const angle = (at: number): number => Number(parts[at]) + Number(parts[at + 1] ?? 0) / 60 + Number(parts[at + 2] ?? 0) / 3600;
    // O is east in German (Ost).
    found = [angle(0) * (parts[3]?.toUpperCase() === "S" ? -1 : 1), angle(4) * (parts[7]?.toUpperCase() === "W" ? -1 : 1)];
  } else if (commas !== null) {
    found = [numberOf(`${commas[1]}.${commas[2]}`), numberOf(`${commas[3]}.${commas[4]}`)];
  } else {
    const match = PAIR.exec(trimmed) ?? LINK.exec(trimmed);
    if (match === null) return null;
    found = [numberOf(match[1] ?? ""), numberOf(match[2] ?? "")];
  }
  const [lat, lng] = found;
  return Math.abs(lat) <= 90 && Math.abs(lng) <= 180 ? { lat, lng } : null;
}

const numberOf = (text: string): number => Number(text.replace("−", "-"));

export const short = (address: string): string => `${address.slice(0, 6)}…${address.slice(-4)}`;

const EARTH_M = 6_371_008.8;
export function distanceM(aLat: number, aLng: number, bLat: number, bLng: number): number {
  const rad = Math.PI / 180;
  const h =
    Math.sin(((bLat - aLat) * rad) / 2) ** 2 +
    Math.cos(aLat * rad) * Math.cos(bLat * rad) * Math.sin(((bLng - aLng) * rad) / 2) ** 2;
  return 2 * EARTH_M * Math.asin(Math.sqrt(h));
}

export const metres = (value: number): string =>
  value < 1000 ? `${Math.round(value)}\u00a0m` : `${new Intl.NumberFormat(language.value, { maximumFractionDigits: 1 }).format(value / 1000)}\u00a0km`;
