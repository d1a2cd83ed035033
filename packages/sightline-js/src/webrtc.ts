// One exchange of WHIP (RFC 9725) or WHEP: OPTIONS for the ICE servers, POST the offer, get the answer, PATCH to restart ICE,
// DELETE at the end.
import { ApiError, failureOf, orAfter } from "./http.js";

const GATHER_MS = 1000;
const PATCH_MS = 3000;
/** How long a connection may take from its offer or its ICE restart. */
export const CONNECT_MS = 10_000;
/** How long an ICE restart may take; Chromium was seen to take 2.2 s. */
export const RESTART_MS = 6000;

export interface Exchange {
  peer: RTCPeerConnection;
  /** Close, and DELETE the resource unless its session is over: then the server has done so. */
  close: (isOver?: boolean) => void;
  /** Restart ICE: new paths from the networks that there are now, with the same encryption and the same publisher. Throws
   *  ApiError with the status of the endpoint, 0 without an answer; then POST a new offer. */
  restart: () => Promise<void>;
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
  // A connection that was cut without a word would keep this from asking the server that took over.
  const within = (): AbortSignal => orAfter(CONNECT_MS, signal);
  const options = await reach(resolve(url), { method: "OPTIONS", signal: within() });
  const iceServers = options.ok ? iceServersOf(options.headers.get("link")) : [];
  if (iceServers.length > 0) peer.setConfiguration({ iceServers });
  await peer.setLocalDescription();
  await gathered(peer);
  const answer = await reach(resolve(url), {
    method: "POST",
    headers: { "content-type": "application/sdp" },
    body: peer.localDescription?.sdp ?? "",
    signal: within(),
  });
  if (answer.status !== 201) throw failureOf(answer, await answer.json().catch(() => null));
  const resource = answer.headers.get("location");
  let restarts = 0;
  const close = (isOver = false): void => {
    if (peer.signalingState === "closed") return;
    peer.close();
    if (resource !== null && !isOver) {
      const target = resolve(new URL(resource, answer.url).href);
      void fetch(target, { method: "DELETE", keepalive: true }).catch(() => undefined);
    }
  };
  const restart = async (): Promise<void> => {
    if (resource === null) throw new ApiError(404, "NOT_FOUND", "The endpoint named no resource.");
    await peer.setLocalDescription(await peer.createOffer({ iceRestart: true }));
    await gathered(peer);
    const reply = await reach(resolve(new URL(resource, answer.url).href), {
      method: "PATCH",
      headers: { "content-type": "application/trickle-ice-sdpfrag", "if-match": "*" },
      body: fragmentOf(peer.localDescription?.sdp ?? ""),
      signal: orAfter(PATCH_MS, signal),
    });
    if (reply.status !== 200) throw failureOf(reply, await reply.json().catch(() => null));
    const sdp = withFragment(peer.remoteDescription?.sdp ?? "", await reply.text());
    await peer.setRemoteDescription({ type: "answer", sdp: ranked(sdp, ++restarts) });
  };
  try {
    await peer.setRemoteDescription({ type: "answer", sdp: ranked(await answer.text(), restarts) });
  } catch (error) {
    close();
    throw error;
  }
  return { peer, close, restart };
}

const CANDIDATES = /^a=(candidate:.*|end-of-candidates)$/;

/** The SDP fragment (RFC 8840) of the first m-line, which carries the bundled transport. */
export function fragmentOf(sdp: string): string {
  const [, first = ""] = sdp.split(/^(?=m=)/m);
  const kept = first.split(/\r?\n/).filter((line) => /^(m=|a=(mid|ice-ufrag|ice-pwd):)/.test(line) || CANDIDATES.test(line));
  return `${["a=ice-options:trickle", ...kept].join("\r\n")}\r\n`;
}

/** An answer with the credentials and candidates of an SDP fragment in place of its own. */
export function withFragment(answer: string, fragment: string): string {
  const news = fragment.split(/\r?\n/);
  const changed = (name: string): string | undefined => news.find((line) => line.startsWith(`a=${name}:`));
  const candidates = news.filter((line) => CANDIDATES.test(line));
  const lines: string[] = [];
  for (const line of answer.split(/\r?\n/)) {
    if (CANDIDATES.test(line)) continue;
    const [, name = ""] = /^a=(ice-ufrag|ice-pwd):/.exec(line) ?? [];
    lines.push((name && changed(name)) || line);
    if (name === "ice-pwd") lines.push(...candidates.splice(0));
  }
  return lines.join("\r\n");
}

const RANKS = 16;
const RESTARTS_RANKED = 4;

/** An answer whose candidates have a higher priority than those before the restart, in their own order.
 *
 *  Chromium compares paths by priority, then by age. Without this it stays with the UDP path of a network that is gone, until
 *  2.5 s after the last packet, if the other network has only TCP. */
export function ranked(answer: string, restarts: number): string {
  const first = RANKS * Math.min(restarts, RESTARTS_RANKED); // above it the browser's own priority for TCP, 90, would count
  return answer.replace(/^(a=candidate:\S+ \d+ \S+) (\d+) /gim, (_, head: string, priority: string) => {
    const preference = Math.floor(Number(priority) / 2 ** 24);
    const rank = first + Math.floor((preference * RANKS) / 128);
    return `${head} ${rank * 2 ** 24 + (Number(priority) % 2 ** 24)} `;
  });
}

/** Calls back when the browser has another network. Returns the function that ends it. */
export function onOtherNetwork(callback: () => void): () => void {
  const link = (navigator as { connection?: EventTarget & { type?: string } }).connection;
  let type = link?.type;
  // Browsers report every estimate of the bandwidth too.
  const changed = (): void => {
    if (link?.type === type) return;
    type = link?.type;
    callback();
  };
  addEventListener("online", callback);
  link?.addEventListener("change", changed);
  return () => {
    removeEventListener("online", callback);
    link?.removeEventListener("change", changed);
  };
}

/** Watches one connection and restarts its ICE when the network is lost or another one. */
export class Path {
  private isOther = false;
  private isTried = false;
  private aliveAt = performance.now();
  /** When ICE was last restarted. */
  restartedAt = -Infinity;
  private readonly end = onOtherNetwork(() => (this.isOther = true));

  constructor(private readonly exchange: Exchange) {}

  stop(): void {
    this.end();
  }

  /** Look at the connection, and restart ICE if that helps. Says "lost" if only a new offer does. */
  async look(): Promise<"connected" | "waiting" | "lost"> {
    const { peer } = this.exchange;
    const isLost = peer.connectionState === "disconnected" || peer.connectionState === "failed";
    if ((this.isOther || (isLost && !this.isTried)) && !(await this.restarted())) return "lost";
    if (peer.connectionState === "connected") {
      this.isTried = false;
      this.aliveAt = performance.now();
      return "connected";
    }
    const isLate = this.isTried
      ? performance.now() - this.restartedAt > RESTART_MS
      : performance.now() - this.aliveAt > CONNECT_MS;
    return isLate || peer.connectionState === "closed" ? "lost" : "waiting";
  }

  /** False if the endpoint refuses. */
  private async restarted(): Promise<boolean> {
    this.isOther = false;
    this.isTried = true;
    try {
      await this.exchange.restart();
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 0) return false;
      this.isOther = true; // no answer: there is no network yet, and a POST would not arrive either
    }
    this.restartedAt = performance.now();
    return true;
  }
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
