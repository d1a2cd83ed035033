// Statements of the workspace by month: what views cost with the invoice, and what filming earned.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api, need, type Model } from "../api";
import { dateTime, monthsSince, usdc } from "../format";
import { Banner, Button, Card, Empty, Facts, Field, Icon, Unread, useReading } from "../parts";
import { calledIn } from "../place/names";
import { link } from "../router";
import { canBuy, canOperate, config, funds, now, workspace } from "../store";
import { locale, t } from "../strings";

type Statement = Model["MonthStatement"];
const LISTED_AT_FIRST = 10;
/** A session is in the books when its block is final, a while after its receipt. */
const READ_EVERY_MS = 10_000;

/** At most so many sessions are in one answer. */
const SESSIONS_MAX = 100;
/** What the sessions were called, by their ids. */
type Names = ReadonlyMap<string, string>;

/** The first instant after a month. */
const endOf = (month: string): string => new Date(Date.UTC(Number(month.slice(0, 4)), Number(month.slice(5)))).toISOString();
const nameOf = (month: string): string =>
  new Intl.DateTimeFormat(locale(), { month: "long", year: "numeric", timeZone: "UTC" }).format(new Date(`${month}-01T00:00:00Z`));

export function Statements() {
  const shown = workspace.value;
  const months = shown === null ? [] : monthsSince(shown.createdAt, now.value);
  const month = useSignal(months[0] ?? "");
  const statement = useSignal<Statement | null>(null);
  const id = shown?.id ?? "";
  const reading = useReading(async () => {
    const wanted = month.value;
    const found = await need(api.GET("/api/v1/workspaces/{id}/statements/{month}", { params: { path: { id, month: wanted } } }));
    if (month.value === wanted) statement.value = found;
  }, [id, month.value, funds.value?.trackedBalance]);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || statement.value?.isClosed || void reading.again(), READ_EVERY_MS);
    return () => clearInterval(timer);
  }, [id, month.value]);
  // The books know no places. Of a month with more sessions, the newest have theirs.
  const names = useSignal<Names>(new Map());
  useEffect(() => {
    if (month.value === "") return;
    const query = { state: ["ENDED" as const], createdBefore: endOf(month.value), limit: SESSIONS_MAX };
    need(api.GET("/api/v1/sessions", { params: { query } })).then(
      ({ items }) => (names.value = new Map(items.map((each) => [each.id, calledIn(each)]))),
      () => undefined, // the date is enough
    );
  }, [id, month.value, statement.value?.consumer.total.sessions, statement.value?.operator.total.sessions]);
  const found = statement.value?.month === month.value ? statement.value : null;
  const hasConsumer = found !== null && (canBuy.value || found.consumer.total.sessions > 0);
  const hasOperator = found !== null && (canOperate.value || found.operator.total.sessions > 0 || BigInt(found.operator.total.waitingMicroUsdc) > 0n);
  return (
    <Card title={t("statements")} aside={<Downloads path={`/api/v1/workspaces/${id}/statements/${month.value}`} name={`statement-${month.value}`} />}>
      <p class="dim">{t("statementsText")}</p>
      <div class="filters">
        <Field label={t("month")}>
          <select id="month" value={month.value} onChange={(event) => (month.value = event.currentTarget.value)}>
            {months.map((each) => <option key={each} value={each}>{nameOf(each)}</option>)}
          </select>
        </Field>
      </div>
      {found === null ? (
        <Unread {...reading} />
      ) : (
        <>
          {!found.isClosed && <Banner kind="info" icon="clock">{t("monthOpen")}</Banner>}
          <div class="columns">
            {hasConsumer && <Spent part={found.consumer} isClosed={found.isClosed} names={names.value} />}
            {hasOperator && <Earned part={found.operator} names={names.value} />}
          </div>
        </>
      )}
    </Card>
  );
}

const Downloads = ({ path, name }: { path: string; name: string }) => (
  <div class="row">
    {(["pdf", "csv", "json"] as const).map((form) => (
      <a key={form} class="button quiet" download={`sightline-${name}.${form}`} href={`${path}?format=${form}`}><Icon name="download" />{form.toUpperCase()}</a>
    ))}
  </div>
);

function Spent({ part, isClosed, names }: { part: Statement["consumer"]; isClosed: boolean; names: Names }) {
  const { total, invoice } = part;
  return (
    <section class="stack" aria-label={t("viewsBought")}>
      <h3>{t("viewsBought")}</h3>
      <Facts
        rows={[
          [t("statementCharged"), <strong id="statement-charged">{usdc(total.chargedMicroUsdc)}</strong>],
          [t("statementFee"), usdc(total.platformFeeMicroUsdc)],
          ...(config.value?.isEscrow ? [[t("statementReturned"), usdc(total.returnedMicroUsdc)] as const] : []),
          [t("statementRefunded"), usdc(total.refundedMicroUsdc)],
          [t("navSessions"), total.sessions],
        ]}
      />
      {invoice !== null ? (
        <p id="invoice"><strong>{t("invoice", { number: invoice.number })}</strong> <span class="dim">{dateTime(invoice.issuedAt)}</span></p>
      ) : (
        <p class="hint">{t(!isClosed ? "invoiceLater" : "invoiceNone")}</p>
      )}
      <Settled names={names} items={part.items.map(({ sessionId, settledAt, chargedMicroUsdc }) => ({ sessionId, settledAt, amount: chargedMicroUsdc }))} />
    </section>
  );
}

function Earned({ part, names }: { part: Statement["operator"]; names: Names }) {
  const { total } = part;
  return (
    <section class="stack" aria-label={t("viewsFilmed")}>
      <h3>{t("viewsFilmed")}</h3>
      <Facts
        rows={[
          [t("statementEarned"), <strong id="statement-earned">{usdc(total.earnedMicroUsdc)}</strong>],
          [t("statementCharged"), usdc(BigInt(total.earnedMicroUsdc) + BigInt(total.platformFeeMicroUsdc))],
          [t("statementFee"), usdc(total.platformFeeMicroUsdc)],
          [t("statementPaid"), usdc(total.paidMicroUsdc)],
          [t("statementCredited"), usdc(total.creditedMicroUsdc)],
          [t("statementWaiting"), usdc(total.waitingMicroUsdc)],
          [t("navSessions"), total.sessions],
        ]}
      />
      {BigInt(total.creditedMicroUsdc) > 0n && <p class="hint">{t("creditedHint")}</p>}
      <Settled names={names} items={part.items.map(({ sessionId, settledAt, earnedMicroUsdc }) => ({ sessionId, settledAt, amount: earnedMicroUsdc }))} />
    </section>
  );
}

function Settled({ items, names }: { names: Names; items: readonly { sessionId: string; settledAt: string; amount: string }[] }) {
  const count = useSignal(LISTED_AT_FIRST);
  if (items.length === 0) return <Empty icon="list" title={t("statementEmpty")} text={t("statementEmptyText")} />;
  return (
    <>
      <ul class="rows">
        {items.slice(0, count.value).map((each) => (
          <li key={each.sessionId}>
            <span class="list-main">
              <a href={link("receipt", each.sessionId)}>{dateTime(each.settledAt)}</a>
              <small class="two-lines">{names.get(each.sessionId)}</small>
            </span>
            <span class="number">{usdc(each.amount)}</span>
          </li>
        ))}
      </ul>
      {items.length > count.value && <Button run={() => (count.value += LISTED_AT_FIRST * 5)}>{t("more")}</Button>}
    </>
  );
}
