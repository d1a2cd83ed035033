// One exchange of WHIP (RFC 9725) or WHEP: POST the offer, get the answer, DELETE at the end.
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

/** Throws ApiError with the status of the endpoint. */
export async function exchange(peer: RTCPeerConnection, url: string, resolve: Resolve, signal: AbortSignal): Promise<Exchange> {
  await peer.setLocalDescription();
  await gathered(peer);
  let answer: Response;
  try {
    answer = await fetch(resolve(url), {
      method: "POST",
      headers: { "content-type": "application/sdp" },
      body: peer.localDescription?.sdp ?? "",
      signal,
    });
  } catch (error) {
    throw new ApiError(0, "OFFLINE", String(error));
  }
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
