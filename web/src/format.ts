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

/** `lat, lng` as pasted from a map; null if it is not a place on Earth. */
export function parsePoint(text: string): { lat: number; lng: number } | null {
  const match = /^\s*\(?\s*(-?\d{1,2}(?:\.\d+)?)\s*[,;\s]\s*(-?\d{1,3}(?:\.\d+)?)\s*\)?\s*$/.exec(text);
  if (match === null) return null;
  const [lat, lng] = [Number(match[1]), Number(match[2])];
  return Math.abs(lat) <= 90 && Math.abs(lng) <= 180 ? { lat, lng } : null;
}

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
