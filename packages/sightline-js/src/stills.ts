// The newest frame as JPEG, again and again: for networks that let no WebRTC through. The last seconds as a file.
import { failureOf, reach, type Connection } from "./http.js";
import { pause } from "./webrtc.js";

export interface Still {
  jpeg: Blob;
  /** Object URL of `jpeg`; revoke it when it is no longer shown. */
  url: string;
  capturedAt: string;
  sequence: string;
  /** `lat,lng;accuracy` as in the header X-SVC-Location. */
  location: string;
  /** `live`, `black`, `frozen`, or `lost`: no frame arrives, and this is the last one. */
  state: string;
  /** Which publisher's picture it is: increases with each connection of a publisher. */
  publisherEpoch: number;
}

export interface FrameQuery {
  width?: number;
  quality?: number;
  /** Wait up to `waitMs` for a frame with a greater sequence. */
  after?: string;
  waitMs?: number;
  /** An older frame is not returned: 404 `frame:stale`. Default 2000, so that no old scene is taken for the present one. */
  maxAgeMs?: number;
}

/** Fetch one frame; null if there is none after `after`. Throws ApiError. */
export async function frame({ url, key }: Connection, sessionId: string, query: FrameQuery = {}, signal?: AbortSignal): Promise<Still | null> {
  const address = new URL(`/api/v1/sessions/${sessionId}/frame`, url);
  for (const [name, value] of Object.entries({ maxAgeMs: 2000, ...query })) address.searchParams.set(name, String(value));
  const headers = key === undefined ? {} : { authorization: `Bearer ${key}` };
  const answer = await reach(address, { headers, ...(signal === undefined ? {} : { signal }) });
  if (answer.status === 304) return null;
  if (!answer.ok) throw failureOf(answer, await answer.json().catch(() => null));
  const header = (name: string): string => answer.headers.get(`x-svc-${name}`) ?? "";
  const jpeg = await answer.blob();
  return {
    jpeg,
    url: URL.createObjectURL(jpeg),
    capturedAt: header("frame-captured-at"),
    sequence: header("frame-sequence"),
    location: header("location"),
    state: header("frame-state"),
    publisherEpoch: Number(header("publisher-epoch")),
  };
}

/** The last seconds as a video file. */
export interface Clip {
  /** MP4, or WebM if the camera sends VP8: its `type` says which. */
  video: Blob;
  /** Object URL of `video`; revoke it when it is no longer shown. */
  url: string;
  capturedFrom: string;
  capturedTo: string;
  /** `lat,lng;accuracy` as in the header X-SVC-Location. */
  location: string;
  frames: number;
}

/** Fetch the last seconds, 1 to 30, of a server that keeps them. Throws ApiError: 400 `clip:off` if it does not. */
export async function clip({ url, key }: Connection, sessionId: string, seconds = 10): Promise<Clip> {
  const address = new URL(`/api/v1/sessions/${sessionId}/clip?seconds=${seconds}`, url);
  const answer = await reach(address, { headers: key === undefined ? {} : { authorization: `Bearer ${key}` } });
  if (!answer.ok) throw failureOf(answer, await answer.json().catch(() => null));
  const header = (name: string): string => answer.headers.get(`x-svc-${name}`) ?? "";
  const video = await answer.blob();
  return {
    video,
    url: URL.createObjectURL(video),
    capturedFrom: header("clip-from"),
    capturedTo: header("clip-to"),
    location: header("location"),
    frames: Number(header("clip-frames")),
  };
}

/** Shows one frame after another until `stop`, and revokes the URLs of those before. */
export class Stills {
  private shown: Still | null = null;
  private readonly over = new AbortController();

  constructor(
    private readonly connection: Connection,
    private readonly sessionId: string,
    private readonly onFrame: (still: Still) => void,
  ) {
    void this.run();
  }

  stop(): void {
    this.over.abort();
    if (this.shown !== null) URL.revokeObjectURL(this.shown.url);
  }

  private async run(): Promise<void> {
    while (!this.over.signal.aborted) {
      try {
        const newer = this.shown === null ? {} : { after: this.shown.sequence, waitMs: 5000 };
        const next = await frame(this.connection, this.sessionId, { width: 1280, quality: 75, ...newer }, this.over.signal);
        if (next === null) continue;
        const before = this.shown;
        this.shown = next;
        this.onFrame(next);
        if (before !== null) URL.revokeObjectURL(before.url);
        await pause(150, this.over.signal);
      } catch {
        // No newer picture arrives, or the server is not reached: the one that is shown is no longer the present.
        if (this.shown !== null && this.shown.state !== "lost") this.onFrame((this.shown = { ...this.shown, state: "lost" }));
        await pause(1000, this.over.signal);
      }
    }
  }
}
