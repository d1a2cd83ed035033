// Numbers, times and places as people read them.
import { serverNow } from "./api";
import { isFromRight, leftToRight, locale, t } from "./strings";

/** Micro-USDC as USDC: at least two decimals, and as many as the amount needs. */
export function usdc(micro: string | bigint, isSigned = false): string {
  const value = BigInt(micro);
  const whole = value < 0n ? -value : value;
  const text = new Intl.NumberFormat(locale(), { minimumFractionDigits: 2, maximumFractionDigits: 6 }).format(
    `${whole / 1_000_000n}.${String(whole % 1_000_000n).padStart(6, "0")}` as Intl.StringNumericLiteral,
  );
  const sign = value < 0n ? "−" : isSigned ? "+" : "";
  return leftToRight(`${sign}${text}\u00a0USDC`);
}

/** An amount to compare at a glance: at most three digits. */
export const roughly = (micro: bigint): string =>
  leftToRight(`${new Intl.NumberFormat(locale(), { maximumSignificantDigits: 3 }).format(Number(micro) / 1_000_000)}\u00a0USDC`);

/** An amount below one USDC in whole cents, or in two digits below one cent; else nothing. */
export function inCents(micro: bigint): string {
  const cents = Number(micro) / 10_000;
  if (cents === 0 || cents >= 100) return "";
  return t("aboutCents", { cents: new Intl.NumberFormat(locale(), cents < 1 ? { maximumSignificantDigits: 2 } : { maximumFractionDigits: 0 }).format(cents) });
}

/** A factor of a price as its effect: "+19 %". */
export const effect = (factor: number): string =>
  leftToRight(new Intl.NumberFormat(locale(), { style: "percent", signDisplay: "exceptZero", maximumFractionDigits: 1 }).format(factor - 1));

/** What remains for the operator of a charge, as the contract divides it: the fee is rounded down. */
export const withoutFee = (micro: string | bigint, feeBps: number): bigint => BigInt(micro) - (BigInt(micro) * BigInt(feeBps)) / 10_000n;

/** A typed amount of USDC in micro-USDC; null if it is not one, or if its sign may divide thousands: "1,000" in English, "1.000" in German. */
export function microOf(text: string): bigint | null {
  const match = /^\s*(\d{1,12})(?:([.,])(\d{0,6}))?\s*$/.exec(text);
  const decimal = new Intl.NumberFormat(locale()).formatToParts(1.5).find(({ type }) => type === "decimal")?.value;
  const isGrouped = match?.[2] !== decimal && match?.[3]?.length === 3 && match[1] !== "0";
  return match === null || isGrouped ? null : BigInt(match[1] ?? "0") * 1_000_000n + BigInt((match[3] ?? "").padEnd(6, "0"));
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
  new Intl.DateTimeFormat(locale(), { dateStyle: "medium", timeStyle: "short" }).format(new Date(iso));
/** A time that is compared with logs and commands: in UTC, and it says so. */
export const dateTimeUtc = (iso: string): string =>
  leftToRight(`${new Intl.DateTimeFormat(locale(), { dateStyle: "medium", timeStyle: "short", timeZone: "UTC" }).format(new Date(iso))}\u00a0UTC`);
export const timeOf = (iso: string): string =>
  new Intl.DateTimeFormat(locale(), { timeStyle: "medium" }).format(new Date(iso));

const LATELY_MS = 60_000;
/** When a key or a link was last used. The server learns it some seconds later, so within a minute it is not told exactly. */
export function used(lastUsedAt: string | null): string {
  if (lastUsedAt === null) return t("neverUsed");
  return serverNow() - Date.parse(lastUsedAt) < LATELY_MS ? t("usedLately") : t("lastUsed", { time: dateTime(lastUsedAt) });
}

const MONTHS_MAX = 24;
/** Months in UTC as YYYY-MM, the newest first, since the workspace was made. */
export function monthsSince(createdAt: string, nowMs: number): string[] {
  const first = createdAt.slice(0, 7);
  const [year, month] = [new Date(nowMs).getUTCFullYear(), new Date(nowMs).getUTCMonth()];
  const all = Array.from({ length: MONTHS_MAX }, (_, back) => new Date(Date.UTC(year, month - back)).toISOString().slice(0, 7));
  return all.filter((each) => each >= first);
}

/** Coordinates as they are typed. */
export const coordinates = (lat: number, lng: number): string => `${lat.toFixed(5)}, ${lng.toFixed(5)}`;
/** Coordinates within a text. */
export const point = (lat: number, lng: number): string => leftToRight(coordinates(lat, lng));

/** The position of a picture or a clip: latitude, longitude and accuracy, or that there is none. */
export const positionOf = (location: string): string =>
  location === "unknown" ? t("positionUnknown") : leftToRight(location.split(";")[0]?.replace(",", ", ") ?? "");

export const short = (address: string): string => leftToRight(`${address.slice(0, 6)}…${address.slice(-4)}`);

const EARTH_M = 6_371_008.8;
export function distanceM(aLat: number, aLng: number, bLat: number, bLng: number): number {
  const rad = Math.PI / 180;
  const h =
    Math.sin(((bLat - aLat) * rad) / 2) ** 2 +
    Math.cos(aLat * rad) * Math.cos(bLat * rad) * Math.sin(((bLng - aLng) * rad) / 2) ** 2;
  return 2 * EARTH_M * Math.asin(Math.sqrt(h));
}

/** Several texts in one line. */
export const listed = (texts: readonly string[]): string => texts.join(isFromRight() ? "، " : ", ");

export const metres = (value: number): string => {
  const [metre, kilometre] = isFromRight() ? ["م", "كم"] : ["m", "km"];
  return value < 1000 ? `${Math.round(value)}\u00a0${metre}` : `${new Intl.NumberFormat(locale(), { maximumFractionDigits: 1 }).format(value / 1000)}\u00a0${kilometre}`;
};
