// Proof of position: a heartbeat about every 2 s, and the missed ones afterwards.
import { signal } from "@preact/signals";
import { ApiError, need, type Client } from "../api";
import { isSuspension } from "../errors";
import { keep, remembered } from "../kept";
import type { Word } from "../strings";
import { positionProblem } from "./problems";

export interface Fix {
  lat: number;
  lng: number;
  accuracyMeters: number;
  atMs: number;
}
const BEAT_MS = 2000;
/** Positions that are kept while they cannot be sent, and how many of them go in one call. */
const KEPT_MAX = 200;
const BATCH_MAX = 50;
const CHECK_TIMEOUT_MS = 10_000;
const ANSWER_MS = 5000;
/** A watch stays silent while the device stands still, and a second question is then not answered either: start it again. */
const SILENCE_MS = 1500;
/** So many times within so long another device was ahead: it still sends. Once is usual after a reload. */
const AHEAD_MAX = 3;
const AHEAD_WITHIN_MS = 30_000;
/** How far this device goes ahead of another one, so that its next position is not behind again. */
const AHEAD_BY = 10;
/** How far a device goes ahead that takes over. Nothing else is so far ahead: a year of seconds has 32 million. */
const TAKE_OVER_BY = 100_000_000;
const TAKE_OVER_TRIES = 5;

export class Locator {
  readonly fix = signal<Fix | null>(null);
  readonly error = signal<Word | null>(null);
  /** Whether somebody asked for the position, and the browser has not answered. */
  readonly isChecking = signal(false);
  readonly sentAt = signal<number | null>(null);
  readonly missed = signal(0);
  /** Whether another device sends positions of this workspace too. */
  readonly isShared = signal(false);
  /** How often another device took over from this one. */
  readonly takenOver = signal(0);
  /** The last sequence that the server took from this browser; null if there was none. */
  private accepted: number | null;
  private aheadAtMs: number[] = [];
  /** The last call had no answer: the server may have taken its positions, and refuse them when they come again. */
  private isInDoubt = false;
  private isQuiet = false;
  private readonly queue: { lat: number; lng: number; accuracyMeters: number; sequence: number }[] = [];
  private sequence: number;
  private watch = 0;
  private readonly timer: number;
  private isBusy = false;
  private queuedAtMs = 0;

  constructor(
    private readonly client: Client,
    private readonly workspaceId: string,
    /** Told at each heartbeat that the workspace is suspended, or that its key is not valid any more. */
    private readonly onRefused: (error: unknown) => void = () => undefined,
  ) {
    const last = remembered(this.name);
    this.accepted = last === null ? null : Number(last);
    // Seconds, not milliseconds: always at most 2^31 above what another device has sent.
    this.sequence = this.accepted ?? Math.floor(Date.now() / 1000);
    this.look();
    this.timer = window.setInterval(() => {
      if (Date.now() - (this.fix.value?.atMs ?? 0) > SILENCE_MS) this.look();
      void this.beat();
    }, BEAT_MS);
  }

  private get name(): string {
    return `sequence.${this.workspaceId}`;
  }

  /** Send one position so far ahead that every other device leaves the filming to this one. Throws ApiError. */
  async takeOver(): Promise<void> {
    const fix = this.fix.value;
    if (fix === null) return;
    const params = { path: { id: this.workspaceId } };
    // The first one is refused, and says how far the other device is.
    for (let [tries, sequence] = [1, 1]; ; tries++) {
      const body = { lat: fix.lat, lng: fix.lng, accuracyMeters: Math.round(fix.accuracyMeters), sequence };
      try {
        await need(this.client.POST("/api/v1/workspaces/{id}/location", { params, body }));
        this.sequence = sequence;
        this.accept(sequence);
        if (sequence > TAKE_OVER_BY) return;
        sequence += TAKE_OVER_BY;
      } catch (error) {
        if (!(error instanceof ApiError) || error.lastSequence === undefined || tries === TAKE_OVER_TRIES) throw error;
        sequence = error.lastSequence + TAKE_OVER_BY;
      }
    }
  }

