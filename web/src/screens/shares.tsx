// The links by which others see one view: made, listed and revoked by its consumer.
import { useSignal } from "@preact/signals";
import { api, need, once, type Model } from "../api";
import { dateTime, used } from "../format";
import { Button, Card, Confirm, Field, Loopback, Secret, Unread, useReading } from "../parts";
import { notify, now } from "../store";
import { t } from "../strings";

/** The server stores uses some seconds after them. */
const READ_EVERY_MS = 10_000;
const HOUR_S = 3600;
const LIFETIMES_S = [900, HOUR_S, 4 * HOUR_S, 24 * HOUR_S];

/** `endedAt`: when the view ended, and every link of it that still worked. `name`: of the place, which the server does not know. */
export function Shares({ id, endedAt, name }: { id: string; endedAt: string | null; name: string | null }) {
  const mayMake = endedAt === null;
  const shares = useSignal<readonly Model["Share"][] | null>(null);
  const url = useSignal<string | null>(null);
  const label = useSignal("");
  const seconds = useSignal(HOUR_S);
  const path = { id };
  const load = async (): Promise<void> => {
    shares.value = (await need(api.GET("/api/v1/sessions/{id}/shares", { params: { path } }))).items;
  };
  const reading = useReading(load, [id], READ_EVERY_MS);
  const make = async (): Promise<void> => {
    const body = { expiresInSeconds: seconds.value, label: label.value.trim() };
    const made = await need(api.POST("/api/v1/sessions/{id}/shares", { params: { path }, body }));
    url.value = name === null ? made.url : `${made.url}&name=${encodeURIComponent(name)}`;
    label.value = "";
    await load();
  };
  const revoke = async (shareId: string): Promise<void> => {
    await need(api.DELETE("/api/v1/sessions/{id}/shares/{shareId}", { params: { path: { id, shareId }, header: once() } }));
    url.value = null;
    await load();
    notify("revoked");
  };
  const listed = shares.value ?? [];
  if (!mayMake && shares.value !== null && listed.length === 0) return null;
  return (
    <Card title={t(mayMake ? "shareTitle" : "sharesTitle")}>
      {mayMake && <p class="dim">{t("shareText")}</p>}
      {mayMake && url.value !== null && (
        <>
          <Loopback url={url.value} />
          <Secret id="share-url" title={t("shareOnce")} label={t("shareTitle")} value={url.value} />
        </>
      )}
      {mayMake && (
        <div class="form">
          <div class="pair">
            <Field label={t("shareLabel")}>
              <input id="share-label" maxLength={80} value={label.value} onInput={(event) => (label.value = event.currentTarget.value)} />
            </Field>
            <Field label={t("shareFor")}>
              <select id="share-for" value={seconds.value} onChange={(event) => (seconds.value = Number(event.currentTarget.value))}>
                {LIFETIMES_S.map((each) => <option key={each} value={each}>{each < HOUR_S ? t("minutes", { count: each / 60 }) : t("hours", { count: each / HOUR_S })}</option>)}
              </select>
            </Field>
          </div>
          <Button id="share" run={make}>{t("shareMake")}</Button>
        </div>
      )}
      {shares.value === null && <Unread {...reading} />}
      {listed.length > 0 && (
        <ul class="rows">
          {listed.map((each) => {
            const endsAtMs = Date.parse(each.expiresAt);
            const isOpen = mayMake && each.isOpen && endsAtMs > now.value;
            const isOfTheView = endedAt !== null && endsAtMs > Date.parse(endedAt);
            return (
              <li key={each.shareId}>
                <div class="list-main">
                  <strong>{each.label || t("shareUnnamed")}</strong>
                  <small>{isOfTheView ? t("shareEndedWithView") : t(isOpen ? "shareUntil" : "shareEnded", { time: dateTime(each.expiresAt) })}</small>
                  <small>{used(each.lastUsedAt)}</small>
                </div>
                {isOpen && (
                  <Confirm question={t("shareRevokeAsk")} action={t("revoke")} run={() => revoke(each.shareId)}>{t("revoke")}</Confirm>
                )}
              </li>
            );
          })}
        </ul>
      )}
    </Card>
  );
}
