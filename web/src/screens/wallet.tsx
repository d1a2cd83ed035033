// Money: what is there, what may be taken, what is held, and every movement on the chain.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api, need, type Model } from "../api";
import { encodeCall, read } from "../chain/rpc";
import { lastSigner } from "../chain/signer";
import { dateTime, microOf, short, usdc } from "../format";
import { Banner, Button, Card, Empty, Facts, Field, Page, Unread, useReading } from "../parts";
import { link } from "../router";
import { config, funds, notify, refreshFunds, report } from "../store";
import { t, type Word } from "../strings";

type Entry = Model["WalletEvent"];
const KINDS: Record<string, Word> = {
  DEPOSIT: "kindDeposit", WITHDRAWAL: "kindWithdrawal", APPROVAL: "kindApproval",
  SETTLEMENT: "kindSettlement", TRANSFER_IN: "kindIn", TRANSFER_OUT: "kindOut",
};

export default function Wallet() {
  useEffect(() => {
    refreshFunds().catch(report);
  }, []);
  const shown = funds.value;
  if (shown === null) return <Page title={t("navWallet")}><Empty icon="wallet" title={t("noWallet")} text={t("noWalletText")} /></Page>;
  return (
    <Page title={t("navWallet")} lead={shown.walletAddress}>
      <div class="columns">
        <Card title={t("available")}>
          <p class="price"><span class="number" id="available">{usdc(shown.availableMicroUsdc)}</span></p>
          <Facts
            rows={[
              [t("balance"), usdc(shown.trackedBalance)],
              [t("allowance"), usdc(shown.trackedAllowance)],
              [t("held"), usdc(shown.heldMicroUsdc)],
            ]}
          />
          <p class="hint">{t("walletBlock", { block: shown.lastSyncBlock })}</p>
          {BigInt(shown.trackedBalance) === 0n && <Banner kind="info">{t("noMoneyYet")} <a href={link("start")}>{t("checklist")}</a></Banner>}
        </Card>
        <Limits address={shown.walletAddress} allowance={BigInt(shown.trackedAllowance)} />
      </div>
      <Ledger />
    </Page>
  );
}

function Limits({ address, allowance }: { address: string; allowance: bigint }) {
  const approve = useSignal("");
  const session = useSignal("");
  const day = useSignal("");
  const onChain = useSignal<{ perSession: bigint; perDay: bigint; isSet: boolean } | null>(null);
  const load = async (): Promise<void> => {
    const chain = config.value;
    if (chain === null) return;
    const [perSession = 0n, perDay = 0n, isSet = 0n] = await read(chain.settlementAddress, "limits(address)", address);
    onChain.value = { perSession, perDay, isSet: isSet === 1n };
  };
  useEffect(() => {
    load().catch(report);
  }, [address]);
  const send = async (to: string, data: string): Promise<void> => {
    const signer = await lastSigner();
    if (signer === null || signer.address.toLowerCase() !== address.toLowerCase()) throw new Error(t("walletGone"));
    await signer.send(to, data);
  };
  const amount = microOf(approve.value);
  const [perSession, perDay] = [microOf(session.value), microOf(day.value)];
  const allow = async (): Promise<void> => {
    const chain = config.value;
    if (chain === null || amount === null) return;
    await send(chain.usdcAddress, encodeCall("approve(address,uint256)", chain.settlementAddress, amount));
    for (let tries = 0; tries < 20 && BigInt(funds.value?.trackedAllowance ?? "0") !== amount; tries++) {
      await new Promise((done) => setTimeout(done, 300));
      await refreshFunds();
    }
    approve.value = "";
    notify("allowed");
  };
  const limit = async (): Promise<void> => {
    const chain = config.value;
    if (chain === null || perSession === null || perDay === null) return;
    await send(chain.settlementAddress, encodeCall("setLimits(uint256,uint256)", perSession, perDay));
    await load();
    notify("saved");
  };
  const set = onChain.value;
  const wrong = (text: string, value: bigint | null): { error?: string } => (text !== "" && value === null ? { error: t("amountWrong") } : {});
  return (
    <Card title={t("spendingLimits")}>
      <p class="dim">{t("spendingLimitsText")}</p>
      <form class="form" onSubmit={(event) => event.preventDefault()}>
        <Field label={t("allowanceNew")} hint={t("allowanceNow", { amount: usdc(allowance) })} {...wrong(approve.value, amount)}>
          <div class="with-button">
            <input id="allowance" inputMode="decimal" value={approve.value} placeholder="25.00" onInput={(event) => (approve.value = event.currentTarget.value)} />
            <Button disabled={amount === null} run={allow}>{t("set")}</Button>
          </div>
        </Field>
        <div class="pair">
          <Field label={t("perSession")} hint={set?.isSet ? usdc(set.perSession) : t("noLimit")} {...wrong(session.value, perSession)}>
            <input inputMode="decimal" value={session.value} placeholder="5.00" onInput={(event) => (session.value = event.currentTarget.value)} />
          </Field>
          <Field label={t("perDay")} hint={set?.isSet ? usdc(set.perDay) : t("noLimit")} {...wrong(day.value, perDay)}>
            <input inputMode="decimal" value={day.value} placeholder="20.00" onInput={(event) => (day.value = event.currentTarget.value)} />
          </Field>
        </div>
        <Button disabled={perSession === null || perDay === null} run={limit}>{t("setOnChain")}</Button>
      </form>
    </Card>
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
  const word = KINDS[entry.kind];
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