  /** Send no position while `isQuiet`: another device films, or this one has no camera and must get no request. */
  quieten(isQuiet: boolean): void {
    this.isQuiet = isQuiet;
    void this.beat(); // at once: whoever goes online next has been seen
  }

  private accept(sequence: number): void {
    this.accepted = sequence;
    keep(this.name, String(sequence));
  }

  /** Ask for the position in a press, so that the browser asks for the permission. */
  async check(): Promise<void> {
    this.isChecking.value = true;
    const options = { enableHighAccuracy: true, timeout: CHECK_TIMEOUT_MS };
    await new Promise<void>((done) =>
      navigator.geolocation.getCurrentPosition((found) => done(this.take(found)), (error) => done(this.fail(error)), options),
    );
    this.isChecking.value = false;
  }

  stop(): void {
    navigator.geolocation.clearWatch(this.watch);
    clearInterval(this.timer);
  }

  private look(): void {
    navigator.geolocation.clearWatch(this.watch);
    this.watch = navigator.geolocation.watchPosition(this.take, this.fail, { enableHighAccuracy: true, maximumAge: 0 });
  }
  private readonly take = ({ coords }: GeolocationPosition): void => {
    this.error.value = null;
    this.isChecking.value = false;
    this.fix.value = { lat: coords.latitude, lng: coords.longitude, accuracyMeters: coords.accuracy, atMs: Date.now() };
    void this.beat();
  };
  private readonly fail = (error: GeolocationPositionError): void => {
    this.error.value = positionProblem(error);
  };

  private async beat(): Promise<void> {
    if (this.isQuiet) {
      this.queue.length = 0;
      this.missed.value = 0;
      return;
    }
    const fix = this.fix.value;
    // Only a position that was measured since the last heartbeat proves anything.
    if (fix !== null && fix.atMs - this.queuedAtMs >= SILENCE_MS) {
      this.queuedAtMs = fix.atMs;
      this.queue.push({ lat: fix.lat, lng: fix.lng, accuracyMeters: Math.round(fix.accuracyMeters), sequence: ++this.sequence });
      this.queue.splice(0, this.queue.length - KEPT_MAX);
    }
    this.missed.value = Math.max(0, this.queue.length - 1);
    if (this.isBusy || this.queue.length === 0) return;
    this.isBusy = true;
    try {
      await this.send();
      this.sentAt.value = Date.now();
      this.isInDoubt = false;
    } catch (error) {
      if (!(error instanceof ApiError) || error.status === 0 || error.status >= 500) this.isInDoubt = true;
      if (error instanceof ApiError && error.lastSequence !== undefined) this.renumber(error.lastSequence);
      else if (error instanceof ApiError && error.status === 400) this.queue.shift();
      else if (isSuspension(error) || (error instanceof ApiError && error.status === 401)) this.onRefused(error);
    } finally {
      this.isBusy = false;
      this.missed.value = this.queue.length;
      this.aheadAtMs = this.aheadAtMs.filter((atMs) => Date.now() - atMs < AHEAD_WITHIN_MS);
      this.isShared.value = this.aheadAtMs.length >= AHEAD_MAX;
    }
  }

  private async send(): Promise<void> {
    const params = { path: { id: this.workspaceId } };
    const items = this.queue.slice(0, BATCH_MAX);
    const [only, second] = items;
    // The next position is worth more than an answer that does not come.
    const signal = AbortSignal.timeout(ANSWER_MS);
    if (only !== undefined && second === undefined) await need(this.client.POST("/api/v1/workspaces/{id}/location", { params, body: only, signal }));
    else await need(this.client.POST("/api/v1/workspaces/{id}/locations", { params, body: { items }, signal }));
    this.queue.splice(0, items.length);
    this.accept(items.at(-1)?.sequence ?? this.sequence);
  }

  /** Another device of this workspace was ahead. */
  private renumber(last: number): void {
    if (!this.isInDoubt) this.aheadAtMs.push(Date.now());
    this.isInDoubt = false;
    if (this.accepted !== null && last - this.accepted >= TAKE_OVER_BY / 2) this.takenOver.value += 1;
    this.sequence = last + AHEAD_BY;
    for (const beat of this.queue) beat.sequence = ++this.sequence;
  }
}
