// Webhooks of the workspace: endpoints, their signing secrets, and what was delivered.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api, ApiError, need, once, type Model } from "../api";
import { dateTime } from "../format";
import { Button, Card, Confirm, Countdown, Empty, Field, OTHERS_CHANGE_MS, Secret, Unread, useReading } from "../parts";
import { now, notify, report } from "../store";
import { t, type Word } from "../strings";

type Endpoint = Model["Webhook"];
type EventType = Endpoint["eventTypes"][number];
const EVENT_TYPES: readonly EventType[] = [
  "session.requested", "session.assigned", "session.live", "session.paused", "session.resumed", "session.extended", "session.ended",
  "session.cancelled", "session.expired", "settlement.confirmed", "wallet.deposit", "workspace.availability",
];
const DELIVERIES_SHOWN = 20;
/** By `lastError` of a delivery; a newer server may have others. */
const SEND_ERRORS: Readonly<Record<string, Word>> = {
  bad_status: "sendBadStatus",
  redirect_refused: "sendRedirects",
  timeout: "sendTimeout",
  name_not_resolved: "sendNoName",
  address_refused: "sendNotPublic",
  connect_failed: "sendNoConnection",
  tls_failed: "sendNoTls",
  connection_lost: "sendLost",
  internal_error: "sendOwnError",
};
const OFF_WORDS: Record<NonNullable<Endpoint["disabledReason"]>, Word> = { OWNER: "webhookOffOwner", GONE: "webhookOffGone", FAILING: "webhookOffFailing" };

export function Webhooks() {
  const items = useSignal<readonly Endpoint[] | null>(null);
  const isOpen = useSignal(false);
  const secret = useSignal<string | null>(null);
  const load = async (): Promise<void> => {
    items.value = (await need(api.GET("/api/v1/webhooks"))).items;
  };
  const reading = useReading(load, [], OTHERS_CHANGE_MS);
  const open = (): void => {
    isOpen.value = true;
    secret.value = null;
  };
  const made = async (shown: string): Promise<void> => {
    secret.value = shown;
    isOpen.value = false;
    await load();
  };
  return (
    <Card title={t("webhooks")} aside={!isOpen.value && <Button id="new-webhook" run={open}>{t("newWebhook")}</Button>}>
      <p class="dim">{t("webhooksText")}</p>
      {secret.value !== null && <Secret id="webhook-secret" title={t("secretOnce")} label={t("secret")} value={secret.value} />}
      {isOpen.value && <NewWebhook made={made} cancel={() => (isOpen.value = false)} />}
      {items.value === null ? (
        <Unread {...reading} />
      ) : items.value.length === 0 ? (
        !isOpen.value && <Empty icon="settings" title={t("noWebhooks")} text={t("noWebhooksText")} />
      ) : (
        <ul class="rows">
          {items.value.map((each) => <Row key={each.id} endpoint={each} load={load} made={made} />)}
        </ul>
      )}
    </Card>
  );
}

function NewWebhook({ made, cancel }: { made: (secret: string) => Promise<void>; cancel: () => void }) {
  const url = useSignal("");
  const types = useSignal<readonly EventType[]>([]);
  const toggle = (type: EventType): void => {
    types.value = types.value.includes(type) ? types.value.filter((each) => each !== type) : [...types.value, type];
  };
  const refused = useSignal<string | null>(null);
  const create = async (): Promise<void> => {
    const body = { url: url.value.trim(), eventTypes: [...types.value] };
    try {
      await made((await need(api.POST("/api/v1/webhooks", { params: { header: once() }, body }))).secret);
    } catch (error) {
      if (!(error instanceof ApiError && error.detail === "webhook:url")) throw error;
      refused.value = error.hint ?? error.message;
    }
  };
  return (
    <div class="form panel">
      <Field label="URL" hint={t("webhookUrlHint")} {...(refused.value !== null && { error: refused.value })}>
        <input id="webhook-url" type="url" maxLength={2048} value={url.value} placeholder="https://example.com/sightline" onInput={(event) => ((url.value = event.currentTarget.value), (refused.value = null))} />
      </Field>
      <fieldset>
        <legend class="label">{t("webhookEvents")}</legend>
        <p class="hint">{t("webhookEventsHint")}</p>
        <div class="choices-grid">
          {EVENT_TYPES.map((type) => (
            <label key={type} class="check">
              <input type="checkbox" checked={types.value.includes(type)} onChange={() => toggle(type)} />
              <code>{type}</code>
            </label>
          ))}
        </div>
      </fieldset>
      <div class="row">
        <Button id="create-webhook" kind="main" disabled={!/^https?:\/\/\S+$/.test(url.value.trim())} run={create}>{t("createWebhook")}</Button>
        <Button kind="quiet" run={cancel}>{t("cancel")}</Button>
      </div>
    </div>
  );
}

