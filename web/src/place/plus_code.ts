// Open Location Codes ("plus codes"), by the specification of version 1.0.
const DIGITS = "23456789CFGHJMPQRVWX";
const BASE = 20;
const BEFORE_PLUS = 8;
const PAIRS = 5;
const FINE_ROWS = 5;
const FINE_COLUMNS = 4;
const FULL = new RegExp(`^([2-9C][2-9CFGHJMPQRV][${DIGITS}]{6})\\+([${DIGITS}]{2,7})?$`, "i");
const SHORT = new RegExp(`^([${DIGITS}]{4})\\+([${DIGITS}]{2,7})[\\s,]+(.+)$`, "i");

interface Point {
  lat: number;
  lng: number;
}

/** The middle of a full code; null if the text is none. */
export function plusCode(text: string): Point | null {
  const match = FULL.exec(text.trim());
  return match === null ? null : middle(`${match[1]}${match[2] ?? ""}`.toUpperCase());
}

/** A code as maps show it, of a place near a city: "G93R+2W Berlin". */
export function shortCode(text: string): { code: string; near: string } | null {
  const match = SHORT.exec(text.trim());
  return match === null ? null : { code: `${match[1]}${match[2]}`.toUpperCase(), near: match[3] ?? "" };
}

/** The place of a short code that is nearest to a point. */
export function recover(code: string, near: Point): Point {
  const found = middle(encode(near).slice(0, BEFORE_PLUS / 2) + code);
  // A code of four digits before the plus repeats every degree.
  const nearest = (value: number, to: number): number => value + Math.round(to - value);
  return { lat: nearest(found.lat, near.lat), lng: nearest(found.lng, near.lng) };
}

function middle(digits: string): Point {
  let [lat, lng, height, width] = [-90, -180, BASE * BASE, BASE * BASE];
  for (let at = 0; at < digits.length; at++) {
    const value = DIGITS.indexOf(digits[at] ?? "");
    if (at >= PAIRS * 2) {
      [height, width] = [height / FINE_ROWS, width / FINE_COLUMNS];
      lat += Math.floor(value / FINE_COLUMNS) * height;
      lng += (value % FINE_COLUMNS) * width;
    } else if (at % 2 === 0) {
      height /= BASE;
      lat += value * height;
    } else {
      width /= BASE;
      lng += value * width;
    }
  }
  return { lat: lat + height / 2, lng: lng + width / 2 };
}

/** The first four digits of a point's code: its degree. */
function encode({ lat, lng }: Point): string {
  const [row, column] = [Math.min(179, Math.floor(lat + 90)), Math.floor(lng + 180) % 360];
  const digit = (value: number): string => DIGITS[value] ?? "";
  return digit(Math.floor(row / BASE)) + digit(Math.floor(column / BASE)) + digit(row % BASE) + digit(column % BASE);
}
