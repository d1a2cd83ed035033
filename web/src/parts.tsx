// The few building blocks of every screen.
import type { ComponentChildren } from "preact";
import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { ApiError } from "./api";
import { explain, isSuspension } from "./errors";
import { clock, short, usdc, withoutFee } from "./format";
import { hasMoved } from "./router";
import { now, report } from "./store";
import { t, type Word } from "./strings";

type Children = { children?: ComponentChildren };

const PATHS = {
  eye: "M2 12c3-5 6.500-7 10-7s7 2 10 7c-3 5-6.500 7-10 7s-7-2-10-7Zm10-3a3 3 0 1 0 0 6 3 3 0 0 0 0-6Z",
  list: "M4 6h16M4 12h16M4 18h10",
  wallet: "M3 7h16a2 2 0 0 1 2 2v9a2 2 0 0 1-2 2H5a2 2 0 0 1-2-2V7Zm0 0 12-4v4M16 13.500h2",
  camera: "M3 7h11a2 2 0 0 1 2 2v6a2 2 0 0 1-2 2H3V7Zm13 4 5-3v8l-5-3",
  team: "M9 11a3.500 3.500 0 1 0 0-7 3.500 3.500 0 0 0 0 7Zm-6 9c0-3.500 2.500-6 6-6s6 2.500 6 6M16 4.500a3.500 3.500 0 0 1 0 6.500M18 14.500c2 .8 3 2.800 3 5.500",
  check: "m4 12.500 5 5L20 6.500",
  cross: "M6 6l12 12M18 6 6 18",
  pause: "M8 5v14M16 5v14",
  clock: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18Zm0 4v5l3.500 2",
  pin: "M12 21c5-5.500 7-8.500 7-11.500a7 7 0 0 0-14 0C5 12.500 7 15.500 12 21Zm0-14a2.500 2.500 0 1 0 0 5 2.500 2.500 0 0 0 0-5Z",
  warn: "M12 4 2.500 20h19L12 4Zm0 6v4.500m0 2.500v.1",
  image: "M4 5h16v14H4V5Zm0 11 5-5 4 4 2.500-2.500L20 17M15 9.500v.1",
  download: "M12 4v11m-4.500-4L12 15.500 16.500 11M5 20h14",
  copy: "M9 9h11v11H9V9Zm-4 6H4V4h11v1",
  settings: "M5 8h9m4 0h1M5 16h1m4 0h9M16 6v4M8 14v4",
} as const;
export type IconName = keyof typeof PATHS;

export const Icon = ({ name }: { name: IconName }) => (
  <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
    <path d={PATHS[name]} />
  </svg>
);

/** Moves the focus to an element if what had it is gone: keyboard and screen reader go on there instead of at the top. */
export function useFocusAfter<T extends HTMLElement>(when: readonly unknown[], isAtFirst = false) {
  const node = useRef<T>(null);
  const isFirst = useRef(true);
  useEffect(() => {
    if ((!isFirst.current || isAtFirst) && document.activeElement === document.body) node.current?.focus({ preventScroll: isFirst.current });
    isFirst.current = false;
  }, when);
  return node;
}

/** Names the screen in the browser's tab and history; null changes nothing. */
export const useTitle = (title: string | null): void => useEffect(() => void (title !== null && (document.title = `${title} · Sightline`)), [title]);

/** `when`: the focus goes to the title if a change of these took it away. */
export function Page({ title, lead, aside, when = [], children }: Children & { title: string; lead?: ComponentChildren; aside?: ComponentChildren; when?: readonly unknown[] }) {
  const heading = useFocusAfter<HTMLHeadingElement>(when, hasMoved);
  useTitle(title);
  return (
    <>
      <header class="page-head">
        <div>
          <h1 ref={heading} tabIndex={-1}>{title}</h1>
          {lead !== undefined && <p class="lead">{lead}</p>}
        </div>
        {aside}
      </header>
      {children}
    </>
  );
}

export const Card = ({ title, aside, children, kind = "" }: Children & { title?: string; aside?: ComponentChildren; kind?: string }) => (
  <section class={`card ${kind}`}>
    {title !== undefined && (
      <header class="card-head">
        <h2>{title}</h2>
        {aside}
      </header>
    )}
    {children}
  </section>
);

/** Runs after the effects of what has just changed: Preact runs them by a timer of the next frame, and the second timer follows that one. */
const afterEffects = (then: () => void): unknown => requestAnimationFrame(() => setTimeout(() => setTimeout(then)));

