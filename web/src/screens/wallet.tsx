// Money: what is there, what may be taken, what is held, and every movement on the chain.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api, ApiError, need, once, type Model } from "../api";
import { TEST_MONEY, hasFaucet, takeTestMoney } from "../chain/faucet";
import { setAllowance, signMandate } from "../chain/payment";
import { encodeCall, read } from "../chain/rpc";
import { lastSigner } from "../chain/signer";
import type { Signer } from "../chain/wallet";
import { dateTime, microOf, short, usdc } from "../format";
import { Banner, Button, Card, Empty, Facts, Field, Page, Unread, useReading } from "../parts";
import { link, place } from "../router";
import { awaited, canBuy, config, funds, isReturned, notify, refreshFunds, report, unpaidText, unpayable } from "../store";
import { t, type Word } from "../strings";
import { Statements } from "./statements";

type Entry = Model["WalletEvent"];
const KINDS: Record<string, Word> = {
  DEPOSIT: "kindDeposit", WITHDRAWAL: "kindWithdrawal", APPROVAL: "kindApproval",
  SETTLEMENT: "kindSettlement", TRANSFER_IN: "kindIn", TRANSFER_OUT: "kindOut",
};

const FUNDS_EVERY_MS = 5_000; // amounts change a while after the session, when the chain has it

export default function Wallet() {
  useEffect(() => {
    refreshFunds().catch(report);
    const timer = setInterval(() => document.hidden || void refreshFunds().catch(() => undefined), FUNDS_EVERY_MS);
    return () => {
      clearInterval(timer);
      if (place.value.screen !== "wallet") awaited.value = null;
    };
  }, []);
  const shown = funds.value;
  if (shown === null) return <Page title={t("navWallet")}><Empty icon="wallet" title={t("noWallet")} text={t("noWalletText")} /></Page>;
  return (
    <Page title={t("navWallet")} lead={shown.walletAddress}>
      {awaited.value !== null && <Awaited {...awaited.value} />}
      {canBuy.value || BigInt(shown.trackedAllowance) > 0n ? (
        <div class="columns">
          <Spendable shown={shown} />
          <Limits address={shown.walletAddress} allowance={BigInt(shown.trackedAllowance)} />
        </div>
      ) : (
        <Received shown={shown} />
      )}
      <Statements />
      <Ledger />
    </Page>
  );
}

/** What the request or the extension that led here lacks, or that nothing is missing any more. */
function Awaited({ extra, total, view }: NonNullable<typeof awaited.value>) {
  const unpaid = unpayable(extra, total);
  const missing = t(view === null ? "requestMissing" : "extensionMissing", { amount: usdc(extra - (unpaid?.most ?? 0n)) });
  return (
    <Banner id="awaited" kind={unpaid === null ? "good" : "info"} icon={unpaid === null ? "check" : "wallet"}>
      {unpaid === null ? t(view === null ? "requestPayable" : "extensionPayable") : `${missing} ${unpaidText(unpaid)}`}{" "}
      <a id="to-request" href={view === null ? link("buy") : link("watch", view)}>{t(view === null ? "backToRequest" : "backToView")}</a>
    </Banner>
  );
}

function Spendable({ shown }: { shown: Model["Wallet"] }) {
  const fund = async (): Promise<void> => {
    if (await takeTestMoney()) notify("funded");
  };
  // In escrow the wallet signs each view of this console, which needs no allowance.
  const available = config.value?.isEscrow ? BigInt(shown.trackedBalance) - BigInt(shown.heldMicroUsdc) : shown.availableMicroUsdc;
  return (
    <Card title={t("available")}>
      <p class="price"><span class="number" id="available">{usdc(available)}</span></p>
      <Facts
        rows={[
          [t("balance"), usdc(shown.trackedBalance)],
          [t("allowance"), usdc(shown.trackedAllowance)],
          [t("held"), usdc(shown.heldMicroUsdc)],
          ...(shown.limits === null ? [] : [[t("leftToday"), <span id="left-today">{usdc(shown.limits.leftTodayMicroUsdc)}</span>] as const]),
          ...(config.value?.isEscrow ? [[t("inEscrow"), usdc(shown.escrowedMicroUsdc)] as const] : []),
        ]}
      />
      <p class="hint">{t("walletBlock", { block: shown.lastSyncBlock })}</p>
      {BigInt(shown.trackedBalance) === 0n && <Banner kind="info">{t("noMoneyYet")} <a href={link("start")}>{t("checklist")}</a></Banner>}
      {config.value?.environment === "TEST" && hasFaucet.value && <Button id="faucet" run={fund}>{t("getTestMoney", { amount: usdc(TEST_MONEY) })}</Button>}
    </Card>
  );
}

