// The WHIP publisher: publishes the camera until it is stopped, again after every loss of the connection.
import { signal } from "@preact/signals";
import { ApiError } from "../api";
import { pause } from "./player";
import { backOff, exchange, type Exchange } from "./webrtc";

export type Sending = "connecting" | "sending" | "lost" | "refused";
const LOSS_MS = 2000;

export class Publisher {
  readonly state = signal<Sending>("connecting");
  private readonly over = new AbortController();
  private again = new AbortController();
  private current: Exchange | null = null;

  constructor(
    private readonly url: string,
    private readonly media: MediaStream,
  ) {
    addEventListener("online", this.restart);
    addEventListener("pagehide", this.leave);
    void this.run();
  }

  private readonly leave = (): void => this.stop();
  /** `isOver`: the session has ended, so that there is nothing left to close on the server. */
  stop(isOver = false): void {
    removeEventListener("online", this.restart);
    removeEventListener("pagehide", this.leave);
    this.over.abort();
    this.again.abort();
    this.current?.close(isOver);
  }
  /** After a change of network the old path may look alive for half a minute. */
  private readonly restart = (): void => this.again.abort();

  /** Send another track of the same kind, or none. */
  async replace(kind: "video" | "audio", track: MediaStreamTrack | null): Promise<void> {
    const transceiver = this.current?.peer.getTransceivers().find((each) => each.receiver.track.kind === kind);
    await transceiver?.sender.replaceTrack(track);
  }

  private async run(): Promise<void> {
    let failures = 0;
    while (!this.over.signal.aborted) {
      this.again = new AbortController();
      try {
        await this.publish();
        failures = 0;
        this.state.value = "lost";
      } catch (error) {
        failures += 1;
        this.state.value = error instanceof ApiError && [401, 403, 404].includes(error.status) ? "refused" : "lost";
      }
      this.current?.close();
      this.current = null;
      await pause(backOff(Math.max(1, failures)), this.over.signal);
    }
  }

  private async publish(): Promise<void> {
    const peer = new RTCPeerConnection();
    for (const kind of ["video", "audio"] as const) {
      const track = this.media.getTracks().find((each) => each.kind === kind);
      peer.addTransceiver(track ?? kind, { direction: "sendonly", streams: [this.media] });
    }
    try {
      this.current = await exchange(peer, this.url, this.over.signal);
    } catch (error) {
      peer.close();
      throw error;
    }
    let lostAt = performance.now();
    while (!this.over.signal.aborted && !this.again.signal.aborted) {
      await pause(250, this.over.signal);
      const state = peer.connectionState;
      if (state === "connected") {
        lostAt = performance.now();
        this.state.value = "sending";
      } else if (state === "failed" || state === "closed" || performance.now() - lostAt > (state === "disconnected" ? LOSS_MS : 10_000)) return;
    }
  }
}
