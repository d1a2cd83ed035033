// Watch one session: the picture, what is proved, what it costs, and why it pauses.
import { signal, useComputed, useSignal, type Signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { follow } from "sightline-js/events";
import { clip, frame, type Clip, type Still } from "sightline-js/stills";
import { ApiError, api, here, need, once, type Model } from "../api";
import { extendSession } from "../chain/payment";
import { clock, metres, point, positionOf, timeOf, usdc, withoutFee } from "../format";
import { endingOf, noteEnd } from "../live/endings";
import { Messages, Tell } from "../live/messages";
import { pausedMs, pauseEndsAt, timeEndsAt } from "../live/pauses";
import { Picture } from "../live/picture";
import { REASONS, awayFrom, reasonsOf, wordOf } from "../live/reasons";
import { reopenedBy } from "../live/reopened";
import { noteSent, sentFrom } from "../live/sent";
import { UnchargedOf } from "../live/uncharged";
import { PlaceMap } from "../map/map";
import { Badge, Banner, Button, Card, Confirm, Countdown, Empty, Facts, Field, Icon, Loading, Page, Unread, grossRows, useReading } from "../parts";
import { AskAgain } from "../place/again";
import { nameOfPlace } from "../place/names";
import { Town } from "../place/town";
import { link, place } from "../router";
import { awaited, config, fieldOf, mayChange, notify, now, refreshFunds, report, tell, tellMeter, told, unpaidText, unpayable, workspace, type Session } from "../store";
import { t, type Word } from "../strings";
import { Shares } from "./shares";

type Meter = Model["Meter"];
type Position = Model["SessionLocation"];
const METER_EVERY_MS = 2000;
/** Without an answer for so long the server is away, although the stream of a server that stands still stays open. */
const ANSWERS_WITHIN_MS = 6000;
const CLIP_S = 10;
const MORE_S = 300;
/** A position comes about every 2 s. After so long without one it is not where the operator is now. */
const SILENT_MS = 6000;
/** So long before the end of the agreed time the page says so. */
const SOON_MS = 30_000;
const EXTENSIONS_S = [60, MORE_S, 600, 1800, 3600];
const DURATION_MAX_S = 14_400;

const saved = new Map<string, Signal<readonly (Still | Clip)[]>>();
/** What was saved of a view in this tab. It is kept until the tab is closed, also while other screens are shown. */
function savedOf(id: string): Signal<readonly (Still | Clip)[]> {
  const kept = saved.get(id) ?? signal<readonly (Still | Clip)[]>([]);
  saved.set(id, kept);
  return kept;
}

export default function Watch() {
  const id = place.value.id;
  const session = useSignal<Session | null>(null);
  const meter = useSignal<Meter | null>(null);
  const operator = useSignal<Position | null>(null);
  const isMissing = useSignal(false);
  const isOpen = useSignal(true);
  const isSilent = useSignal(false);
  const snapshots = useMemo(() => savedOf(id), [id]);
  const learn = (read: Meter): void => tellMeter((meter.value = read));

  const reading = useReading(async () => {
    try {
      const found = await need(api.GET("/api/v1/sessions/{id}", { params: { path: { id } } }));
      session.value ??= found;
    } catch (error) {
      if (error instanceof ApiError && [400, 403, 404].includes(error.status)) isMissing.value = true;
      else throw error;
    }
  }, [id]);
  useEffect(() => {
    return follow(`/api/v1/sessions/${id}/events`, {
      onState: (state) => (isOpen.value = state),
      onEvent: (name, data) => {
        if (name === "session") tell((session.value = data as Session));
        if (name === "meter") learn(data as Meter);
        if (name === "location") operator.value = data as Position;
      },
    });
  }, [id]);

  // The stream tells of changes of state. The proved seconds grow between them.
  const isLive = useComputed(() => session.value?.state === "LIVE");
  useEffect(() => {
    if (!isLive.value) return;
    let isAsking = false;
    let late = 0;
    const read = async (): Promise<void> => {
      if (document.hidden || isAsking) return;
      isAsking = true;
      late = window.setTimeout(() => (isSilent.value = true), ANSWERS_WITHIN_MS);
      try {
        // A connection that was cut without a word would keep this from asking the server that took over.
        const signal = AbortSignal.timeout(2 * ANSWERS_WITHIN_MS);
        learn(await need(api.GET("/api/v1/sessions/{id}/meter", { params: { path: { id } }, signal })));
        isSilent.value = false;
      } catch (error) {
        if (error instanceof ApiError && error.status !== 0) isSilent.value = false; // 0: no answer came
      } finally {
        clearTimeout(late);
        isAsking = false;
      }
    };
    const timer = setInterval(() => void read(), METER_EVERY_MS);
    return () => {
      clearInterval(timer);
      clearTimeout(late);
      isSilent.value = false;
    };
  }, [isLive.value, id]);

  if (isMissing.value)
    return (
      <Empty isPage icon="eye" title={t("noSession")} text={t("noSessionText")}>
        <a class="button main" href={link("sessions")}>{t("navSessions")}</a>
      </Empty>
    );
  const shown = session.value;
  if (shown === null) return <Unread isPage {...reading} />;
  const isAway = !isOpen.value || isSilent.value;
  const isConsumer = shown.consumerWorkspaceId === workspace.value?.id;
  const mayAct = isConsumer && mayChange.value;
  const close = (taken: Still | Clip): void => {
    snapshots.value = snapshots.value.filter((each) => each !== taken);
    URL.revokeObjectURL(taken.url);
  };
  const at = point(shown.requestedLat, shown.requestedLng);
  const [name, radius] = [nameOfPlace(shown), metres(shown.radiusMeters)];
  return (
    <Page
      title={name ?? at}
      lead={name === null ? <>{t("withinOnly", { radius })} <Town lat={shown.requestedLat} lng={shown.requestedLng} /></> : t("watchLead", { place: at, radius })}
      when={[shown.state]}
      aside={<span role="status">{isAway && shown.state === "LIVE" ? <span class="badge paused">{t("badgeAway")}</span> : <Badge state={shown.state === "LIVE" && shown.meterState === "PAUSED" ? "PAUSED" : shown.state} />}</span>}
    >
      {isAway && <Banner kind="info" icon="clock">{t("reconnecting")}</Banner>}
      <div class="watch">
        <div class="stack seen">
          {shown.state === "LIVE" && shown.whepUrl !== null ? (
            <Screen key={shown.id} session={shown} charged={meter.value?.accruedMicroUsdc ?? shown.accruedMicroUsdc} reasons={missingNow(meter.value)} url={shown.whepUrl} isServerAway={isAway} snapshots={snapshots} />
          ) : (
            <Waiting session={shown} mayAct={mayAct} />
          )}
          {meter.value !== null && shown.state === "LIVE" && <Pause session={shown} meter={meter.value} />}
          {mayAct && shown.state === "LIVE" && shown.meterState === "RUNNING" && <EndsSoon session={shown} />}
        </div>
        {shown.state === "LIVE" && (mayAct || shown.messages.length > 0) && (
          <div class="stack steered">{mayAct ? <Tell id={shown.id} messages={shown.messages} /> : <Messages messages={shown.messages} />}</div>
        )}
        <div class="stack taken">
          {shown.instructions && <div><p class="hint">{t("wishLabel")}</p><p class="wish">{shown.instructions}</p></div>}
          <div id="saved" class="stack">{snapshots.value.map((each) => "video" in each ? <SavedClip key={each.url} session={shown} meter={meter.value} saved={each} close={() => close(each)} /> : <Snapshot key={each.url} session={shown} meter={meter.value} still={each} close={() => close(each)} />)}</div>
        </div>
        <div class="stack beside">
          <Cost session={shown} meter={meter.value} operator={operator.value} isConsumer={isConsumer} isServerAway={isAway} />
          {mayAct && <Shares id={shown.id} endedAt={shown.endedAt} name={nameOfPlace(shown)} />}
          <PlaceMap
            isSmall
            scene={{
              fence: { lat: shown.requestedLat, lng: shown.requestedLng, radiusM: shown.radiusMeters },
              operator: shown.state !== "LIVE" || operator.value === null ? null : { ...operator.value, accuracyM: operator.value.accuracyMeters },
              cells: [],
              cellDegrees: 0,
              isClose: true,
            }}
          />
        </div>
      </div>
    </Page>
  );
}

/** More than a request has that many operators gave back. */
const EVENTS_MAX = 500;
/** What the last operator did that had a request which is open again; null if none had it. */
function useReopened({ id, state, expiresAt }: Session): Word | null {
  const word = useSignal<Word | null>(null);
  useEffect(() => {
    if (state !== "REQUESTED") return;
    const params = { path: { id }, query: { limit: EVENTS_MAX } };
    need(api.GET("/api/v1/sessions/{id}/meter/events", { params })).then(({ items }) => (word.value = reopenedBy(items)), report);
  }, [id, state, expiresAt]);
  return state === "REQUESTED" ? word.value : null;
}

function Waiting({ session, mayAct }: { session: Session; mayAct: boolean }) {
  const params = { path: { id: session.id }, header: once() };
  const reopened = useReopened(session);
  if (session.state === "REQUESTED")
    return (
      <div class="stage">
        <Empty icon="eye" title={t("waitingOperator")} text={t("waitingOperatorText")}>
          {reopened !== null && <div id="reopened"><Banner kind="info"><strong>{t(reopened)}</strong> {t("reopenedText")}</Banner></div>}
          {session.expiresAt !== null && <p>{t("closesIn")} <Countdown until={session.expiresAt} /></p>}
          {mayAct && (
            <div class="row centre">
              <Button id="dispatch" run={() => send(session)}>{t("dispatchNow")}</Button>
              <Button id="cancel" kind="quiet" run={() => need(api.DELETE("/api/v1/sessions/{id}", { params }))}>{t("cancelRequest")}</Button>
            </div>
          )}
        </Empty>
      </div>
    );
  const sentM = sentFrom(session.id);
  if (session.state === "ASSIGNED")
    return (
      <div class="stage">
        <Empty icon="camera" title={t("operatorFound")} text={t("operatorFoundText")}>
          {sentM !== null && sentM > session.radiusMeters && <p id="comes">{t("operatorComes", { distance: metres(sentM), radius: metres(session.radiusMeters) })}</p>}
          {session.expiresAt !== null && <p>{t("startsWithin")} <Countdown until={session.expiresAt} /></p>}
          {mayAct && <Button kind="quiet" run={() => need(api.POST("/api/v1/sessions/{id}/end", { params }))}>{t("cancelRequest")}</Button>}
        </Empty>
      </div>
    );
  if (session.state === "LIVE") return <><div class="stage"><Loading text={t("pictureConnecting")} /></div><End session={session} charged={session.accruedMicroUsdc} /></>;
  return (
    <div class="stage">
      <Empty icon={session.state === "ENDED" ? "check" : "clock"} title={t(session.state === "ENDED" ? "ended" : "notStarted")} text={`${endingOf(session, workspace.value?.id)}${session.state === "ENDED" ? "" : ` ${t("nothingHeld")}`}`}>
        {session.state === "ENDED" && <UnchargedOf client={api} session={session} title="notCharged" />}
        <div class="row centre">
          {session.state === "ENDED" && <a id="to-receipt" class="button main" href={link("receipt", session.id)}>{t("seeReceipt")}</a>}
          {mayAct && <AskAgain session={session} kind={session.state === "ENDED" ? "plain" : "main"} />}
        </div>
      </Empty>
    </div>
  );
}

/** Dispatch an operator if one that was seen lately covers the place, and say how far away it is. */
async function send(session: Session): Promise<void> {
  const isStill = (...states: Session["state"][]) => (): boolean => states.includes((told.value.get(session.id) ?? session).state);
  const query = { lat: session.requestedLat, lng: session.requestedLng, durationSeconds: session.maxDurationSeconds };
  const { availableOperators, ownSessionId } = await need(api.GET("/api/v1/pricing/quote", { params: { query } }));
  if (availableOperators === 0) return notify(ownSessionId === null ? "nobodyHere" : "operatorIsYours", "", false, isStill("REQUESTED"));
  const path = { id: session.id };
  try {
    const { distanceMeters } = await need(api.POST("/api/v1/sessions/{id}/dispatch", { params: { path, header: once() } }));
    noteSent(session.id, distanceMeters);
    if (distanceMeters !== null) notify("operatorSent", metres(distanceMeters), false, isStill("REQUESTED", "ASSIGNED"));
  } catch (error) {
    // Whoever is there has declined this request, or has just become busy.
    if (!(error instanceof ApiError && error.detail === "dispatch:noOperator")) throw error;
    notify("nobodyElse", "", false, isStill("REQUESTED"));
  }
}

interface ScreenProps {
  session: Session;
  charged: string;
  /** Why it is paused, as far as the meter was read. */
  reasons: readonly string[];
  url: string;
  isServerAway: boolean;
  snapshots: Signal<readonly (Still | Clip)[]>;
}
function Screen({ session, charged, reasons, url, isServerAway, snapshots }: ScreenProps) {
  const take = async (): Promise<void> => {
    const made = await frame(here, session.id, { width: 1920, quality: 90 });
    if (made === null) return;
    snapshots.value = [made, ...snapshots.value];
    notify("snapshotTaken");
  };
  const timeEnds = timeEndsAt(session);
  const seconds = Math.min(CLIP_S, config.value?.clipSeconds ?? 0);
  const save = async (): Promise<void> => {
    snapshots.value = [await clip(here, session.id, seconds), ...snapshots.value];
    notify("clipSaved");
  };
  const showSaved = snapshots.value.length > 0 && <Button id="show-saved" kind="quiet" run={() => document.getElementById("saved")?.scrollIntoView()}>{t("showTaken", { count: snapshots.value.length })}</Button>;
  return (
    <Picture last={showSaved} connection={here} sessionId={session.id} url={url} isServerAway={isServerAway} paused={session.meterState === "PAUSED" ? (reasons.length > 0 ? reasonsOf(reasons) : wordOf(REASONS, session.pauseReason)) : null} hasShown={session.cleanSeconds > 0 || session.delivery !== null} isOver={() => told.value.get(session.id)?.state !== "LIVE"}>
      {timeEnds !== null && <p class="so-far">{t("timeLeft")} <Countdown until={timeEnds} /> · {usdc(shareOf(session, charged))}</p>}
      <End session={session} charged={charged} />
      <Button id="snapshot" run={take}><Icon name="image" />{t("snapshot")}</Button>
      {seconds > 0 && <Button id="save-clip" run={save}><Icon name="download" />{t("clip", { count: seconds })}</Button>}
    </Picture>
  );
}

const Taken = ({ url, name, close }: { url: string; name: string; close: () => void }) => (
  <div class="row">
    <a class="button" href={url} download={name}><Icon name="download" />{t("download")}</a>
    <Button kind="quiet" run={close}>{t("close")}</Button>
  </div>
);

/** Says that a part of what was taken is within a pause, which may be known some seconds after it. */
function TakenPaused({ meter, from, to }: { meter: Meter | null; from: string; to: string }) {
  const isPaused = meter?.windows.some((each) => Date.parse(each.from) <= Date.parse(to) && (each.to === null || Date.parse(each.to) >= Date.parse(from)));
  return isPaused === true ? <p class="hint taken-paused" role="status">{t("takenPaused")}</p> : null;
}

/** A picture that the user took. It stays on the page when the session is over. */
const Snapshot = ({ session, meter, still, close }: { session: Session; meter: Meter | null; still: Still; close: () => void }) => (
  <Card title={t("snapshot")} aside={<Taken url={still.url} name={`sightline-${session.id.slice(0, 8)}-${still.sequence}.jpg`} close={close} />}>
    <img class="snapshot" src={still.url} alt={t("stillOf", { time: timeOf(still.capturedAt) })} />
    <Facts rows={[[t("capturedAt"), timeOf(still.capturedAt)], [t("capturedWhere"), positionOf(still.location)]]} />
    <TakenPaused meter={meter} from={still.capturedAt} to={still.capturedAt} />
  </Card>
);

/** A video of the last seconds that the user saved. It stays on the page when the session is over. */
const SavedClip = ({ session, meter, saved, close }: { session: Session; meter: Meter | null; saved: Clip; close: () => void }) => {
  const name = `sightline-${session.id.slice(0, 8)}-${saved.capturedTo.replace(/[:.]/g, "-")}.${saved.video.type === "video/webm" ? "webm" : "mp4"}`;
  return (
    <Card title={t("clipOf", { time: timeOf(saved.capturedTo) })} aside={<Taken url={saved.url} name={name} close={close} />}>
      <video class="snapshot" src={saved.url} controls muted playsInline aria-label={t("clipOf", { time: timeOf(saved.capturedTo) })} />
      <Facts rows={[[t("capturedAt"), `${timeOf(saved.capturedFrom)} – ${timeOf(saved.capturedTo)}`], [t("capturedWhere"), positionOf(saved.location)]]} />
      <TakenPaused meter={meter} from={saved.capturedFrom} to={saved.capturedTo} />
    </Card>
  );
};

const missingNow = (meter: Meter | null): string[] => meter?.windows.filter((each) => each.to === null).map((each) => each.reason) ?? [];

function Pause({ session, meter }: { session: Session; meter: Meter }) {
  const ends = pauseEndsAt(meter, timeEndsAt(session));
  if (ends === null) return null;
  return (
    <Banner kind="warn" icon="pause">
      <strong>{t("pausedTitle")}</strong> {reasonsOf(missingNow(meter))} {t("pausedFree")}
      <p>{t("endsItself")} <Countdown until={ends} /></p>
    </Banner>
  );
}

/** For the last seconds of the agreed time: how long it still is, and the way to go on. */
function EndsSoon({ session }: { session: Session }) {
  const timeEnds = timeEndsAt(session);
  if (timeEnds === null || timeEnds - now.value > SOON_MS) return null;
  const { seconds, amount, unpaid } = extensionOf(session, null);
  return (
    <Banner id="ends-soon" kind="warn" icon="clock">
      <strong>{t("endsSoon")} <Countdown until={timeEnds} />.</strong> {t("endsSoonText")}
      {unpaid === null && seconds > 0 && <div class="row"><Button id="extend-soon" run={() => extend(session, seconds)}>{t("extendBySoon", { time: clock(seconds), amount: usdc(amount) })}</Button></div>}
    </Banner>
  );
}

interface Extension {
  offered: readonly number[];
  seconds: number;
  amount: bigint;
  unpaid: ReturnType<typeof unpayable>;
}
/** `chosenS`: null for what is proposed, at most as much as the view has. */
function extensionOf(session: Session, chosenS: number | null): Extension {
  const offered = EXTENSIONS_S.filter((each) => session.maxDurationSeconds + each <= DURATION_MAX_S);
  const proposed = EXTENSIONS_S.findLast((each) => each <= Math.min(MORE_S, session.maxDurationSeconds)) ?? MORE_S;
  const seconds = Math.min(chosenS ?? proposed, offered.at(-1) ?? 0);
  const amount = BigInt(session.ratePerSecondMicroUsdc) * BigInt(seconds);
  return { offered, seconds, amount, unpaid: unpayable(amount, BigInt(session.holdMicroUsdc) + amount) };
}

async function extend(session: Session, seconds: number): Promise<void> {
  tell(await extendSession(session.id, seconds));
  notify("viewExtended", clock(seconds));
}

async function end(id: string): Promise<void> {
  noteEnd(id);
  await need(api.POST("/api/v1/sessions/{id}/end", { params: { path: { id }, header: once() } }));
}

/** What a party of a session pays or earns of a charge. */
const shareOf = (session: Session, micro: string | bigint): bigint =>
  session.consumerWorkspaceId === workspace.value?.id ? BigInt(micro) : withoutFee(micro, session.platformFeeBps);

function End({ session, charged }: { session: Session; charged: string }) {
  if (!mayChange.value) return null;
  const word = session.consumerWorkspaceId === workspace.value?.id ? "endAsk" : "stopAsk";
  return (
    <Confirm id="end" question={t(word, { amount: usdc(shareOf(session, charged)) })} action={t("endSession")} run={() => end(session.id)}>
      {t("endSession")}
    </Confirm>
  );
}

interface CostProps {
  session: Session;
  meter: Meter | null;
  operator: Position | null;
  isConsumer: boolean;
  isServerAway: boolean;
}
function Cost({ session, meter, operator, isConsumer, isServerAway }: CostProps) {
  const rate = BigInt(session.ratePerSecondMicroUsdc);
  const hold = BigInt(session.holdMicroUsdc);
  const isLive = session.state === "LIVE";
  const timeEnds = timeEndsAt(session);
  const proved = meter?.cleanSeconds ?? session.cleanSeconds;
  const isRunning = isLive && !isServerAway && session.meterState === "RUNNING" && session.startedAt !== null;
  const running = isRunning ? Math.floor((now.value - Date.parse(session.startedAt ?? "")) / 1000) - Math.floor(pausedMs(meter?.windows ?? [], now.value) / 1000) : proved;
  const estimate = Math.min(Math.max(running, proved), session.maxDurationSeconds);
  const charged = BigInt(meter?.accruedMicroUsdc ?? session.accruedMicroUsdc);
  useEffect(() => {
    if (isLive && isConsumer) void refreshFunds().catch(() => undefined);
  }, [isLive, isConsumer, session.holdMicroUsdc]);
  const silentMs = now.value - Date.parse(operator?.receivedAt ?? "");
  const chosenS = useSignal<number | null>(null);
  const { offered, seconds: moreS, amount: more, unpaid } = extensionOf(session, chosenS.value);
  const canExtend = isLive && isConsumer && mayChange.value;
  const share = hold === 0n ? 0 : Number((charged * 1000n) / hold) / 10;
  return (
    <Card title={t(isConsumer ? "cost" : "earned")} kind={isLive ? "running-cost" : ""}>
      <p class="price"><span class="number" id="cost">{usdc(shareOf(session, charged))}</span></p>
      <div class="bar" role="progressbar" aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.round(share)} aria-label={t("shareOfHold")}>
        <span ref={(node) => { if (node !== null) node.style.width = `${share}%`; }} />
      </div>
      <p class="hint">{t("atMost", { amount: usdc(shareOf(session, hold)) })}</p>
      <Facts
        rows={[
          [t("proved"), <span class="number"><strong id="proved">{clock(proved)}</strong>{isLive && estimate > proved && <span class="dim"> {t("about", { time: clock(estimate) })}</span>}</span>],
          [t("longest"), clock(session.maxDurationSeconds)],
          ...(isLive && timeEnds !== null ? [[t("timeLeft"), <span id="time-left"><Countdown until={timeEnds} /></span>] as const] : []),
          ...(isConsumer ? [] : grossRows(charged, session.platformFeeBps)),
          [t(isConsumer ? "ratePerSecond" : "chargedPerSecond"), usdc(rate)],
          ...(operator === null || !isLive ? [] : [[t("operatorAway"), <span id="operator">{awayFrom(session, { ...operator, ageMs: silentMs > SILENT_MS ? silentMs : 0 })}</span>] as const]),
          ...(session.startedAt === null ? [] : [[t("startedAt"), timeOf(session.startedAt)] as const]),
        ]}
      />
      {canExtend && unpaid !== null && <p class="hint" id="extend-unpaid">{unpaidText(unpaid)} <a href={link("wallet", fieldOf(unpaid))} onClick={() => (awaited.value = { extra: more, total: hold + more, view: session.id })}>{t(unpaid.why === "short" ? "addFunds" : "raiseLimits")}</a></p>}
      {canExtend && moreS > 0 && (
        <div class="form extend">
          <Field label={t("extendBy")}>
            <select id="extend-by" value={moreS} onChange={(event) => (chosenS.value = Number(event.currentTarget.value))}>
              {offered.map((each) => <option key={each} value={each}>{t("minutes", { count: each / 60 })}</option>)}
            </select>
          </Field>
          <Button id="extend" disabled={unpaid !== null} run={() => extend(session, moreS)}>{t("extend", { amount: usdc(more) })}</Button>
        </div>
      )}
      <p class="hint">{t("provedHint")} {isLive && t("timeLeftHint")}</p>
    </Card>
  );
}
