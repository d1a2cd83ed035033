// The one client of the HTTP interface: typed by the OpenAPI document, with the envelope taken off.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.gen";

export type Model = components["schemas"];

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly detail?: string,
    readonly retryAfterS?: number,
    readonly lastSequence?: number,
  ) {
    super(message);
  }
}

interface Envelope<T> {
  data: T;
  timestamp: string;
}
interface Failure {
  code: string;
  message: string;
  detail?: string;
  lastSequence?: number;
}
interface Answer<T> {
  /** Text where a call can also answer another format than JSON. */
  data?: Envelope<T> | string;
  error?: unknown;
  response: Response;
}

/** Server time less browser time in milliseconds, from the newest answer. */
export let clockOffsetMs = 0;
export const serverNow = (): number => Date.now() + clockOffsetMs;

/** The `data` of an answer. Throws ApiError; status 0 means that the server was not reached. */
export async function need<T>(answer: Promise<Answer<T>>): Promise<T> {
  let got: Answer<T>;
  try {
    got = await answer;
  } catch (error) {
    throw new ApiError(0, "OFFLINE", String(error));
  }
  if (typeof got.data === "object") {
    clockOffsetMs = Date.parse(got.data.timestamp) - Date.now();
    return got.data.data;
  }
  throw failureOf(got.response, got.error);
}

export function failureOf(response: Response, body: unknown): ApiError {
  const known = typeof body === "object" && body !== null && "code" in body ? (body as Failure) : null;
  const after = Number(response.headers.get("retry-after"));
  return new ApiError(
    response.status,
    known?.code ?? "INTERNAL_ERROR",
    known?.message ?? response.statusText,
    known?.detail,
    after > 0 ? after : undefined,
    known?.lastSequence,
  );
}

/** A client for the cookie of this browser, or for an API key. */
export const makeClient = (key?: string) =>
  createClient<paths>({
    baseUrl: location.origin,
    headers: key === undefined ? {} : { authorization: `Bearer ${key}` },
  });
export type Client = ReturnType<typeof makeClient>;
export const api: Client = makeClient();

/** Headers of a call that must have its effect once, however often it is sent. */
export const once = () => ({ "Idempotency-Key": randomId() });

/** Random hex; `crypto.randomUUID` does not exist on plain http pages. */
export const randomId = (): string =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
