// What was charged and what was paid. The browser checks it with the chain and the contracts that this service names.
import { useSignal, type Signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { CHECKS, verifyReceipt, type Check, type SkipReason, type Verification } from "sightline-js/receipt";
import { ApiError, api, need, type Model } from "../api";
import { rpc } from "../chain/rpc";
import { clock, dateTime, listed, metres, timeOf, usdc, withoutFee } from "../format";
import { endingOf } from "../live/endings";
import { Messages } from "../live/messages";
import { merged, unchargedOf } from "../live/pauses";
import { UnchargedParts } from "../live/uncharged";
import { Address, Badge, Banner, Button, Card, Empty, Facts, Icon, Page, Unread, grossRows, useReading } from "../parts";
import { AskAgain, extensionsOf } from "../place/again";
import { nameOfPlace, placeOf } from "../place/names";
import { go, link, place } from "../router";
import { isReturned, mayChange, workspace, type Session } from "../store";
import { t, type Word } from "../strings";
import { Shares } from "./shares";

type Data = Model["Receipt"];
const READ_EVERY_MS = 1500;
/** A longer time without a picture is worth a word. Viewers report every three seconds. */
const GAP_MS = 5000;
const CHECK_WORDS: Record<Check, Word> = {
  hashChain: "checkHashChain", cleanSeconds: "checkSeconds", charge: "checkCharge", fee: "checkFee", settled: "checkSettled",
};

const SKIPPED_WORDS: Record<SkipReason, Word> = {
  notSettled: "skippedNotSettled", deploymentMissing: "skippedDeployment", transactionMissing: "skippedTransaction",
};

const REFUSED: Record<string, Word> = { ALLOWANCE: "refusedAllowance", BALANCE: "refusedBalance", SESSION_LIMIT: "refusedLimit", DAY_LIMIT: "refusedLimit" };

export default function Receipt() {
  const id = place.value.id;
  const receipt = useSignal<Data | null>(null);
  const whole = useSignal<Session | null>(null);
  const refunds = useSignal<readonly Model["WalletEvent"][]>([]);
  const refusedFor = useSignal<Model["Settlement"]["refusedFor"]>(null);
  const isMissing = useSignal(false);
  const reading = useReading(async () => {
    try {
      receipt.value = await need(api.GET("/api/v1/sessions/{id}/receipt", { params: { path: { id } } }));
      // Not in the receipt, which proves what it says: why a payment is refused.
      const isPending = receipt.value.settlement.state === "PENDING";
      refusedFor.value = isPending ? (await need(api.GET("/api/v1/settlements/{sessionId}", { params: { path: { sessionId: id } } }))).refusedFor : null;
      // Not in the receipt: what should be in the picture, when pictures reached the consumer, and, for its own side only, who ended it.
      whole.value ??= await need(api.GET("/api/v1/sessions/{id}", { params: { path: { id } } }));
      if (receipt.value.session.consumerWorkspaceId === workspace.value?.id && receipt.value.settlement.state !== "PENDING") refunds.value = await readRefunds(id).catch(() => refunds.value); // the receipt stands without them
    } catch (error) {
      if (error instanceof ApiError && error.status === 409) go("watch", id);
      else if (error instanceof ApiError && [400, 403, 404].includes(error.status)) isMissing.value = true;
      else throw error;
    }
  }, [id]);
  const isOpen = !isMissing.value && (receipt.value === null || receipt.value.settlement.state === "PENDING");
  useEffect(() => {
    if (!isOpen) return;
    const timer = setInterval(() => document.hidden || void reading.again(), READ_EVERY_MS);
    return () => clearInterval(timer);
  }, [isOpen, id]);

  if (isMissing.value)
    return (
      <Empty isPage icon="list" title={t("noSession")} text={t("noSessionText")}>
        <a class="button main" href={link("sessions")}>{t("navSessions")}</a>
      </Empty>
    );
  const shown = receipt.value;
  if (shown === null) return <Unread isPage {...reading} />;
  const { session, settlement } = shown;
  const said = messagesOf(shown.events);
  const endedBy = whole.value?.endedBy ?? null;
  const isOwn = session.consumerWorkspaceId === workspace.value?.id;
  const paid = settlement.payload;
  const isEarned = session.operatorWorkspaceId === workspace.value?.id && !isOwn;
  const charged = paid === null ? session.chargedMicroUsdc : BigInt(paid.toAmount) + BigInt(paid.feeAmount);
  const other = [t(isEarned ? "paid" : "toOperator"), usdc(isEarned ? charged : (paid?.toAmount ?? 0n))] as const;
  return (
    <Page title={t("receiptTitle")} lead={`${dateTime(session.createdAt)} · ${placeOf(session)}`} aside={<Badge state={settlement.mismatched ? "MISMATCHED" : settlement.state} />}>
      <p class="on-paper"><strong>Sightline</strong> · {location.host} · {id}</p>
      <div class="columns">
        <div class="stack">
          <Card title={t(isEarned ? "earned" : "paid")} aside={<div class="row"><Button id="print" kind="quiet" run={() => print()}>{t("print")}</Button><Download receipt={shown} /></div>}>
            {settlement.mismatched && <Banner kind="bad" icon="warn">{t("mismatched")}</Banner>}
            <p class="price"><span class="number" id="charged">{usdc(!isEarned ? session.chargedMicroUsdc : (paid?.toAmount ?? withoutFee(session.chargedMicroUsdc, session.platformFeeBps)))}</span></p>
            <Facts
              rows={[
                [t("proved"), clock(session.cleanSeconds)],
                ...(isEarned && paid === null ? grossRows(session.chargedMicroUsdc, session.platformFeeBps) : []),
                [t(isEarned ? "chargedPerSecond" : "ratePerSecond"), usdc(session.ratePerSecondMicroUsdc)],
                ...(paid === null || !settlement.mismatched ? [] : [[t("settledSeconds"), clock(paid.chargeableSeconds)] as const]),
                ...(paid === null ? [] : ([
                  other,
                  [t("fee", { percent: paid.platformFeeBps / 100 }), usdc(paid.feeAmount)],
                  [t("from"), <Address value={paid.from} />],
                  [t("to"), <Address value={paid.to} />],
                ] as const)),
                ...(settlement.txHash === null ? [] : [[t("transaction"), <Address value={settlement.txHash} />] as const]),
                ...(refunds.value.some(isReturned) ? [[t("heldBefore"), usdc(session.holdMicroUsdc)] as const] : []),
                ...returnedRows(refunds.value),
              ]}
            />
            {settlement.state === "PENDING" && refusedFor.value === null && <Banner kind="info" icon="clock">{t("settlementPending")}</Banner>}
            {refusedFor.value !== null && <div id="refused-payment"><Banner kind="bad" icon="warn">{t(isEarned ? "notCollected" : (REFUSED[refusedFor.value] ?? "refusedOther"))}</Banner></div>}
          </Card>
          <Card title={t("timeline")}>
            <Timeline session={session} meter={shown.meter} delivery={whole.value?.delivery ?? null} />
            <p class="hint" id="ending">{endingOf(session, workspace.value?.id)}</p>
            {endedBy !== null && <Facts rows={[[t(endedBy.kind === "WALLET" ? "endedByWallet" : "endedByKey"), <Address value={endedBy.id} />]]} />}
          </Card>
        </div>
        <div class="stack">
          <Asked receipt={shown} whole={whole.value} isEarned={isEarned} />
          <Verify receipt={receipt} />
          {isOwn && <Shares id={id} endedAt={session.endedAt} name={nameOfPlace(session)} />}
          {said.length > 0 && <Card title={t("messages")}><Messages messages={said} /></Card>}
        </div>
      </div>
    </Page>
  );
}

/** What was agreed before and during the view. */
function Asked({ receipt: { session, events }, whole, isEarned }: { receipt: Data; whole: Session | null; isEarned: boolean }) {
  const extensions = extensionsOf(events);
  const asked = session.maxDurationSeconds - extensions.reduce((sum, each) => sum + each, 0);
  return (
    <Card title={t("theRequest")}>
      {whole?.instructions && <p class="wish" id="asked-instructions">{whole.instructions}</p>}
      <Facts
        rows={[
          [t("askedFor"), <span id="asked-for">{clock(asked)}</span>],
          ...(extensions.length === 0 ? [] : [[t("extendedBy"), <span id="extended-by">{listed(extensions.map(clock))}</span>] as const]),
          [t("radius"), metres(session.radiusMeters)],
          isEarned ? [t("earnAtMost"), usdc(withoutFee(session.holdMicroUsdc, session.platformFeeBps))] : [t("agreedMost"), usdc(session.holdMicroUsdc)],
        ]}
      />
      {whole !== null && whole.consumerWorkspaceId === workspace.value?.id && mayChange.value && <AskAgain session={whole} />}
    </Card>
  );
}

/** What the consumer told the operator, by the recorded events. */
const messagesOf = (events: Data["events"]): Omit<Model["OperatorMessage"], "shown">[] =>
  events.filter(({ kind }) => kind === "MESSAGE").map(({ sequence, atMs, facts }) => ({
    number: sequence, sentAt: new Date(atMs).toISOString(), text: String(facts.find(({ name }) => name === "text")?.value ?? ""),
  }));

/** They are movements of the payer's wallet, so they are on the receipt of its own side only. */
async function readRefunds(sessionId: string): Promise<readonly Model["WalletEvent"][]> {
  const query = { sessionId, kind: ["TRANSFER_IN" as const], limit: 100 };
  return (await need(api.GET("/api/v1/wallet/events", { params: { query } }))).items.filter((each) => !each.removed);
}

/** What the contract gave back of the amount that it held, and what the service has paid back. */
function returnedRows(found: readonly Model["WalletEvent"][]): (readonly [string, ComponentChildren])[] {
  const returned = found.filter(isReturned);
  const refunded = found.filter((each) => !isReturned(each));
  const rows = [["returned", "statementReturned", returned], ["refunded", "statementRefunded", refunded]] as const;
  return rows.filter(([, , events]) => events.length > 0).map(([id, word, events]) => [
    t(word),
    <span id={id} class="stack">
      {usdc(events.reduce((sum, each) => sum + BigInt(each.amountMicroUsdc), 0n))}
      {events.map((each) => <Address key={each.id} value={each.txHash} />)}
    </span>,
  ]);
}

function Download({ receipt }: { receipt: Data }) {
  const save = (): void => {
    const url = URL.createObjectURL(new Blob([JSON.stringify(receipt, null, 2)], { type: "application/json" }));
    const anchor = document.createElement("a");
    anchor.href = url;
    anchor.download = `sightline-receipt-${receipt.session.id}.json`;
    anchor.click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  };
  return <Button kind="quiet" run={save}><Icon name="download" />JSON</Button>;
}

function Verify({ receipt }: { receipt: Signal<Data | null> }) {
  const result = useSignal<Verification | null>(null);
  const verify = async (): Promise<void> => {
    // Read again: what is checked is what the server says now, together with what the chain says.
    const shown = receipt.value;
    if (shown === null) return;
    const fresh = await need(api.GET("/api/v1/sessions/{id}/receipt", { params: { path: { id: shown.session.id } } }));
    receipt.value = fresh;
    const deployment = await need(api.GET("/api/v1/config"));
    const hash = fresh.settlement.txHash;
    const chain = hash === null ? null : { chainId: Number(await rpc<string>("eth_chainId")), receipt: await rpc("eth_getTransactionReceipt", hash) };
    result.value = verifyReceipt(fresh, deployment, chain);
  };
  const found = result.value;
  const isGood = found !== null && found.failures.length === 0;
  return (
    <Card title={t("verifyTitle")}>
      <p class="dim">{t("verifyText")} {t("verifyLimits")}</p>
      <ul class="checks" aria-live="polite">
        {CHECKS.map((check) => {
          const failures = found?.failures.filter((each) => each.check === check) ?? [];
          const skipped = found?.skipped.get(check);
          const state = found === null ? "open" : failures.length > 0 ? "wrong" : skipped !== undefined ? "skipped" : "right";
          return (
            <li key={check} class={state} data-check={check} data-state={state}>
              <span class="check-mark" aria-hidden="true">{state === "right" ? <Icon name="check" /> : state === "wrong" ? <Icon name="cross" /> : null}</span>
              <div>
                {t(CHECK_WORDS[check])}
                {(state === "right" || state === "wrong") && <span class="sr">: {t(state === "right" ? "checkRight" : "checkWrong")}</span>}
                {skipped !== undefined && <small class="dim">{t(SKIPPED_WORDS[skipped])}</small>}
                {failures.map((each) => (
                  <small key={each.line} class="bad"><code>{each.line}</code> {each.message}</small>
                ))}
              </div>
            </li>
          );
        })}
      </ul>
      {found !== null && <Banner kind={isGood ? "good" : "bad"} icon={isGood ? "check" : "warn"}>{t(isGood ? (found.skipped.size > 0 ? "verifiedSoFar" : "verified") : "notVerified")}</Banner>}
      <Button id="verify" kind={found === null ? "main" : "plain"} run={verify}>{t(found === null ? "verify" : "verifyAgain")}</Button>
    </Card>
  );
}

function Timeline({ session, meter, delivery }: Pick<Data, "session" | "meter"> & Pick<Session, "delivery">) {
  if (session.startedAt === null) return <p class="dim">{t("neverLive")}</p>;
  const start = Date.parse(session.startedAt);
  const end = Date.parse(session.endedAt);
  const length = Math.max(1, end - start);
  const { seconds: notCharged, parts } = unchargedOf({ ...session, startedAt: session.startedAt }, meter.windows);
  return (
    <>
      <div class="timeline" role="img" aria-label={t("timelineOf", { count: merged(meter.windows, end).length })}>
        {meter.windows.map((each) => {
          const from = Math.max(start, Date.parse(each.from));
          const to = Math.min(end, each.to === null ? end : Date.parse(each.to));
          const place = (node: HTMLSpanElement | null): void => {
            if (node === null) return;
            node.style.insetInlineStart = `${((from - start) / length) * 100}%`;
            node.style.width = `${(Math.max(0, to - from) / length) * 100}%`;
          };
          return <span key={each.from} ref={place} />;
        })}
      </div>
      <div class="timeline-ends"><span>{timeOf(session.startedAt)}</span><span>{timeOf(session.endedAt)}</span></div>
      <Facts
        rows={[
          [t("lasted"), clock(length / 1000)],
          [t("proved"), clock(session.cleanSeconds)],
          [t("notCharged"), <strong id="not-charged">{clock(notCharged)}</strong>],
          [t("pictureBetween"), <span id="delivered">{delivery === null ? t("pictureUnknown") : `${timeOf(delivery.firstAt)} – ${timeOf(delivery.lastAt)}`}{delivery !== null && delivery.longestGapMs >= GAP_MS && <small class="dim"> {t("pictureGap", { time: clock(delivery.longestGapMs / 1000) })}</small>}</span>],
        ]}
      />
      {meter.windows.length === 0 ? (
        <p class="dim">{t("noPauses")}</p>
      ) : (
        <>
        <h3>{t("pauseReasons")}</h3>
        <UnchargedParts parts={parts} />
        </>
      )}
    </>
  );
}
