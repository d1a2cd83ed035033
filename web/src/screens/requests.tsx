// The open requests that an operator may accept.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { need, once, type Client } from "../api";
import { clock, distanceM, metres, point, usdc, withoutFee } from "../format";
import { chime } from "../live/chime";
import { Banner, Button, Card, Countdown, Empty, Unread, useReading } from "../parts";
import { Town } from "../place/town";
import { type Session } from "../store";
import { t } from "../strings";

const OPEN_EVERY_MS = 5000;

interface RequestsProps {
  client: Client;
  workspaceId: string;
  isOffline: boolean;
  /** Where this device is, if it films; null while it does not know. */
  at?: { lat: number; lng: number } | null;
  /** Another value after the stream told of requests: the list is read again. */
  changes: unknown;
  onAccepted: (session: Session) => void;
}
export function Requests({ client, workspaceId, isOffline, at, changes, onAccepted }: RequestsProps) {
  const items = useSignal<readonly Session[] | null>(null);
  /** Until when others are asked before this operator and it cannot accept; null if it can. */
  const passedOverUntil = useSignal<string | null>(null);
  const load = async (): Promise<void> => {
    const known = items.value;
    const [{ items: open }, own] = await Promise.all([
      need(client.GET("/api/v1/sessions", { params: { query: { view: "open", limit: 20 } } })),
      need(client.GET("/api/v1/workspaces/{id}", { params: { path: { id: workspaceId } } })),
    ]);
    passedOverUntil.value = own.passedOverUntil;
    if (known !== null && open.some(({ id }) => known.every((each) => each.id !== id))) chime();
    items.value = open;
  };
  const reading = useReading(load, []);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || void reading.again(), OPEN_EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  // The stream begins with up to 200 sessions: one look at the list for all of them.
  useEffect(() => {
    const timer = setTimeout(() => void load().catch(() => undefined), 300);
    return () => clearTimeout(timer);
  }, [changes]);
  const accept = async (session: Session): Promise<void> => {
    const body = { operatorWorkspaceId: workspaceId };
    onAccepted(await need(client.POST("/api/v1/sessions/{id}/accept", { params: { path: { id: session.id }, header: once() }, body })));
    await load();
  };
  const isOut = !isOffline && passedOverUntil.value !== null;
  return (
    <Card title={t("openRequests")}>
      {isOut && (
        <Banner id="passed-over" kind="warn" icon="clock">{t("passedOver")} <strong><Countdown until={passedOverUntil.value ?? ""} />.</strong></Banner>
      )}
      {items.value === null ? (
        <Unread {...reading} />
      ) : items.value.length === 0 && at !== undefined ? (
        <p class="dim" id="no-open-requests" role="status">{at === null ? t("cameraWaitingUnlocated") : `${t("noRequests")}. ${t("cameraWaiting")}`}</p>
      ) : items.value.length === 0 ? (
        <Empty icon="eye" title={t("noRequests")} text={t(isOffline ? "noRequestsOffline" : "noRequestsText")} />
      ) : (
        <ul class="rows">
          {items.value.map((each) => (
            <li key={each.id} class="job-row">
              <div class="list-main">
                <strong class="two-lines" title={each.instructions ?? ""}>{each.instructions || point(each.requestedLat, each.requestedLng)}</strong>
                <small>{each.instructions && `${point(each.requestedLat, each.requestedLng)} · `}<Town lat={each.requestedLat} lng={each.requestedLng} /></small>
                <small>{at != null && `${t("distanceAway", { distance: metres(distanceM(at.lat, at.lng, each.requestedLat, each.requestedLng)) })} · `}{t("withinOnly", { radius: metres(each.radiusMeters) })}{each.expiresAt !== null && <> · {t("closesIn")} <Countdown until={each.expiresAt} /></>}</small>
                <small>{t("upTo", { time: clock(each.maxDurationSeconds), amount: usdc(withoutFee(each.holdMicroUsdc, each.platformFeeBps)) })}</small>
              </div>
              <Button disabled={isOut} run={() => accept(each)}>{t("accept")}</Button>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}
