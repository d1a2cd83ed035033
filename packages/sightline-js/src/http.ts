// Calls of the HTTP interface, typed by its OpenAPI document.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.gen.js";

export type Model = components["schemas"];

/** A call that was not accepted. Status 0 means that the server was not reached. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly detail?: string,
    readonly retryAfterS?: number,
    readonly lastSequence?: number,
    /** What is wrong in this call, and what to do, if the server said more than the message. */
    readonly hint?: string,
  ) {
    super(message);
    this.name = "ApiError";
  }
}

export interface Connection {
  /** Origin of the server, for example `https://sightline.example`. */
  url: string;
  /** API key. Left out where the browser sends the cookie of a sign-in. */
  key?: string;
}

/** No answer takes longer: a connection that was cut without a word would keep a call waiting for minutes. */
const ANSWER_MS = 35_000;

/** A signal that aborts with another one, or after a time. */
export function orAfter(ms: number, signal: AbortSignal): AbortSignal {
  const limit = AbortSignal.timeout(ms);
  if (typeof AbortSignal.any === "function") return AbortSignal.any([signal, limit]);
  const either = new AbortController(); // Safari before 17.4
  for (const each of [signal, limit]) {
    if (each.aborted) either.abort(each.reason);
    each.addEventListener("abort", () => either.abort(each.reason), { once: true, signal: either.signal });
  }
  return either.signal;
}

const ID = /^[A-Za-z0-9_-]{1,128}$/;

/** A client whose paths, parameters and answers are checked by the compiler. */
export const connect = ({ url, key }: Connection) => {
  const headers: Record<string, string> = key === undefined ? {} : { authorization: `Bearer ${key}` };
  const within = (request: Request): Promise<Response> => fetch(request, { signal: orAfter(ANSWER_MS, request.signal) });
  const client = createClient<paths>({ baseUrl: url, headers, fetch: within });
  // `..` as an id would name another path.
  client.use({
    onRequest({ params }) {
      for (const [name, value] of Object.entries(params.path ?? {})) {
        if (!ID.test(String(value))) throw new ApiError(0, "INVALID_INPUT", `${name} ${JSON.stringify(value)} is not an id`);
      }
    },
  });
  return client;
};
export type Client = ReturnType<typeof connect>;

interface Envelope<T> {
  data: T;
  timestamp: string;
}
interface ErrorBody {
  code: string;
  message: string;
  detail?: string;
  lastSequence?: number;
  hint?: string;
}
interface Answer<T> {
  /** Text where a call can also answer another format than JSON. */
  data?: Envelope<T> | string;
  error?: unknown;
  response: Response;
}

/**
 * The `data` of an answer: `await dataOf(client.GET("/api/v1/me"))`. Throws ApiError.
 * `onServerTime` gets the server's time in epoch milliseconds.
 */
export async function dataOf<T>(answer: Promise<Answer<T>>, onServerTime?: (ms: number) => void): Promise<T> {
  let got: Answer<T>;
  try {
    got = await answer;
  } catch (error) {
    if (error instanceof ApiError) throw error;
    throw new ApiError(0, "OFFLINE", String(error));
  }
  if (typeof got.data === "object") {
    onServerTime?.(Date.parse(got.data.timestamp));
    return got.data.data;
  }
  throw failureOf(got.response, got.error);
}

/** Fetch. Throws ApiError with status 0 if the server is not reached. */
export async function reach(input: string | URL, init?: RequestInit): Promise<Response> {
  try {
    return await fetch(input, init);
  } catch (error) {
    if (error instanceof TypeError) throw new ApiError(0, "OFFLINE", String(error)); // else it was aborted
    throw error;
  }
}

/** The error of a response that is not a success; `body` is its decoded JSON. */
export function failureOf(response: Response, body: unknown): ApiError {
  const known = typeof body === "object" && body !== null && "code" in body ? (body as ErrorBody) : null;
  const after = Number(response.headers.get("retry-after"));
  return new ApiError(
    response.status,
    known?.code ?? "INTERNAL_ERROR",
    known?.message ?? response.statusText,
    known?.detail,
    after > 0 ? after : undefined,
    known?.lastSequence,
    known?.hint,
  );
}

/** Headers of a call that must have its effect once, however often it is sent. */
export const once = () => ({ "Idempotency-Key": randomId() });

/** Random hex; `crypto.randomUUID` does not exist on plain http pages. */
export const randomId = (): string =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
