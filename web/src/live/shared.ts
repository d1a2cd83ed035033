// One event stream for all tabs of a browser. A browser opens about six HTTP/1.1 connections to a host: six visible windows
// with a stream each would leave none for calls.
import { follow, type Listener } from "sightline-js/events";

type Message = { kind: "event"; name: string; data: unknown } | { kind: "state"; isOpen: boolean } | { kind: "refused"; status: number } | { kind: "hello" };

/** What the events of a stream describe: the newest one of each is repeated to tabs that come later. */
const subjectOf = (data: unknown): string => {
  const { id, sessionId } = data as { id?: string; sessionId?: string };
  return id ?? sessionId ?? "";
};

/**
 * Follow a stream until the returned function is called. Of the visible tabs, the one that holds the lock reads the stream
 * and passes it on. Without locks (pages that are not secure contexts) each tab reads its own.
 */
export function followShared(path: string, listener: Required<Listener>): () => void {
  if (navigator.locks === undefined) return follow(path, listener);
  const channel = new BroadcastChannel(path);
  const newest = new Map<string, Message>();
  let isOpen = false;
  let isLeading = false;
  let competing: AbortController | null = null;

  const take = (message: Message): void => {
    if (message.kind === "event") listener.onEvent(message.name, message.data);
    if (message.kind === "state") listener.onState(message.isOpen);
    if (message.kind === "refused") listener.onRefused(message.status);
  };
  const pass = (message: Message): void => {
    take(message);
    channel.postMessage(message);
  };
  channel.onmessage = ({ data }: MessageEvent<Message>) => {
    if (data.kind !== "hello") take(data);
    else if (isLeading) [{ kind: "state", isOpen } as Message, ...newest.values()].forEach((each) => channel.postMessage(each));
  };

  const lead = (until: AbortSignal): Promise<void> =>
    new Promise((done) => {
      isLeading = true;
      const stop = follow(path, {
        onState: (state) => {
          if (state) newest.clear(); // it begins with the present state, and tells nothing of what left the workspace meanwhile
          pass({ kind: "state", isOpen: (isOpen = state) });
        },
        onRefused: (status) => pass({ kind: "refused", status }),
        onEvent: (name, data) => {
          const message: Message = { kind: "event", name, data };
          newest.set(subjectOf(data), message);
          pass(message);
        },
      });
      const end = (): void => {
        stop();
        isLeading = false;
        newest.clear();
        done();
      };
      if (until.aborted) end();
      else until.addEventListener("abort", end, { once: true });
    });
  const compete = (): void => {
    competing?.abort();
    competing = null;
    if (document.hidden) return;
    const mine = (competing = new AbortController());
    channel.postMessage({ kind: "hello" } satisfies Message);
    navigator.locks.request(path, { signal: mine.signal }, () => lead(mine.signal)).catch(() => undefined); // aborted
  };
  document.addEventListener("visibilitychange", compete);
  compete();
  return () => {
    document.removeEventListener("visibilitychange", compete);
    competing?.abort();
    channel.close();
  };
}
