// The state that screens share. Everything else is local to its screen.
import { computed, effect, signal } from "@preact/signals";
import { ApiError, api, need, serverNow, type Model } from "./api";
import { explain, isSuspension, isUnreached, unreached, online } from "./errors";
import { usdc } from "./format";
import { forget, keep, remembered } from "./kept";
import { followShared } from "./live/shared";
import { go, place } from "./router";
import { isFromRight, language, t, type Word } from "./strings";

export type Session = Model["Session"];
export type Theme = "system" | "light" | "dark";

export const theme = signal<Theme>((remembered("theme") as Theme | null) ?? "system");
effect(() => {
  document.documentElement.dataset["theme"] = theme.value;
  document.documentElement.lang = language.value;
  document.documentElement.dir = isFromRight() ? "rtl" : "ltr";
  keep("theme", theme.value);
});

/** Server time, advanced every second: the clock of every countdown. */
export const now = signal(serverNow());
setInterval(() => (now.value = serverNow()), 1000);

export const config = signal<Model["ChainConfig"] | null>(null);
/** Why the wallet cannot pay: it is `short` of money, or of `allowance`, or one of its own limits on the contract is too low; with what it can pay. */
export interface Unpayable {
  why: "short" | "allowance" | "per-session" | "per-day";
  most: bigint;
}
/** The field of the wallet's page that raises what is too low; none for money. */
export const fieldOf = ({ why }: Unpayable): string => (why === "short" ? "" : why);
export function unpaidText({ why, most }: Unpayable): string {
  const amount = usdc(most);
  const words = { short: "notEnough", allowance: "overAllowance", "per-session": "overSession", "per-day": "overDay" } as const;
  return t(words[why], { amount });
}
/** Whether the wallet can pay `extra` more, for a session that costs `total` at most. Null if it can, or if its funds are not known. */
export function unpayable(extra: bigint, total: bigint): Unpayable | null {
  const wallet = funds.value;
  if (wallet === null) return null;
  const balance = BigInt(wallet.trackedBalance) - BigInt(wallet.heldMicroUsdc);
  // In escrow the payment is an authorization of its own, which needs no allowance.
  const available = config.value?.isEscrow ? balance : BigInt(wallet.availableMicroUsdc);
  if (available < extra) return { why: balance < extra ? "short" : "allowance", most: available };
  const { limits } = wallet;
  if (limits === null) return null;
  const [each, today] = [BigInt(limits.perSessionMicroUsdc) - (total - extra), BigInt(limits.leftTodayMicroUsdc)];
  const [why, most] = each < today ? (["per-session", each] as const) : (["per-day", today] as const);
  return most < extra ? { why, most: most < 0n ? 0n : most } : null;
}
/** What the wallet could not pay: `extra` more, for a session that costs `total` at most. The wallet's page says what is missing, and
 * leads back to the view that is extended, or to the request. */
export const awaited = signal<{ extra: bigint; total: bigint; view: string | null } | null>(null);
/** Whether a movement into the wallet came from the contract, which returns what it held and was not used. */
export const isReturned = ({ fromAddress }: Model["WalletEvent"]): boolean => fromAddress.toLowerCase() === config.value?.settlementAddress.toLowerCase();
/** undefined: not known yet; null: nobody is signed in. */
export const me = signal<Model["WalletIdentity"] | null | undefined>(undefined);
export const workspace = signal<Model["Workspace"] | null>(null);
/** Workspaces that have invited the wallet, and the invitation of a link that it opened. */
export const invitations = signal<readonly Model["Invitation"][]>([]);
export const funds = signal<Model["Wallet"] | null>(null);
/** Newest known state of the sessions that the workspace's stream told of. */
export const told = signal<ReadonlyMap<string, Session>>(new Map());
export const isConnected = signal(true);
/** Whether the server refuses every call of the workspace, as its administrators decided. */
export const isSuspended = signal(false);

export const canOperate = computed(() => workspace.value?.roles.includes("SUPPLIER") ?? false);
export const canBuy = computed(() => workspace.value?.roles.includes("CONSUMER") ?? false);
/** A member with the role VIEWER reads, and every change is refused. */
export const mayChange = computed(() => me.value?.role !== "VIEWER");
/** The screen that a workspace begins with. */
export const home = computed(() => (canBuy.value ? "buy" : "operate"));