/** Of a workspace that only films, and lets nothing be taken: no allowance, hold or limit concerns it. */
const Received = ({ shown }: { shown: Model["Wallet"] }) => (
  <Card title={t("balance")}>
    <p class="price"><span class="number" id="balance">{usdc(shown.trackedBalance)}</span></p>
    <p class="hint">{t("receivedHint")} {t("walletBlock", { block: shown.lastSyncBlock })}</p>
  </Card>
);

/** An allowance that is enough for what led here, in whole cents; nothing if it is not what is missing. */
function suggested(allowance: bigint): string {
  const { extra, total } = awaited.peek() ?? { extra: 0n, total: 0n };
  const unpaid = unpayable(extra, total);
  if (unpaid?.why !== "allowance") return "";
  return inCents(allowance + extra - unpaid.most);
}

/** An amount for a field, in whole cents, never less. */
function inCents(micro: bigint): string {
  const cents = (micro + 9_999n) / 10_000n;
  return `${cents / 100n}.${String(cents % 100n).padStart(2, "0")}`;
}

/** Wait until the service has read from the chain what was set there, and show what it means for what led here. */
async function untilRead(isRead: (wallet: Model["Wallet"]) => boolean): Promise<void> {
  for (let tries = 0; tries < 20 && (funds.value === null || !isRead(funds.value)); tries++) {
    await new Promise((done) => setTimeout(done, 300));
    await refreshFunds();
  }
  document.getElementById("awaited")?.scrollIntoView({ block: "center" });
}

function Limits({ address, allowance }: { address: string; allowance: bigint }) {
  const approve = useSignal(suggested(allowance));
  const amount = microOf(approve.value);
  // The link that led here may name the field that is too low.
  useEffect(() => document.getElementById(place.value.id)?.focus(), []);
  const allow = async (): Promise<void> => {
    const chain = config.value;
    if (chain === null || amount === null) return;
    const signer = await signerOf(address);
    await setAllowance(chain, signer, amount);
    await untilRead((wallet) => BigInt(wallet.trackedAllowance) === amount);
    approve.value = "";
    notify("allowed");
  };
  return (
    <Card title={t("spendingLimits")}>
      <p class="dim">{t(config.value?.isEscrow ? "mandateText" : "spendingLimitsText")}</p>
      <form class="form" onSubmit={(event) => event.preventDefault()} onKeyDown={pressNext}>
        <Field label={t("allowanceNew")} hint={t(config.value?.isEscrow ? "allowanceNowEscrow" : "allowanceNow", { amount: usdc(allowance) })} {...wrong(approve.value, amount)}>
          <div class="with-button">
            <input id="allowance" inputMode="decimal" value={approve.value} placeholder="25.00" onInput={(event) => (approve.value = event.currentTarget.value)} />
            <Button disabled={amount === null} run={allow}>{t("set")}</Button>
          </div>
        </Field>
        {config.value?.isEscrow ? <MandateLimits address={address} /> : <ContractLimits address={address} />}
      </form>
    </Card>
  );
}

/** Enter in a field presses the button that belongs to it: the form has several. */
function pressNext(event: KeyboardEvent): void {
  const field = event.target;
  if (event.key !== "Enter" || !(field instanceof HTMLInputElement)) return;
  const buttons = [...(field.form?.querySelectorAll("button") ?? [])];
  buttons.find((each) => field.compareDocumentPosition(each) & Node.DOCUMENT_POSITION_FOLLOWING)?.click();
}

async function signerOf(address: string): Promise<Signer> {
  const signer = await lastSigner();
  if (signer === null || signer.address.toLowerCase() !== address.toLowerCase()) throw new Error(t("walletGone"));
  return signer;
}

const wrong = (text: string, value: bigint | null): { error?: string } => (text !== "" && value === null ? { error: t("amountWrong") } : {});

