// The newest frame as JPEG, again and again: for networks that let no WebRTC through.
import { signal } from "@preact/signals";
import { failureOf, type ApiError } from "../api";
import { pause } from "./player";

export interface Still {
  url: string;
  capturedAt: string;
  sequence: string;
  location: string;
  state: string;
}

export async function frame(sessionId: string, query: string, signal?: AbortSignal): Promise<Still | null> {
  const answer = await fetch(`/api/v1/sessions/${sessionId}/frame?${query}`, signal === undefined ? {} : { signal });
  if (answer.status === 304) return null;
  if (!answer.ok) throw failureOf(answer, await answer.json().catch(() => null));
  const header = (name: string): string => answer.headers.get(`x-svc-${name}`) ?? "";
  return {
    url: URL.createObjectURL(await answer.blob()),
    capturedAt: header("frame-captured-at"),
    sequence: header("frame-sequence"),
    location: header("location"),
    state: header("frame-state"),
  };
}

export class Stills {
  readonly shown = signal<Still | null>(null);
  readonly error = signal<ApiError | null>(null);
  private readonly over = new AbortController();

  constructor(private readonly sessionId: string) {
    void this.run();
  }

  stop(): void {
    this.over.abort();
    if (this.shown.value !== null) URL.revokeObjectURL(this.shown.value.url);
  }

  private async run(): Promise<void> {
    while (!this.over.signal.aborted) {
      try {
        const after = this.shown.value === null ? "" : `&after=${this.shown.value.sequence}&waitMs=5000`;
        const next = await frame(this.sessionId, `width=1280&quality=75${after}`, this.over.signal);
        this.error.value = null;
        if (next === null) continue;
        const before = this.shown.value;
        this.shown.value = next;
        if (before !== null) URL.revokeObjectURL(before.url);
        await pause(150, this.over.signal);
      } catch (error) {
        if (this.over.signal.aborted) return;
        this.error.value = error as ApiError;
        await pause(1000, this.over.signal);
      }
    }
  }
}
