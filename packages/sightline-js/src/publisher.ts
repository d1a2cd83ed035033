// The WHIP publisher: sends a camera until it is stopped. Restarts ICE when the network is lost or another one, and connects
// again if that does not help.
import { ApiError } from "./http.js";
import { qualityOf, type Quality, type Sent } from "./quality.js";
import { Path, backOff, exchange, pause, unchanged, type Exchange, type Resolve } from "./webrtc.js";

export type Sending = "connecting" | "sending" | "lost" | "refused";

const MEASURE_EVERY_MS = 2000;

export interface PublisherOptions {
  onChange?: (state: Sending) => void;
  /** Called every 2 s while it sends, and with null when it does not. */
  onQuality?: (quality: Quality | null) => void;
  resolve?: Resolve;
}

/** Sends the tracks of a MediaStream to `whipUrl` of a session until `stop`. */
export class Publisher {
  private sending: Sending = "connecting";
  private readonly over = new AbortController();
  private current: Exchange | null = null;
  /** What is sent now, and after each new connection. */
  private readonly tracks = new Map<string, MediaStreamTrack | null>();

  constructor(
    private readonly url: string,
    private readonly media: MediaStream,
    private readonly options: PublisherOptions = {},
  ) {
    media.getTracks().forEach((track) => this.tracks.set(track.kind, track));
    addEventListener("pagehide", this.leave);
    void this.run();
  }

  get state(): Sending {
    return this.sending;
  }
  private show(state: Sending): void {
    if (state === this.sending) return;
    this.sending = state;
    if (!this.over.signal.aborted) this.options.onChange?.(state);
  }

  private tell(quality: Quality | null): void {
    if (!this.over.signal.aborted || quality === null) this.options.onQuality?.(quality);
  }

  private readonly leave = (): void => this.stop();
  /** `isOver`: the session has ended, so that there is nothing left to close on the server. */
  stop(isOver = false): void {
    removeEventListener("pagehide", this.leave);
    this.over.abort();
    this.current?.close(isOver);
  }

  /** Send another track of the same kind, or none. */
  async replace(kind: "video" | "audio", track: MediaStreamTrack | null): Promise<void> {
    this.tracks.set(kind, track);
    if (this.current !== null) await this.sendTracks(this.current.peer);
  }

  /** Send the present tracks: they may have been replaced since the connection was offered. */
  private async sendTracks(peer: RTCPeerConnection): Promise<void> {
    for (const { sender, receiver } of peer.getTransceivers()) {
      const track = this.tracks.get(receiver.track.kind) ?? null;
      if (sender.track !== track) await sender.replaceTrack(track);
    }
  }

  private async run(): Promise<void> {
    let failures = 0;
    while (!this.over.signal.aborted) {
      try {
        await this.publish();
        failures = 0;
        this.show("lost");
      } catch (error) {
        failures += 1;
        this.show(error instanceof ApiError && [401, 403, 404].includes(error.status) ? "refused" : "lost");
      }
      this.current?.close();
      this.current = null;
      await pause(backOff(Math.max(1, failures)), this.over.signal);
    }
  }

  private async publish(): Promise<void> {
    const peer = new RTCPeerConnection();
    for (const kind of ["video", "audio"] as const) {
      peer.addTransceiver(this.tracks.get(kind) ?? kind, { direction: "sendonly", streams: [this.media] });
    }
    try {
      this.current = await exchange(peer, this.url, this.options.resolve ?? unchanged, this.over.signal);
      await this.sendTracks(peer);
    } catch (error) {
      if (this.current === null) peer.close(); // else `run` closes it on the server too
      throw error;
    }
    const path = new Path(this.current);
    let [sent, measuredAt]: [Sent | null, number] = [null, performance.now()];
    try {
      while (!this.over.signal.aborted) {
        await pause(250, this.over.signal);
        const seen = await path.look();
        if (seen === "lost") return;
        if (seen === "connected") this.show("sending");
        else if (this.sending === "sending") this.show("lost");
        if (performance.now() - measuredAt < MEASURE_EVERY_MS) continue;
        measuredAt = performance.now();
        const [quality, next] = qualityOf([...(await peer.getStats()).values()], sent);
        sent = next;
        this.tell(seen === "connected" ? quality : null);
      }
    } finally {
      this.tell(null);
      path.stop();
    }
  }
}