export interface Notice {
  id: number;
  word: Word;
  detail: string;
  isBad: boolean;
  /** Whether what it says still holds. It reads signals, and the notice goes as soon as they change that. */
  holds: () => boolean;
}
const ALWAYS = (): boolean => true;
export const notices = signal<readonly Notice[]>([]);
let noticeCount = 0;
export function notify(word: Word, detail = "", isBad = false, holds = ALWAYS): void {
  const notice = { id: ++noticeCount, word, detail, isBad, holds };
  notices.value = [...notices.value.filter((each) => each.word !== word || each.detail !== detail).slice(-2), notice];
  setTimeout(() => (notices.value = notices.value.filter((each) => each !== notice)), isBad ? 9000 : 5000);
}

// What was done on a screen is no news on the next one, where it would cover a button. What failed stays.
effect(() => {
  void place.value.screen;
  notices.value = notices.peek().filter((each) => each.isBad);
});

effect(() => {
  const [shown, holding] = [notices.value, notices.value.filter((each) => each.holds())];
  if (holding.length < shown.length) notices.value = holding;
});

/** Tell the user what failed. */
export function report(error: unknown): void {
  if (error instanceof ApiError && error.status === 401 && place.value.screen === "camera") {
    notify("cameraKeyGone", t("cameraKeyRefused"), true); // its key, not the sign-in of this browser
  } else if (error instanceof ApiError && error.status === 401) {
    endSignIn();
  } else if (isSuspension(error)) {
    isSuspended.value = true;
  } else if (isUnreached(error)) {
    notify(unreached(), "", true, online.value ? ALWAYS : () => !online.value);
  } else {
    notify("errorAnswer", explain(error), true);
  }
}

/** Read who is signed in, and the workspace if one is selected. The only workspace of a wallet, or the one chosen last, is
 * selected; between several the user chooses. */
export async function refresh(): Promise<void> {
  const chain = readConfig();
  if (remembered("signedIn") === null) {
    await chain;
    leave(); // asking would only be answered 401
    return;
  }
  try {
    const [identity] = await Promise.all([need(api.GET("/api/v1/me")), chain]);
    if (identity.kind !== "wallet_session") throw new ApiError(401, "NOT_AUTHENTICATED", "");
    const id = identity.workspaceId ?? usual(identity);
    if (id !== null && identity.workspaceId === null) {
      forget(choiceOf(identity)); // kept again below, if the server still serves it
      return await select(id);
    }
    workspace.value = id === null ? null : await readWorkspace(id);
    if (id !== null) keep(choiceOf(identity), id);
    me.value = identity;
    isSuspended.value = false;
    void readInvitations();
  } catch (error) {
    if (isSuspension(error)) return report(error);
    if (!(error instanceof ApiError && error.status === 401)) throw error;
    endSignIn();
  }
}

/** The server no longer knows the sign-in. The frame leads to the start, and back to this screen after the next sign-in. */
function endSignIn(): void {
  if (remembered("signedIn") !== null || me.peek()) notify("signedOut", "", true); // another tab may have forgotten it
  leave();
}

const choiceOf = (identity: Model["WalletIdentity"]): string => `workspace.${identity.walletAddress.toLowerCase()}`;

function usual(identity: Model["WalletIdentity"]): string | null {
  const ids = identity.workspaces.map((each) => each.id);
  const chosen = remembered(choiceOf(identity));
  return ids.length === 1 ? (ids[0] ?? null) : chosen !== null && ids.includes(chosen) ? chosen : null;
}

/** Read the invitations, with the one that a link names: the list shows the oldest only. */
export async function readInvitations(): Promise<void> {
  if (!me.value) return;
  const linked = place.value.query.get("invitation");
  try {
    const listed = (await need(api.GET("/api/v1/me/invitations"))).items;
    invitations.value = listed;
    if (linked === null || listed.some((each) => each.id === linked)) return;
    const found = await need(api.GET("/api/v1/me/invitations/{id}", { params: { path: { id: linked } } }));
    invitations.value = [found, ...listed];
  } catch (error) {
    report(error);
  }
}

async function readConfig(): Promise<void> {
  config.value ??= await need(api.GET("/api/v1/config"));
}

async function readWorkspace(id: string): Promise<Model["Workspace"]> {
  const [found] = await Promise.all([need(api.GET("/api/v1/workspaces/{id}", { params: { path: { id } } })), refreshFunds()]);
  return found;
}

/** Forget who is signed in. */
export function leave(): void {
  isSuspended.value = false;
  forget("signedIn");
  me.value = null;
  workspace.value = null;
  invitations.value = [];
  funds.value = null;
  told.value = new Map();
}

