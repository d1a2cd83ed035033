// The WHEP player. It trusts decoded frames only: a connection that delivers none for 2 s is replaced. When the network is lost
// or another one, it restarts ICE first.
import { ApiError } from "./http.js";
import { Path, RESTART_MS, backOff, exchange, pause, unchanged, type Exchange, type Resolve } from "./webrtc.js";

export type Picture = "connecting" | "playing" | "noCamera" | "stalled" | "failed";
const STALL_MS = 2000;
const FIRST_FRAME_MS = 6000;
const TICK_MS = 400;
const FAILURES_BEFORE_FAILED = 4;

export interface PlayerStatus {
  picture: Picture;
  /** Network and buffer delay in milliseconds, without the camera's own. */
  delayMs: number | null;
}
export interface PlayerOptions {
  onChange?: (status: PlayerStatus) => void;
  resolve?: Resolve;
}

/** Plays `whepUrl` of a session in a video element until `stop`; connects again after every loss. */
export class Player {
  private state: PlayerStatus = { picture: "connecting", delayMs: null };
  private readonly over = new AbortController();
  private current: Exchange | null = null;

  constructor(
    private readonly video: HTMLVideoElement,
    private readonly url: string,
    private readonly options: PlayerOptions = {},
  ) {
    void this.run();
    addEventListener("pagehide", this.leave);
  }

  get status(): PlayerStatus {
    return this.state;
  }
  private show(change: Partial<PlayerStatus>): void {
    const next = { ...this.state, ...change };
    if (next.picture === this.state.picture && next.delayMs === this.state.delayMs) return;
    this.state = next;
    if (!this.over.signal.aborted) this.options.onChange?.(next);
  }

  private readonly leave = (): void => this.stop();
  /** `isOver`: the session has ended, so that there is nothing left to close on the server. */
  stop(isOver = false): void {
    removeEventListener("pagehide", this.leave);
    this.over.abort();
    this.current?.close(isOver);
  }

  private async run(): Promise<void> {
    let failures = 0;
    while (!this.over.signal.aborted) {
      try {
        if (await this.play()) failures = 0;
        this.show({ picture: "stalled" });
      } catch (error) {
        const isWaiting = error instanceof ApiError && (error.status === 409 || error.status === 404);
        if (!isWaiting) failures += 1;
        const isLost = this.state.picture === "playing";
        if (isWaiting) this.show({ picture: "noCamera" });
        else this.show({ picture: failures >= FAILURES_BEFORE_FAILED ? "failed" : isLost ? "stalled" : "connecting" });
      }
      this.current?.close();
      this.current = null;
      await pause(backOff(Math.max(1, failures)), this.over.signal);
    }
  }

  /** Play until no frame is decoded any more. Says whether there was one. */
  private async play(): Promise<boolean> {
    const peer = new RTCPeerConnection();
    const stream = new MediaStream();
    peer.ontrack = (event) => stream.addTrack(event.track);
    peer.addTransceiver("video", { direction: "recvonly" });
    peer.addTransceiver("audio", { direction: "recvonly" });
    try {
      this.current = await exchange(peer, this.url, this.options.resolve ?? unchanged, this.over.signal);
    } catch (error) {
      peer.close();
      throw error;
    }
    this.video.srcObject = stream;
    // Not awaited: it stays pending while no picture arrives, and then `watch` must try again.
    void this.video.play().catch(() => undefined);
    const path = new Path(this.current);
    try {
      return await this.watch(peer, path);
    } finally {
      path.stop();
    }
  }

  private async watch(peer: RTCPeerConnection, path: Path): Promise<boolean> {
    let frames = 0;
    let changedAt = performance.now();
    while (!this.over.signal.aborted) {
      await pause(frames === 0 ? TICK_MS / 4 : TICK_MS, this.over.signal);
      const seen = await this.decoded(peer);
      if (seen > frames) {
        frames = seen;
        changedAt = performance.now();
        this.show({ picture: "playing" });
      }
      if ((await path.look()) === "lost") break;
      const now = performance.now();
      if (frames > 0 && now - changedAt > STALL_MS) this.show({ picture: "stalled" });
      const isRestarting = now - path.restartedAt < RESTART_MS;
      if (!isRestarting && now - changedAt > (frames === 0 ? FIRST_FRAME_MS : STALL_MS)) break;
    }
    if (frames === 0) throw new Error("no frame arrived");
    return true;
  }

  private async decoded(peer: RTCPeerConnection): Promise<number> {
    let frames = 0;
    let buffered = 0;
    let trip = 0;
    (await peer.getStats()).forEach((each: Record<string, unknown>) => {
      if (each["type"] === "inbound-rtp" && each["kind"] === "video") {
        frames = Number(each["framesDecoded"] ?? 0);
        const emitted = Number(each["jitterBufferEmittedCount"] ?? 0);
        buffered = emitted > 0 ? Number(each["jitterBufferDelay"] ?? 0) / emitted : 0;
      }
      if (each["type"] === "candidate-pair" && each["nominated"] === true) trip = Number(each["currentRoundTripTime"] ?? 0);
    });
    if (frames > 0) this.show({ delayMs: Math.round((buffered + trip / 2) * 1000) });
    return frames;
  }
}
