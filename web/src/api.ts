// The server of this page, by the cookie of this browser or by an API key.
// The console imports the modules of sightline-js one by one: its index would bring all of them into the first load.
import { connect, dataOf, type Client } from "sightline-js/http";

export { ApiError, once, randomId, reach, type Client, type Model } from "sightline-js/http";

/** Server time less browser time in milliseconds, from the newest answer. */
let clockOffsetMs = 0;
export const serverNow = (): number => Date.now() + clockOffsetMs;

/** The `data` of an answer. Throws ApiError; status 0 means that the server was not reached. */
export const need = <T>(answer: Parameters<typeof dataOf<T>>[0]): Promise<T> =>
  dataOf(answer, (serverMs) => (clockOffsetMs = serverMs - Date.now()));

/** Calls with the cookie of this browser. */
export const here = { url: location.origin };
export const makeClient = (key?: string): Client => connect({ ...here, ...(key === undefined ? {} : { key }) });
export const api: Client = makeClient();

/** The embedded video engine names its own address; from another name of this server it is reached by the page's origin. */
export function reachable(url: string): string {
  const parsed = new URL(url, location.href);
  const isOwn = parsed.port === location.port && /^\/(whip|whep)\//.test(parsed.pathname);
  return isOwn ? location.origin + parsed.pathname : parsed.href;
}