/** Moves the focus to the first of these that is still there, if what had it is gone. */
function focusFirst(places: readonly (HTMLElement | null)[]): void {
  const place = places.find((each) => each?.isConnected);
  if (place == null || document.activeElement !== document.body) return;
  place.tabIndex = -1;
  place.focus();
}

interface ButtonProps extends Children {
  run: () => unknown;
  kind?: "main" | "plain" | "danger" | "quiet";
  disabled?: boolean;
  id?: string;
  /** Of a button that switches something: whether it is on. Its name stays the same. */
  isOn?: boolean;
  /** Id of the element that says why it is disabled. */
  describedBy?: string;
}
/** A button that is busy until its work is done; what fails is shown to the user. The focus stays near if the button is gone then. */
export function Button({ run, kind = "plain", disabled = false, id, isOn, describedBy, children }: ButtonProps) {
  const busy = useSignal(false);
  const click = async ({ currentTarget }: { currentTarget: HTMLElement }): Promise<void> => {
    if (busy.value) return;
    busy.value = true;
    const around = [currentTarget.closest("li"), currentTarget.closest("section")?.querySelector("h2") ?? null];
    try {
      await run();
    } catch (error) {
      report(error);
    } finally {
      busy.value = false;
      // Some browsers give a button no focus at a click: only that of a button which is gone is lost.
      afterEffects(() => currentTarget.isConnected || focusFirst([...around, document.querySelector<HTMLElement>("main h1")]));
    }
  };
  return (
    <button type="button" {...(id !== undefined && { id })} class={`button ${kind}`} disabled={disabled} aria-busy={busy.value} aria-pressed={isOn} aria-describedby={describedBy} onClick={click}>
      {busy.value && <span class="spinner" aria-hidden="true" />}
      {children}
    </button>
  );
}

/** A button that turns something on and off. Its name says what, its state is shown beside it. */
export const Switch = ({ id, isOn, run, children }: Children & { id: string; isOn: boolean; run: () => unknown }) => (
  <Button id={id} isOn={isOn} run={run}>{children}<span class="state" aria-hidden="true">{t(isOn ? "on" : "off")}</span></Button>
);

/** A menu below its button. It closes by Escape, a press elsewhere, another page, and when `closesOn` changes. */
export function Menu({ id, label, closesOn, children }: Children & { id?: string; label: ComponentChildren; closesOn?: unknown }) {
  const box = useRef<HTMLDetailsElement>(null);
  const close = () => { if (box.current !== null) box.current.open = false; };
  useEffect(close, [closesOn]);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.key !== "Escape" || box.current?.open !== true) return;
      close();
      box.current.querySelector("summary")?.focus();
    };
    const onPress = (event: Event) => { if (!(event.target instanceof Node) || box.current?.contains(event.target) !== true) close(); };
    document.addEventListener("keydown", onKey);
    document.addEventListener("pointerdown", onPress);
    addEventListener("hashchange", close);
    return () => {
      document.removeEventListener("keydown", onKey);
      document.removeEventListener("pointerdown", onPress);
      removeEventListener("hashchange", close);
    };
  }, []);
  return (
    <details class="menu" id={id} ref={box} onToggle={() => box.current?.open === true && box.current.lastElementChild?.scrollIntoView({ block: "nearest" })}>
      <summary>{label}</summary>
      <div class="menu-body">{children}</div>
    </details>
  );
}

interface ConfirmProps extends Children {
  /** Of the button that asks. That of the button which acts ends in `-sure`. */
  id?: string;
  run: () => unknown;
  /** What is asked, with the name of what it is about. */
  question: string;
  /** The button that does it. */
  action: string;
}
/** A button that asks before it acts. */
export function Confirm({ id, run, question, action, children }: ConfirmProps) {
  const isAsking = useSignal(false);
  const wasAsking = useRef(false);
  const node = useRef<HTMLDivElement>(null);
  // In the same task as the change: nothing else can find the focus lost, and take it, in between. Whoever takes the
  // question back goes on at the button that asked, as after the Escape of a dialog.
  useLayoutEffect(() => {
    const { activeElement, body } = document;
    if (isAsking.value === wasAsking.current) return;
    wasAsking.current = isAsking.value;
    if (activeElement === body || activeElement === node.current) (isAsking.value ? node.current : node.current?.querySelector("button"))?.focus();
  }, [isAsking.value]);
  return (
    <div ref={node} class="confirm" role="group" aria-label={isAsking.value ? question : action} tabIndex={-1} onKeyDown={(event) => event.key === "Escape" && (isAsking.value = false)}>
      {isAsking.value ? (
        <>
          <p>{question}</p>
          <div class="row">
            <Button kind="danger" {...(id !== undefined && { id: `${id}-sure` })} run={async () => (await run(), (isAsking.value = false))}>{action}</Button>
            <Button run={() => (isAsking.value = false)}>{t("cancel")}</Button>
          </div>
        </>
      ) : (
        <Button kind="danger" {...(id !== undefined && { id })} run={() => (isAsking.value = true)}>{children}</Button>
      )}
    </div>
  );
}

