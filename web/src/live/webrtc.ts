// One exchange of WHIP (RFC 9725) or WHEP: POST the offer, get the answer, DELETE at the end.
import { ApiError, failureOf } from "../api";

const GATHER_MS = 1000;

export interface Exchange {
  peer: RTCPeerConnection;
  /** Close, and DELETE the resource unless its session is over: then the server has done so. */
  close: (isOver?: boolean) => void;
}

/** The embedded engine names its own address; from another name of this server it is reached by the page's origin. */
export function reachable(url: string): string {
  const parsed = new URL(url, location.href);
  const isOwn = parsed.port === location.port && /^\/(whip|whep)\//.test(parsed.pathname);
  return isOwn ? location.origin + parsed.pathname : parsed.href;
}

/** Throws ApiError with the status of the endpoint. */
export async function exchange(peer: RTCPeerConnection, url: string, signal: AbortSignal): Promise<Exchange> {
  await peer.setLocalDescription();
  await gathered(peer);
  let answer: Response;
  try {
    answer = await fetch(reachable(url), {
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
      const target = reachable(new URL(resource, answer.url).href);
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
