// Server-sent events by fetch: EventSource cannot send an API key, and does not tell why it failed.
export interface Listener {
  onEvent: (name: string, data: unknown) => void;
  onState?: (isOpen: boolean) => void;
  /** The server refused the stream: 401 where the sign-in or the key is no longer valid. It is tried again all the same. */
  onRefused?: (status: number) => void;
}

class Refusal extends Error {
  constructor(readonly status: number) {
    super(`${status}`);
  }
}

const PAUSE_MIN_MS = 500;
const PAUSE_MAX_MS = 8000;
const ANSWER_MAX_MS = 10_000;
/** The server sends a comment every 15 s. */
const SILENCE_MAX_MS = 40_000;

/** Follow a stream until the returned function is called. A hidden page lets its stream go: browsers open few connections. */
export function follow(url: string, listener: Listener, key?: string): () => void {
  let stop = new AbortController();
  let isOver = false;
  let failures = 0;
  let lastId = "";

  async function run(): Promise<void> {
    while (!isOver) {
      if (document.hidden && key === undefined) {
        await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
        continue;
      }
      stop = new AbortController();
      try {
        await read(stop);
      } catch (error) {
        if (isOver) return;
        if (error instanceof Refusal) listener.onRefused?.(error.status);
      }
      listener.onState?.(false);
      failures += 1;
      const pause = Math.min(PAUSE_MAX_MS, PAUSE_MIN_MS * 2 ** (failures - 1)) * (0.5 + Math.random() / 2);
      await new Promise((done) => setTimeout(done, pause));
    }
  }

  async function read(abort: AbortController): Promise<void> {
    const headers: Record<string, string> = { accept: "text/event-stream" };
    if (key !== undefined) headers["authorization"] = `Bearer ${key}`;
    if (lastId !== "") headers["last-event-id"] = lastId;
    const late = setTimeout(() => abort.abort(), ANSWER_MAX_MS);
    const answer = await fetch(url, { headers, signal: abort.signal }).finally(() => clearTimeout(late));
    if (!answer.ok || answer.body === null) throw new Refusal(answer.status);
    failures = 0;
    listener.onState?.(true);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    let silence = 0;
    try {
      for (;;) {
        silence = setTimeout(() => abort.abort(), SILENCE_MAX_MS);
        const { value, done } = await reader.read();
        clearTimeout(silence);
        if (done) return;
        text += value;
        const blocks = text.split("\n\n");
        text = blocks.pop() ?? "";
        blocks.forEach(deliver);
      }
    } finally {
      clearTimeout(silence);
    }
  }

  function deliver(block: string): void {
    const fields = new Map(block.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]));
    const data = fields.get("data");
    if (data === undefined) return;
    lastId = fields.get("id") ?? lastId;
    listener.onEvent(fields.get("event") ?? "message", JSON.parse(data));
  }

  const letGo = (): void => {
    if (document.hidden && key === undefined) stop.abort();
  };
  document.addEventListener("visibilitychange", letGo);
  void run();
  return () => {
    isOver = true;
    document.removeEventListener("visibilitychange", letGo);
    stop.abort();
  };
}