const COPIED_MS = 3000;
/** Copies a text, and says that it did. `name`: shown as an icon, with this name. */
export function Copy({ text, label, name }: { text: string; label?: string; name?: string }) {
  const isCopied = useSignal(false);
  const copy = async (): Promise<void> => {
    await copyText(text);
    isCopied.value = true;
    setTimeout(() => (isCopied.value = false), COPIED_MS);
  };
  return (
    <>
      {name === undefined ? (
        <Button run={copy}>{isCopied.value ? <><Icon name="check" />{t("copied")}</> : (label ?? t("copy"))}</Button>
      ) : (
        <Button kind="quiet" run={copy}><Icon name={isCopied.value ? "check" : "copy"} /><span class="sr">{name}</span></Button>
      )}
      <span class="sr" role="status">{isCopied.value && t("copied")}</span>
    </>
  );
}

async function copyText(text: string): Promise<void> {
  if (isSecureContext) return navigator.clipboard.writeText(text);
  // Pages by http at an address of the local network have no clipboard.
  const before = document.activeElement;
  const field = Object.assign(document.createElement("textarea"), { value: text, className: "sr" });
  document.body.append(field);
  field.select();
  const isDone = document.execCommand("copy");
  field.remove();
  if (before instanceof HTMLElement) before.focus();
  if (!isDone) throw new Error(t("copyFailed"));
}

/** An address or a hash, shortened. The whole of it is its title, and is copied. */
export const Address = ({ value }: { value: string }) => (
  <span class="address">
    <code title={value}>{short(value)}</code>
    <span class="on-paper"><code>{value}</code></span>
    <Copy text={value} name={t("copyOf", { text: short(value) })} />
  </span>
);

/** What is shown once, such as a key or a link. It takes the focus, so that it is read and can be copied at once. */
export function Secret({ id, title, label, value, children }: Children & { id: string; title: string; label: string; value: string }) {
  const field = useRef<HTMLTextAreaElement>(null);
  // In view with what is beside it, such as the code of a link: the focus alone would put the field at an edge.
  useEffect(() => {
    field.current?.focus({ preventScroll: true });
    field.current?.closest(".card, .panel")?.scrollIntoView({ block: "nearest" });
  }, [value]);
  return (
    <Banner kind="good" icon="check">
      <strong id={`${id}-title`}>{title}</strong>
      <div class="secret">
        <textarea id={id} ref={field} dir="ltr" rows={2} readOnly aria-label={label} aria-describedby={`${id}-title`} value={value} onFocus={(event) => event.currentTarget.select()} />
        <Copy text={value} />
        {children !== undefined && <p>{children}</p>}
      </div>
    </Banner>
  );
}

const LOOPBACK = /^(localhost|127(\.\d+){3}|\[::1\]|.+\.localhost)$/;
/** Before a link for another device: its host may mean this computer itself. */
export function Loopback({ url = location.origin }: { url?: string }) {
  const { host, hostname } = new URL(url);
  return LOOPBACK.test(hostname) ? <Banner kind="warn" icon="warn">{t("loopback", { host })}</Banner> : null;
}

export const Field = ({ label, hint, error, children }: Children & { label: string; hint?: string; error?: string }) => (
  <label class={error === undefined ? "field" : "field wrong"}>
    <span class="label">{label}</span>
    {children}
    {error !== undefined ? <span class="hint bad" role="alert">{error}</span> : hint !== undefined && <span class="hint">{hint}</span>}
  </label>
);

/** What a place shows that has nothing else to show. `isPage`: the whole screen is this. */
export const Empty = ({ icon, title, text, isPage = false, children }: Children & { icon: IconName; title: string; text: string; isPage?: boolean }) => {
  useTitle(isPage ? title : null);
  return (
    <div class="empty">
      <span class="empty-icon"><Icon name={icon} /></span>
      {isPage ? <h1>{title}</h1> : <h2>{title}</h2>}
      <p>{text}</p>
      {children}
    </div>
  );
};