/** Limits that the settlement contract keeps. */
function ContractLimits({ address }: { address: string }) {
  const set = useSignal<Pair | null>(null);
  const load = async (): Promise<void> => {
    const chain = config.value;
    if (chain === null) return;
    const [perSession = 0n, perDay = 0n, isSet = 0n] = await read(chain.settlementAddress, "limits(address)", address);
    set.value = isSet === 1n ? { perSession, perDay } : null;
  };
  useEffect(() => {
    load().catch(report);
  }, [address]);
  const limit = async ({ perSession, perDay }: Pair): Promise<void> => {
    const chain = config.value;
    if (chain === null) return;
    await (await signerOf(address)).send(chain.settlementAddress, encodeCall("setLimits(uint256,uint256)", perSession, perDay));
    await load();
    await untilRead(({ limits }) => limits?.perSessionMicroUsdc === String(perSession) && limits.perDayMicroUsdc === String(perDay));
    notify("saved");
  };
  const clear = async (): Promise<void> => {
    if (config.value === null) return;
    await (await signerOf(address)).send(config.value.settlementAddress, encodeCall("clearLimits()"));
    await load();
    await untilRead(({ limits }) => limits === null);
    notify("saved");
  };
  return (
    <>
      <LimitPair now={set.value} none="noLimit" action="setOnChain" run={limit} />
      {set.value !== null && <Button id="clear-limits" kind="quiet" run={clear}>{t("clearLimits")}</Button>}
    </>
  );
}

/** Limits that the wallet signs, within which API keys pay from escrow. */
function MandateLimits({ address }: { address: string }) {
  const stored = useSignal<Model["StoredMandate"] | null>(null);
  const load = async (): Promise<void> => {
    stored.value = await need(api.GET("/api/v1/wallet/mandate")).catch((error: unknown) => {
      if (error instanceof ApiError && error.detail === "wallet:mandate") return null;
      throw error;
    });
  };
  useEffect(() => {
    load().catch(report);
  }, [address]);
  const sign = async ({ perSession, perDay }: Pair): Promise<void> => {
    const chain = config.value;
    if (chain === null) return;
    const body = await signMandate(chain, await signerOf(address), perSession, perDay);
    await need(api.PUT("/api/v1/wallet/mandate", { params: { header: once() }, body }));
    await load();
    notify("saved");
  };
  const drop = async (): Promise<void> => {
    await need(api.DELETE("/api/v1/wallet/mandate", { params: { header: once() } }));
    await load();
  };
  const now = stored.value;
  const pair = now === null ? null : { perSession: BigInt(now.maxPerSession), perDay: BigInt(now.maxPerDay) };
  return (
    <>
      <LimitPair now={pair} none="noMandate" action="signLimits" run={sign} />
      {now !== null && (
        <>
          <p class="hint">{t("mandateUntil", { time: dateTime(new Date(now.validUntil * 1_000).toISOString()) })}</p>
          <Button kind="quiet" run={drop}>{t("dropMandate")}</Button>
        </>
      )}
    </>
  );
}

type Pair = { perSession: bigint; perDay: bigint };

/** Limits that let what led here be paid; null if the present ones do. */
function enough({ perSession, perDay }: Pair): Pair | null {
  const [wanted, limits] = [awaited.peek(), funds.peek()?.limits];
  if (wanted === null || !limits) return null;
  const day = BigInt(limits.perDayMicroUsdc) - BigInt(limits.leftTodayMicroUsdc) + wanted.extra;
  if (wanted.total <= perSession && day <= perDay) return null;
  return { perSession: wanted.total > perSession ? wanted.total : perSession, perDay: day > perDay ? day : perDay };
}