export async function refreshFunds(): Promise<void> {
  try {
    funds.value = await need(api.GET("/api/v1/wallet"));
  } catch (error) {
    if (!(error instanceof ApiError && (error.status === 404 || error.status === 403))) throw error;
  }
}

export async function select(workspaceId: string): Promise<void> {
  await need(api.POST("/api/v1/auth/workspace/select", { body: { workspaceId } }));
  told.value = new Map();
  await refresh();
}

export async function signOut(): Promise<void> {
  await need(api.POST("/api/v1/auth/logout")).catch(report);
  go("start"); // first: who signs out does not come back to this screen
  leave();
}

/** The cost never falls: the higher one of two readings is the newer one. */
const withCost = (session: Session, { accruedMicroUsdc, cleanSeconds }: Pick<Session, "accruedMicroUsdc" | "cleanSeconds">): Session =>
  BigInt(accruedMicroUsdc) > BigInt(session.accruedMicroUsdc) ? { ...session, accruedMicroUsdc, cleanSeconds } : session;

export function tell(session: Session): void {
  told.value = new Map(told.value).set(session.id, withCost(session, told.value.get(session.id) ?? session));
}
/** The meter of a session is read more often than the session. */
export function tellMeter(meter: Model["Meter"]): void {
  const known = told.value.get(meter.sessionId);
  if (known !== undefined) tell(withCost(known, meter));
}

/** Another operator may have the session by now: it is no longer a job of this workspace. */
function forgetJob(id: string): void {
  if (told.value.get(id)?.operatorWorkspaceId === workspace.value?.id) drop(id);
}

const drop = (id: string): void => void (told.value = new Map([...told.value].filter(([each]) => each !== id)));

function forgetRequest(id: string): void {
  if (told.value.get(id)?.state === "REQUESTED") drop(id);
}

/** A suspension makes the workspace OFFLINE: ask which it is before either is shown. */
async function learn(sent: Model["Workspace"]): Promise<void> {
  const isNews = sent.availabilityState === "OFFLINE" && workspace.value?.availabilityState !== "OFFLINE";
  const found = isNews ? await need(api.GET("/api/v1/workspaces/{id}", { params: { path: { id: sent.id } } })).catch(report) : sent;
  if (found && workspace.value?.id === sent.id) workspace.value = found;
}

/** Read the workspace's own open sessions again: a stream that begins does not tell which of them ended without it. */
function readMissed(workspaceId: string): void {
  for (const known of told.peek().values()) {
    const isOwn = known.consumerWorkspaceId === workspaceId || known.operatorWorkspaceId === workspaceId;
    if (!isOwn || !["REQUESTED", "ASSIGNED", "LIVE"].includes(known.state)) continue;
    need(api.GET("/api/v1/sessions/{id}", { params: { path: { id: known.id } } })).then(
      (found) => told.value.get(known.id) === known && tell(found), // an event of the stream is newer
      (error: unknown) => {
        // A session of others now, such as a job that was declined. Anything else is read again when the stream is next opened.
        if (error instanceof ApiError && (error.status === 403 || error.status === 404) && told.value.get(known.id) === known) drop(known.id);
      },
    );
  }
}

// One stream of the workspace for all tabs and screens but Camera, which has its own key.
const followed = computed(() => (place.value.screen === "camera" ? null : (workspace.value?.id ?? null)));
effect(() => {
  const id = followed.value;
  if (id === null) return;
  return followShared(`/api/v1/workspaces/${id}/events`, {
    onState: (state) => {
      isConnected.value = state;
      if (state) readMissed(id);
    },
    // Another tab has signed out, or the sign-in was revoked: nothing else may ask until somebody presses a button.
    onRefused: (status) => {
      if (status === 401) void need(api.GET("/api/v1/me")).catch((error: unknown) => {
        if (error instanceof ApiError && error.status === 401) endSignIn();
      });
    },
    onEvent: (name, data) => {
      if (name === "workspace") void learn(data as Model["Workspace"]);
      if (name === "assignment" || name === "session" || name === "request") tell(data as Session);
      if (name === "assignmentClosed") forgetJob((data as { sessionId: string }).sessionId);
      // A request that this workspace accepted is closed as a request, and stays as its session.
      if (name === "requestClosed") forgetRequest((data as { sessionId: string }).sessionId);
    },
  });
});
