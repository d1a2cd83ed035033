// Verifies messages that Sightline sends to webhook endpoints. The same rules as sightline_client/webhooks.py;
// docs/vectors/webhooks.json has the results that both must give.
// Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
import { hmac } from "@noble/hashes/hmac.js";
import { sha256 } from "@noble/hashes/sha2.js";
import { concatBytes, utf8ToBytes } from "@noble/hashes/utils.js";
import type { Model } from "./http.js";

const TOLERANCE_S = 300;
const SECRET = /^(?:whsec_)?((?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?)$/;

/** The object that an event is about, by the first part of its type, and its place in the order of events. */
interface Objects {
  session: Omit<Model["Session"], "whepUrl" | "whipUrl">;
  settlement: Model["Settlement"];
  wallet: Model["WalletEvent"];
  workspace: Model["Workspace"];
}
type Known = { [K in keyof Objects]: { type: `${K}.${string}`; data: Objects[K] & { sequence: number } } }[keyof Objects];

/** One verified message. `type` decides the type of `data`; a newer server may send types that are not listed here. */
export type WebhookEvent = {
  /** Equal in every attempt, resend and replay. Ignore an id that you have handled. */
  id: string;
  /** When it happened, ISO 8601. */
  timestamp: string;
} & (Known | { type: "webhook.ping"; data: { webhookId: string } });

/** The message is not from Sightline, was changed, or is too old. Answer 401. */
export class WebhookError extends Error {
  override readonly name = "WebhookError";
}

export type WebhookHeaders = Headers | Record<string, string | readonly string[] | undefined>;
export interface WebhookOptions {
  /** How many seconds the message's time may differ from the clock; default 300. */
  toleranceS?: number;
  /** Epoch milliseconds; default: the clock. */
  nowMs?: number;
}

/**
 * Check the signature and the age of a message, and return its event. Throws WebhookError.
 *
 * `body` is the body exactly as it was received: JSON that was parsed and written again has another signature.
 * `headers` are those of the request: of `fetch`, or of Node's `http`. `secret` is the endpoint's `whsec_...`.
 */
export function verifyWebhook(body: string | Uint8Array, headers: WebhookHeaders, secret: string, options: WebhookOptions = {}): WebhookEvent {
  const { toleranceS = TOLERANCE_S, nowMs = Date.now() } = options;
  const [id, timestamp, sent] = ["webhook-id", "webhook-timestamp", "webhook-signature"].map((name) => valueOf(headers, name));
  if (id === undefined || timestamp === undefined || sent === undefined || !/^\d{1,15}$/.test(timestamp))
    throw new WebhookError("The headers webhook-id, webhook-timestamp and webhook-signature are missing or malformed.");
  if (Math.abs(nowMs / 1000 - Number(timestamp)) > toleranceS)
    throw new WebhookError(`Its time differs by more than ${toleranceS} s from the clock of this machine.`);
  const bytes = typeof body === "string" ? utf8ToBytes(body) : body;
  const expected = `v1,${toBase64(hmac(sha256, keyOf(secret), concatBytes(utf8ToBytes(`${id}.${timestamp}.`), bytes)))}`;
  if (!sent.split(/\s+/).some((each) => isEqual(each, expected)))
    throw new WebhookError("No signature matches. Pass the raw body, and the secret of this endpoint.");
  return eventOf(id, bytes);
}

function valueOf(headers: WebhookHeaders, name: string): string | undefined {
  if (headers instanceof Headers) return headers.get(name) ?? undefined;
  const value = Object.entries(headers).find(([given]) => given.toLowerCase() === name)?.[1];
  return typeof value === "object" ? value[0] : value;
}

/** The bytes of a secret. Throws RangeError for malformed text: that is an error of the program, not of the message. */
function keyOf(secret: string): Uint8Array {
  const text = SECRET.exec(secret)?.[1];
  if (text === undefined) throw new RangeError("The secret of a webhook is whsec_ and base64 text.");
  return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
}

const toBase64 = (bytes: Uint8Array): string => btoa(String.fromCharCode(...bytes));

/** Compare in a time that does not depend on where the texts differ. */
function isEqual(left: string, right: string): boolean {
  let difference = left.length ^ right.length;
  for (let at = 0; at < right.length; at++) difference |= left.charCodeAt(at) ^ right.charCodeAt(at);
  return difference === 0;
}

function eventOf(id: string, bytes: Uint8Array): WebhookEvent {
  let message: unknown;
  try {
    message = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch {
    throw new WebhookError("Its body is not JSON.");
  }
  const { type, timestamp, data } = (typeof message === "object" && message !== null ? message : {}) as Record<string, unknown>;
  if (typeof type !== "string" || typeof timestamp !== "string" || Number.isNaN(Date.parse(timestamp)) || typeof data !== "object" || data === null)
    throw new WebhookError("Its body is not an event of Sightline.");
  return { id, type, timestamp, data } as WebhookEvent;
}