function LimitPair({ now, none, action, run }: { now: Pair | null; none: Word; action: Word; run: (limits: Pair) => Promise<void> }) {
  const session = useSignal("");
  const day = useSignal("");
  useEffect(() => {
    const wanted = now === null ? null : enough(now);
    if (wanted !== null && session.peek() === "" && day.peek() === "") [session.value, day.value] = [inCents(wanted.perSession), inCents(wanted.perDay)];
  }, [now?.perSession, now?.perDay]);
  const chosen = (text: string, present: bigint | undefined): bigint | null => (text.trim() === "" ? (present ?? null) : microOf(text));
  const [perSession, perDay] = [chosen(session.value, now?.perSession), chosen(day.value, now?.perDay)];
  const send = async (): Promise<void> => {
    if (perSession === null || perDay === null) return;
    await run({ perSession, perDay });
    session.value = day.value = "";
  };
  const isEmpty = session.value.trim() === "" && day.value.trim() === "";
  const isDayLower = isEmpty ? now !== null && now.perDay < now.perSession : perSession !== null && perDay !== null && perDay < perSession;
  const missing = now !== null ? null : session.value.trim() !== "" && day.value.trim() === "" ? "perDay" : session.value.trim() === "" && day.value.trim() !== "" ? "perSession" : null;
  return (
    <>
      <div class="pair">
        <Field label={t("perSession")} hint={now === null ? t(none) : usdc(now.perSession)} {...wrong(session.value, perSession)}>
          <input id="per-session" inputMode="decimal" value={session.value} placeholder={now === null ? "5.00" : inCents(now.perSession)} onInput={(event) => (session.value = event.currentTarget.value)} />
        </Field>
        <Field label={t("perDay")} hint={now === null ? t(none) : usdc(now.perDay)} {...wrong(day.value, perDay)}>
          <input id="per-day" inputMode="decimal" value={day.value} placeholder={now === null ? "20.00" : inCents(now.perDay)} onInput={(event) => (day.value = event.currentTarget.value)} />
        </Field>
      </div>
      <Button id="set-limits" describedBy="set-limits-hint" disabled={isEmpty || perSession === null || perDay === null} run={send}>{t(action)}</Button>
      <p id="set-limits-hint" class="hint" role="status">{missing !== null ? t("limitMissing", { field: t(missing) }) : t(isDayLower ? "dayLower" : now === null ? "limitsTogether" : "limitsKept")}</p>
    </>
  );
}

function Ledger() {
  const items = useSignal<readonly Entry[] | null>(null);
  const following = useSignal<string | null>(null);
  const load = async (cursor: string | null): Promise<void> => {
    const page = await need(api.GET("/api/v1/wallet/events", { params: { query: { limit: 20, ...(cursor !== null && { cursor }) } } }));
    items.value = cursor === null ? page.items : [...(items.value ?? []), ...page.items];
    following.value = page.nextCursor;
  };
  const reading = useReading(() => load(null), [funds.value?.trackedBalance, funds.value?.trackedAllowance]);
  return (
    <Card title={t("ledger")}>
      {items.value === null ? (
        <Unread {...reading} />
      ) : items.value.length === 0 ? (
        <Empty icon="list" title={t("noEntries")} text={t("noEntriesText")} />
      ) : (
        <ul class="rows">
          {paymentsAsOne(items.value).map((each) => <EntryRow key={each.id} entry={each} />)}
        </ul>
      )}
      {following.value !== null && <Button run={() => load(following.value)}>{t("more")}</Button>}
    </Card>
  );
}

/** A payment moves money twice on the chain, to the operator and as the fee. It is one line here, as on the receipt. */
function paymentsAsOne(entries: readonly Entry[]): Entry[] {
  const lines: Entry[] = [];
  for (const entry of entries) {
    const before = lines.at(-1);
    const isSame = entry.kind === "SETTLEMENT" && before?.kind === "SETTLEMENT" && before.txHash === entry.txHash && before.fromAddress === entry.fromAddress;
    if (isSame && before.sessionId === entry.sessionId) {
      lines[lines.length - 1] = { ...before, amountMicroUsdc: String(BigInt(before.amountMicroUsdc) + BigInt(entry.amountMicroUsdc)) };
    } else lines.push(entry);
  }
  return lines;
}

function EntryRow({ entry }: { entry: Entry }) {
  const isOut = entry.fromAddress.toLowerCase() === funds.value?.walletAddress.toLowerCase() && entry.kind !== "APPROVAL";
  // What a session gave back: other money that comes in belongs to none.
  const isHeld = isOut && entry.kind === "TRANSFER_OUT" && entry.toAddress.toLowerCase() === config.value?.settlementAddress.toLowerCase();
  const word = isHeld ? "kindHeld" : entry.kind === "TRANSFER_IN" && entry.sessionId !== null ? (isReturned(entry) ? "statementReturned" : "kindRefund") : KINDS[entry.kind];
  const amount = BigInt(entry.amountMicroUsdc);
  return (
    <li class={entry.removed ? "removed" : ""}>
      <div class="list-main">
        <strong>{word === undefined ? entry.kind : t(word)}{entry.removed && ` (${t("removed")})`}</strong>
        <small>
          {dateTime(entry.createdAt)} · {entry.sessionId === null ? <code>{short(entry.txHash)}</code> : <a href={link("receipt", entry.sessionId)}>{t("receiptTitle")}</a>}
        </small>
      </div>
      <span class="number">{entry.kind === "APPROVAL" ? usdc(amount) : usdc(isOut ? -amount : amount, true)}</span>
    </li>
  );
}
