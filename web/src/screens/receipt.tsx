// What was filmed, what was proved, what was paid; anybody can check it.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError, api, need, type Model } from "../api";
import { clock, dateTime, point, short, timeOf, usdc } from "../format";
import { Badge, Banner, Card, Empty, Facts, Loading, Page } from "../parts";
import { link, place } from "../router";
import { report } from "../store";
import { t } from "../strings";
import { ENDINGS, REASONS, wordOf } from "./watch";

export default function Receipt() {
  const id = place.value.id;
  const session = useSignal<Model["Session"] | null>(null);
  const meter = useSignal<Model["Meter"] | null>(null);
  const settlement = useSignal<Model["Settlement"] | null>(null);
  const isMissing = useSignal(false);
  useEffect(() => {
    let isOver = false;
    let timer = 0;
    const load = async (): Promise<void> => {
      try {
        const params = { path: { id } };
        session.value = await need(api.GET("/api/v1/sessions/{id}", { params }));
        meter.value ??= await need(api.GET("/api/v1/sessions/{id}/meter", { params }));
        settlement.value = await need(api.GET("/api/v1/settlements/{sessionId}", { params: { path: { sessionId: id } } }));
      } catch (error) {
        if (error instanceof ApiError && [400, 403, 404].includes(error.status)) isMissing.value = true;
        else report(error);
      }
      if (!isOver && !isMissing.value && settlement.value?.state !== "CONFIRMED") timer = window.setTimeout(() => void load(), 1500);
    };
    void load();
    return () => ((isOver = true), clearTimeout(timer));
  }, [id]);

  if (isMissing.value)
    return (
      <Empty icon="list" title={t("noSession")} text={t("noSessionText")}>
        <a class="button main" href={link("sessions")}>{t("navSessions")}</a>
      </Empty>
    );
  const shown = session.value;
  if (shown === null || meter.value === null || settlement.value === null) return <Loading />;
  const paid = settlement.value.payload;
  return (
    <Page title={t("receiptTitle")} lead={`${dateTime(shown.createdAt)} · ${point(shown.requestedLat, shown.requestedLng)}`} aside={<Badge state={settlement.value.state} />}>
      <div class="columns">
        <Card title={t("paid")}>
          <p class="price"><span class="number" id="charged">{usdc(shown.chargedMicroUsdc)}</span></p>
          <Facts
            rows={[
              [t("proved"), clock(shown.cleanSeconds)],
              [t("ratePerSecond"), usdc(shown.ratePerSecondMicroUsdc)],
              ...(paid === null ? [] : ([
                [t("toOperator"), usdc(paid.toAmount)],
                [t("fee", { percent: paid.platformFeeBps / 100 }), usdc(paid.feeAmount)],
                [t("from"), <code title={paid.from}>{short(paid.from)}</code>],
                [t("to"), <code title={paid.to}>{short(paid.to)}</code>],
              ] as const)),
              ...(settlement.value.txHash === null ? [] : [[t("transaction"), <code title={settlement.value.txHash}>{short(settlement.value.txHash)}</code>] as const]),
            ]}
          />
          {settlement.value.state === "PENDING" && <Banner kind="info" icon="clock">{t("settlementPending")}</Banner>}
        </Card>
        <Card title={t("timeline")}>
          <Timeline session={shown} meter={meter.value} />
          <p class="hint">{wordOf(ENDINGS, shown.endReason)}</p>
        </Card>
      </div>
    </Page>
  );
}

function Timeline({ session, meter }: { session: Model["Session"]; meter: Model["Meter"] }) {
  if (session.startedAt === null || session.endedAt === null) return <p class="dim">{t("neverLive")}</p>;
  const start = Date.parse(session.startedAt);
  const end = Date.parse(session.endedAt);
  const length = Math.max(1, end - start);
  return (
    <>
      <div class="timeline" role="img" aria-label={t("timelineOf", { count: meter.windows.length })}>
        {meter.windows.map((each) => {
          const from = Math.max(start, Date.parse(each.from));
          const to = Math.min(end, each.to === null ? end : Date.parse(each.to));
          const place = (node: HTMLSpanElement | null): void => {
            if (node === null) return;
            node.style.left = `${((from - start) / length) * 100}%`;
            node.style.width = `${(Math.max(0, to - from) / length) * 100}%`;
          };
          return <span key={each.from} ref={place} />;
        })}
      </div>
      <div class="timeline-ends"><span>{timeOf(session.startedAt)}</span><span>{timeOf(session.endedAt)}</span></div>
      {meter.windows.length === 0 ? (
        <p class="dim">{t("noPauses")}</p>
      ) : (
        <ul class="windows">
          {meter.windows.map((each) => (
            <li key={each.from}>
              <span>{wordOf(REASONS, each.reason)}</span>
              <span class="number">{clock(((each.to === null ? end : Date.parse(each.to)) - Date.parse(each.from)) / 1000)}</span>
            </li>
          ))}
        </ul>
      )}
    </>
  );
}
