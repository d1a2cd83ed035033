// A view that somebody has shared: its picture, state and place, by the key of the link. Nothing here changes or spends.
import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { ApiError, here, makeClient, need, type Model } from "../api";
import { isSuspension } from "../errors";
import { dateTime, metres, point, timeOf } from "../format";
import { Picture } from "../live/picture";
import { timeEndsAt } from "../live/pauses";
import { REASONS, wordOf } from "../live/reasons";
import { PlaceMap } from "../map/map";
import { Badge, Banner, Card, Countdown, Empty, Facts, Loading, Page, Unread, useReading } from "../parts";
import { dropQuery, place } from "../router";
import { t } from "../strings";

const READ_EVERY_MS = 2000;
const ANSWER_MS = 5000;

interface Given {
  key: string | null;
  /** What the owner of the view calls the place. */
  name: string | null;
}
/** What the link gives: kept for this tab, and taken out of the address at once. */
function takeLink(id: string): Given {
  const { query } = place.value;
  const kept = { key: `sightline.shared.${id}`, name: `sightline.shared.${id}.name` };
  const given = { key: query.get("key"), name: query.get("name") };
  if (given.key === null) return { key: sessionStorage.getItem(kept.key), name: sessionStorage.getItem(kept.name) };
  sessionStorage.setItem(kept.key, given.key);
  if (given.name !== null) sessionStorage.setItem(kept.name, given.name);
  dropQuery();
  return given;
}

export default function Shared() {
  const id = useRef(place.value.id).current;
  const { key, name } = useMemo(() => takeLink(id), []);
  const client = useRef(makeClient(key ?? "")).current;
  const view = useSignal<Model["SharedView"] | null>(null);
  const isAway = useSignal(false);
  const isEnded = useSignal(key === null);
  const reading = useReading(async () => {
    if (isEnded.value) return;
    try {
      const signal = AbortSignal.timeout(ANSWER_MS);
      view.value = await need(client.GET("/api/v1/sessions/{id}/shared", { params: { path: { id } }, signal }));
      isAway.value = false;
    } catch (error) {
      if (error instanceof ApiError && [400, 401, 403, 404].includes(error.status) && !isSuspension(error)) isEnded.value = true;
      else if (view.value === null) throw error;
      else isAway.value = true;
    }
  }, []);
  const shown = view.value;
  const isOpen = shown === null || ["REQUESTED", "ASSIGNED", "LIVE"].includes(shown.state);
  useEffect(() => {
    if (!isOpen || isEnded.value) return;
    const timer = setInterval(() => document.hidden || void reading.again(), READ_EVERY_MS);
    return () => clearInterval(timer);
  }, [isOpen, isEnded.value]);

  if (isEnded.value) return <Empty isPage icon="clock" title={t("linkEnded")} text={t("linkEndedText")} />;
  if (shown === null) return <Unread isPage {...reading} />;
  if (!isOpen) return <Empty isPage icon="check" title={t("viewEnded")} text={shown.endedAt === null ? t("viewNeverStarted") : t("viewEndedText", { time: dateTime(shown.endedAt) })} />;
  const isPaused = shown.meterState === "PAUSED";
  const timeEnds = timeEndsAt(shown);
  return (
    <Page
      title={t("sharedTitle")}
      lead={t("watchLead", { place: [...(name === null ? [] : [name]), point(shown.lat, shown.lng)].join(" · "), radius: metres(shown.radiusMeters) })}
      aside={isAway.value && shown.state === "LIVE" ? <span class="badge paused">{t("badgeAway")}</span> : <Badge state={shown.state === "LIVE" && isPaused ? "PAUSED" : shown.state} />}
    >
      {isAway.value && <Banner kind="info" icon="clock">{t("reconnecting")}</Banner>}
      <div class="columns wide-left">
        <div class="stack">
          {shown.state === "LIVE" && shown.whepUrl !== null && key !== null ? (
            <Picture key={shown.sessionId} connection={{ ...here, key }} sessionId={id} url={shown.whepUrl} isServerAway={isAway.value} isShared paused={isPaused ? wordOf(REASONS, shown.pauseReason) : null} isOver={() => view.value?.state !== "LIVE" || isEnded.value} />
          ) : (
            <div class="stage"><Loading text={t("sharedWaiting")} /></div>
          )}
          {isPaused && <Banner kind="warn" icon="pause"><strong>{t("pausedTitle")}</strong> {wordOf(REASONS, shown.pauseReason)}</Banner>}
        </div>
        <div class="stack">
          <Card>
            <Facts
              rows={[
                ...(shown.startedAt === null ? [] : [[t("startedAt"), timeOf(shown.startedAt)] as const]),
                ...(timeEnds === null ? [] : [[t("timeLeft"), <Countdown until={timeEnds} />] as const]),
                ...(shown.sharedUntil === null ? [] : [[t("linkWorksUntil"), dateTime(shown.sharedUntil)] as const]),
              ]}
            />
            <p class="hint">{t("sharedHint")}</p>
          </Card>
          <PlaceMap isSmall scene={{ fence: { lat: shown.lat, lng: shown.lng, radiusM: shown.radiusMeters }, operator: null, cells: [], cellDegrees: 0, isClose: true }} />
        </div>
      </div>
    </Page>
  );
}
