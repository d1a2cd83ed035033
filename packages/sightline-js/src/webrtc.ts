// One exchange of WHIP (RFC 9725) or WHEP: OPTIONS for the ICE servers, POST the offer, get the answer, DELETE at the end.
import { ApiError, failureOf } from "./http.js";

const GATHER_MS = 1000;

export interface Exchange {
  peer: RTCPeerConnection;
  /** Close, and DELETE the resource unless its session is over: then the server has done so. */
  close: (isOver?: boolean) => void;
}

/** Gives the address at which an endpoint is reached, for example through a proxy. */
export type Resolve = (url: string) => string;
export const unchanged: Resolve = (url) => url;

const LINK = /<([^>]*)>((?:\s*;\s*[\w-]+\s*=\s*(?:"(?:[^"\\]|\\.)*"|[^",;\s]+))*)/g;
const PARAMETER = /([\w-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^",;\s]+))/g;

/** The STUN and TURN servers of a Link header (RFC 9725, section 4.6); a TURN server without credentials is left out. */
export function iceServersOf(link: string | null): RTCIceServer[] {
  const servers: RTCIceServer[] = [];
  for (const [, urls = "", rest = ""] of (link ?? "").matchAll(LINK)) {
    const found = new Map<string, string>();
    for (const [, name = "", quoted, bare] of rest.matchAll(PARAMETER)) {
      found.set(name.toLowerCase(), quoted?.replace(/\\(.)/g, "$1") ?? bare ?? "");
    }
    if (found.get("rel") !== "ice-server") continue;
    const username = found.get("username");
    const credential = found.get("credential");
    if (/^stuns?:/.test(urls)) servers.push({ urls });
    else if (/^turns?:/.test(urls) && username !== undefined && credential !== undefined) servers.push({ urls, username, credential });
  }
  return servers;
}

/** Throws ApiError with the status of the endpoint. */
export async function exchange(peer: RTCPeerConnection, url: string, resolve: Resolve, signal: AbortSignal): Promise<Exchange> {
  const options = await reach(resolve(url), { method: "OPTIONS", signal });
  const iceServers = options.ok ? iceServersOf(options.headers.get("link")) : [];
  if (iceServers.length > 0) peer.setConfiguration({ iceServers });
  await peer.setLocalDescription();
  await gathered(peer);
  const answer = await reach(resolve(url), {
    method: "POST",
    headers: { "content-type": "application/sdp" },
    body: peer.localDescription?.sdp ?? "",
    signal,
  });
  if (answer.status !== 201) throw failureOf(answer, await answer.json().catch(() => null));
  const resource = answer.headers.get("location");
  const close = (isOver = false): void => {
    if (peer.signalingState === "closed") return;
    peer.close();
    if (resource !== null && !isOver) {
      const target = resolve(new URL(resource, answer.url).href);
      void fetch(target, { method: "DELETE", keepalive: true }).catch(() => undefined);
    }
  };
  try {
    await peer.setRemoteDescription({ type: "answer", sdp: await answer.text() });
  } catch (error) {
    close();
    throw error;
  }
  return { peer, close };
}

async function reach(url: string, request: RequestInit): Promise<Response> {
  try {
    return await fetch(url, request);
  } catch (error) {
    throw new ApiError(0, "OFFLINE", String(error));
  }
}

function gathered(peer: RTCPeerConnection): Promise<void> {
  if (peer.iceGatheringState === "complete") return Promise.resolve();
  return new Promise((done) => {
    const timer = setTimeout(done, GATHER_MS);
    peer.addEventListener("icegatheringstatechange", () => {
      if (peer.iceGatheringState !== "complete") return;
      clearTimeout(timer);
      done();
    });
  });
}

export const backOff = (failures: number): number =>
  Math.min(4000, 500 * 2 ** Math.max(0, failures - 1)) * (0.75 + Math.random() / 2);

export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", () => (clearTimeout(timer), done()), { once: true });
  });
}