function Row({ endpoint, load, made }: { endpoint: Endpoint; load: () => Promise<void>; made: (secret: string) => Promise<void> }) {
  const isOpen = useSignal(false);
  const params = { path: { id: endpoint.id } };
  const act = { params: { ...params, header: once() } };
  const rotate = async (): Promise<void> => made((await need(api.POST("/api/v1/webhooks/{id}/rotate", act))).secret);
  const enable = async (enabled: boolean): Promise<void> => {
    await need(api.PATCH("/api/v1/webhooks/{id}", { ...act, body: { enabled } }));
    await load();
  };
  const remove = async (): Promise<void> => {
    await need(api.DELETE("/api/v1/webhooks/{id}", act));
    await load();
  };
  const isSigning = endpoint.previousSecretExpiresAt !== null && Date.parse(endpoint.previousSecretExpiresAt) > now.value;
  return (
    <li class="webhook" data-webhook={endpoint.id}>
      <div class="list-main">
        <strong><code>{endpoint.url}</code></strong>
        <small>{endpoint.eventTypes.length === 0 ? t("webhookAll") : endpoint.eventTypes.join(", ")}</small>
        {endpoint.disabledReason !== null && <small class="bad">{t(OFF_WORDS[endpoint.disabledReason])}</small>}
        {endpoint.enabled && endpoint.failingSince !== null && <small class="bad">{t("webhookFailing", { time: dateTime(endpoint.failingSince) })}</small>}
        {isSigning && <small>{t("webhookOldSecret")} <Countdown until={endpoint.previousSecretExpiresAt ?? 0} /></small>}
      </div>
      <div class="row">
        <Button run={() => (isOpen.value = !isOpen.value)}>{t(isOpen.value ? "hideDeliveries" : "deliveries")}</Button>
        <Button run={rotate}>{t("rotate")}</Button>
        <Button run={() => enable(!endpoint.enabled)}>{t(endpoint.enabled ? "disable" : "enable")}</Button>
        <Confirm question={t("removeAsk", { name: endpoint.url })} action={t("remove")} run={remove}>{t("remove")}</Confirm>
      </div>
      {isOpen.value && <Deliveries id={endpoint.id} />}
    </li>
  );
}

function sendError(code: string): string {
  const word = SEND_ERRORS[code];
  return word === undefined ? code : t(word);
}

function Deliveries({ id }: { id: string }) {
  const items = useSignal<readonly Model["WebhookDelivery"][] | null>(null);
  const load = async (): Promise<void> => {
    const params = { path: { id }, query: { limit: DELIVERIES_SHOWN } };
    items.value = (await need(api.GET("/api/v1/webhooks/{id}/deliveries", { params }))).items;
  };
  useEffect(() => {
    load().catch(report);
    const timer = setInterval(() => document.hidden || void load().catch(() => undefined), 3000);
    return () => clearInterval(timer);
  }, [id]);
  const ping = async (): Promise<void> => {
    await need(api.POST("/api/v1/webhooks/{id}/ping", { params: { path: { id }, header: once() } }));
    await load();
  };
  const resend = async (eventId: string): Promise<void> => {
    await need(api.POST("/api/v1/webhooks/{id}/deliveries/{eventId}/resend", { params: { path: { id, eventId }, header: once() } }));
    notify("resent");
    await load();
  };
  return (
    <div class="panel">
      <div class="card-head"><h3>{t("deliveries")}</h3><Button run={ping}>{t("ping")}</Button></div>
      {items.value === null ? (
        <p class="dim">{t("loading")}</p>
      ) : items.value.length === 0 ? (
        <p class="dim">{t("noDeliveries")}</p>
      ) : (
        <ul class="rows">
          {items.value.map((each) => (
            <li key={each.eventId} data-delivery={each.state}>
              <div class="list-main">
                <strong><code>{each.eventType}</code></strong>
                <small>
                  {dateTime(each.eventAt)}, {t("opsTries", { count: each.attempts })}
                  {each.lastStatus !== null && `, HTTP ${each.lastStatus}`}
                  {each.lastError !== null && `, ${sendError(each.lastError)}`}
                </small>
              </div>
              <span class={each.state === "FAILED" ? "bad" : "dim"}>{t(each.state === "DELIVERED" ? "delivered" : each.state === "FAILED" ? "deliveryFailed" : "deliveryPending")}</span>
              <Button run={() => resend(each.eventId)}>{t("resend")}</Button>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