export const SUSPENDED_EVERY_MS = 15_000;
/** Stands in place of every screen of a workspace whose calls the server refuses, and asks from time to time whether it still does. */
export function Suspended({ again, children }: Children & { again: () => unknown }) {
  useEffect(() => {
    const timer = setInterval(() => document.hidden || void Promise.resolve(again()).catch(() => undefined), SUSPENDED_EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  return (
    <Empty isPage icon="warn" title={t("suspended")} text={t("suspendedText")}>
      <div class="row centre">
        <Button kind="main" run={again}>{t("checkAgain")}</Button>
        {children}
      </div>
    </Empty>
  );
}

export const Loading = ({ text }: { text?: string }) => (
  <div class="empty" role="status">
    <span class="spinner big" aria-hidden="true" />
    <p>{text ?? t("loading")}</p>
  </div>
);

export const Banner = ({ id, kind, icon, children }: Children & { id?: string; kind: "info" | "warn" | "bad" | "good"; icon?: IconName }) => (
  <div id={id} class={`banner ${kind}`} role="status">
    {icon !== undefined && <Icon name={icon} />}
    <div>{children}</div>
  </div>
);

interface Reading {
  failure: Error | null;
  again: () => Promise<void>;
}
/** How often a list is read again that somebody else may change while it is looked at. */
export const OTHERS_CHANGE_MS = 15_000;

/** Read something now, whenever `when` changes, and every `everyMs` while the page is visible. A failure stays until `again` succeeds. */
export function useReading(read: () => Promise<void>, when: readonly unknown[], everyMs?: number): Reading {
  const failure = useSignal<Error | null>(null);
  const again = async (): Promise<void> => {
    try {
      await read();
      failure.value = null;
    } catch (error) {
      if ((error instanceof ApiError && error.status === 401) || isSuspension(error)) report(error);
      failure.value = error instanceof Error ? error : new Error(String(error));
    }
  };
  useEffect(() => {
    void again();
    if (everyMs === undefined) return;
    const timer = setInterval(() => document.hidden || void again(), everyMs);
    return () => clearInterval(timer);
  }, when);
  return { failure: failure.value, again };
}

/** Stands where something is read: a spinner, or why it could not be read and a button that tries again. */
export const Unread = ({ failure, again, isPage = false }: Reading & { isPage?: boolean }) =>
  failure === null ? (
    <Loading />
  ) : (
    <Empty isPage={isPage} icon="warn" title={t("loadFailed")} text={explain(failure)}>
      <Button kind="main" run={again}>{t("tryAgain")}</Button>
    </Empty>
  );

/** Time left until an instant of the server's clock. */
export const Countdown = ({ until }: { until: number | string }) => {
  const left = ((typeof until === "string" ? Date.parse(until) : until) - now.value) / 1000;
  return <span class="number" role="timer">{clock(left)}</span>;
};

export const Facts = ({ rows }: { rows: readonly (readonly [string, ComponentChildren])[] }) => (
  <dl class="facts">
    {rows.map(([name, value]) => (
      <div key={name}>
        <dt>{name}</dt>
        <dd>{value}</dd>
      </div>
    ))}
  </dl>
);

/** Beside what an operator earns: the charge that it is a part of, and the fee. */
export const grossRows = (charged: string | bigint, feeBps: number): readonly (readonly [string, string])[] => [
  [t("paid"), usdc(charged)],
  [t("fee", { percent: feeBps / 100 }), usdc(BigInt(charged) - withoutFee(charged, feeBps))],
];

const STATE_WORDS: Record<string, Word> = {
  REQUESTED: "stateRequested", ASSIGNED: "stateAssigned", LIVE: "stateLive",
  ENDED: "stateEnded", CANCELLED: "stateCancelled", EXPIRED: "stateExpired",
  ONLINE: "stateOnline", OFFLINE: "stateOffline", SUSPENDED: "stateSuspended", BUSY: "stateBusy", ASKED: "stateAsked", PAUSED: "statePaused",
  PENDING: "statePending", CONFIRMED: "stateConfirmed", NOT_READY: "stateNotReady",
  COMPOSED: "statePending", SIGNED: "statePending", SENT: "statePending", MINED: "statePending",
  INVITED: "stateInvited", FAILED: "stateFailed", REVERTED: "stateReverted", STUCK: "stateStuck", MISMATCHED: "stateMismatched",
};
export const Badge = ({ state }: { state: string }) => {
  const word = STATE_WORDS[state];
  return <span class={`badge ${state.toLowerCase()}`}>{word === undefined ? state : t(word)}</span>;
};
