// The phone as camera: preview, position, requests, and the video while a session is LIVE.
import { useComputed, useSignal, type Signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { follow } from "sightline-js/events";
import { Publisher, type Sending } from "sightline-js/publisher";
import type { Quality } from "sightline-js/quality";
import { ApiError, makeClient, need, once, reachable, type Client, type Model } from "../api";
import { isSuspension, online } from "../errors";
import { clock, distanceM, metres, point, usdc, withoutFee } from "../format";
import { forget, keep, remembered } from "../kept";
import { chime } from "../live/chime";
import { Locator, type Fix } from "../live/locator";
import { endingOf, noteEnd } from "../live/endings";
import { shownGrade } from "../live/grade";
import { Lens } from "../live/lens";
import { endAlerts, JobAlerts } from "../live/push";
import { Messages, Newest } from "../live/messages";
import { pauseEndsAt, timeEndsAt } from "../live/pauses";
import { cameraProblem } from "../live/problems";
import { ACCURACY_MAX_M, awayFrom, uncertain, wordOf } from "../live/reasons";
import { UnchargedOf } from "../live/uncharged";
import { Address, Badge, Banner, Button, Card, Confirm, Countdown, Empty, Facts, Icon, Menu, SUSPENDED_EVERY_MS, Suspended, Switch, Unread, grossRows, useReading, useTitle } from "../parts";
import { PlaceMap } from "../map/map";
import { Town } from "../place/town";
import { Preferences } from "../preferences";
import { dropQuery, link, place } from "../router";
import { isSuspended, notify, now, report, type Session } from "../store";
import { t, type Word } from "../strings";
import { Requests } from "./requests";

type Meter = Model["Meter"];
const OWN_REASONS: Record<string, Word> = { LOCATION_STALE: "ownLocation", GEOFENCE_EXIT: "ownFence", MEDIA_LOST: "ownMedia" };
const ELSEWHERE_REASONS: Record<string, Word> = { LOCATION_STALE: "elsewhereUnlocated", GEOFENCE_EXIT: "elsewhereOutside", MEDIA_LOST: "elsewhereBlind" };
const PROVED_EVERY_MS = 2000;
const ANSWER_MS = 5000;
const COVERAGE_M = 2000;
/** So many unanswered heartbeats, 2 s each, mean that the server is not reached. */
const MISSED_MAX = 3;
/** A position is read about every 2 s. One that is older than this is not where the device is now. */
const LOCATED_MS = 5_000;
/** Within this time a device that films sends its next position, and leaves if another one has taken over. */
const LEAVES_WITHIN_MS = 2_500;
/** Until the camera opens, it is tried again so often where the browser allows it without a question. */
const CAMERA_EVERY_MS = 3000;
/** A decline within this time is no no-show. */
const DECLINE_FREE_MS = 20_000;
/** So far beyond the edge of its area a device still proves that it is there: metres, or a part of the radius if that is more. */
const MARGIN_M = 20;
const MARGIN_RATIO = 0.1;

/** In the storage of this tab: the view that is filmed with sound. */
const SOUNDED = "sightline.soundedView";
const soundedView = (): string | null => sessionStorage.getItem(SOUNDED);

/** The key of the link: kept in this browser, and taken out of the address at once. */
function takeKey(): string | null {
  const given = place.value.query.get("key");
  if (given === null) return remembered("cameraKey");
  keep("cameraKey", given);
  dropQuery();
  return given;
}

export default function Camera() {
  const key = useMemo(takeKey, []);
  const isForgotten = useSignal(false);
  const identity = useSignal<Model["KeyIdentity"] | null>(null);
  const isRefused = useSignal(false);
  const client = useRef(makeClient(key ?? "")).current;
  const end = (why: { value: boolean }) => (): void => {
    forget("cameraKey");
    why.value = true;
  };
  const leave = end(isRefused);
  const reading = useReading(async () => {
    if (key === null) return;
    try {
      const found = await need(client.GET("/api/v1/me"));
      if (found.kind === "api_key") identity.value = found;
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 401)) throw error;
      leave();
    }
  }, []);
  useEffect(() => () => void (isSuspended.value = false), []); // of this key: the sign-in may be of another workspace
  if (key === null || isForgotten.value) return <Empty isPage icon="camera" title={t("cameraNoKey")} text={t("cameraNoKeyText")}>{remembered("signedIn") !== null && <a class="button main" href={link("operate")}>{t("navOperate")}</a>}</Empty>;
  if (!isSecureContext) return <Empty isPage icon="warn" title={t("cameraNeedsHttps")} text={t("cameraNeedsHttpsText")} />;
  if (isRefused.value) return <Empty isPage icon="warn" title={t("cameraKeyGone")} text={t("cameraKeyRefused")} />;
  if (identity.value === null && isSuspended.value) return <Suspended again={async () => ((isSuspended.value = false), await reading.again())} />;
  const tell = (error: unknown): void => (error instanceof ApiError && error.status === 401 ? leave() : report(error));
  return identity.value === null ? <Unread isPage {...reading} /> : <Filming client={client} apiKey={key} identity={identity.value} report={tell} onForget={end(isForgotten)} />;
}

interface FilmingProps {
  client: Client;
  apiKey: string;
  identity: Model["KeyIdentity"];
  /** Told what failed. */
  report: (error: unknown) => void;
  /** The user gives the phone back: it keeps no key. */
  onForget: () => void;
}
function Filming({ client, apiKey, identity, report, onForget }: FilmingProps) {
  const id = identity.workspaceId;
  const preview = useRef<HTMLVideoElement>(null);
  const media = useSignal<MediaStream | null>(null);
  const mediaError = useSignal<Word | null>(null);
  const facing = useSignal<"environment" | "user">("environment");
  const opens = useRef(0);
  const hasSound = useSignal(soundedView() !== null && soundedView() === remembered("films"));
  const locator = useSignal<Locator | null>(null);
  const publisher = useSignal<Publisher | null>(null);
  const sending = useSignal<Sending>("connecting");
  const sendingSince = useSignal(0);
  const quality = useSignal<Quality | null>(null);
  const workspace = useSignal<Model["Workspace"] | null>(null);
  const job = useSignal<Session | null>(null);
  const meter = useSignal<Meter | null>(null);
  /** What another device or page has set the workspace to, or that a suspension has left it OFFLINE, until somebody changes it here. */
  const changedElsewhere = useSignal<"ONLINE" | "OFFLINE" | "SUSPENDED" | null>(null);
  const isChanging = useRef(false);
  useTitle(identity.workspace.name);
  const isHidden = useSignal(document.hidden);
  const requestsTold = useSignal(0);
  /** The session that this browser films. Another device with the same key may film, and only one of them does. */
  const filmed = useSignal(remembered("films"));
  const film = (sessionId: string | null): void => {
    if (sessionId === null) forget("films");
    else keep("films", sessionId);
    filmed.value = sessionId;
  };

  useEffect(() => {
    void openCamera();
    const made = (locator.value = new Locator(client, id, report));
    readJob(false)
      .then(() => {
        if (hasSound.peek() && soundedView() !== null && soundedView() !== job.value?.id) void switchSound(false); // that view is over
      })
      .catch(report);
    const leave = follow(
      `/api/v1/workspaces/${id}/events`,
      {
        // An assignment that ended while the stream was away is told by nobody.
        onState: (isOpen) => isOpen && void readJob(true).catch(() => undefined),
        onEvent: (name, data) => {
          if (name === "workspace") void learn(data as Model["Workspace"]);
          if (name === "assignment") takeJob(data as Session);
          if (name === "assignmentClosed" && job.value?.id === (data as { sessionId: string }).sessionId) job.value = null;
          if (name === "request" || name === "requestClosed") requestsTold.value += 1;
        },
      },
      apiKey,
    );
    const look = (): boolean => (isHidden.value = document.hidden);
    document.addEventListener("visibilitychange", look);
    return () => {
      made.stop();
      leave();
      publisher.value?.stop();
      opens.current += 1; // one that is being opened is closed when it is there
      media.value?.getTracks().forEach((track) => track.stop());
      document.removeEventListener("visibilitychange", look);
    };
  }, []);

  /** A suspension makes the workspace OFFLINE: ask which it is before either is shown. */
  async function learn(told: Model["Workspace"]): Promise<void> {
    const [before, after] = [workspace.value?.availabilityState, told.availabilityState];
    const isSwitch = before !== undefined && before !== after && before !== "BUSY" && after !== "BUSY";
    if (isSwitch && !isChanging.current) changedElsewhere.value = after;
    if (told.availabilityState !== "OFFLINE") return take(told);
    try {
      await read();
    } catch (error) {
      if (!isSuspension(error)) workspace.value = told;
      report(error);
    }
  }
  const read = async (): Promise<void> => take(await need(client.GET("/api/v1/workspaces/{id}", { params: { path: { id } } })));
  function take(found: Model["Workspace"]): void {
    if (isSuspended.value && found.availabilityState === "OFFLINE") changedElsewhere.value = "SUSPENDED";
    workspace.value = found;
    isSuspended.value = false;
  }
  // The stream does not tell that a suspension is over.
  useEffect(() => {
    if (!isSuspended.value) return;
    const timer = setInterval(() => void read().catch(report), SUSPENDED_EVERY_MS);
    return () => clearInterval(timer);
  }, [isSuspended.value]);
  async function readJob(isNews: boolean): Promise<void> {
    const before = job.value;
    const query = { view: "operator" as const, state: ["ASSIGNED" as const, "LIVE" as const], limit: 20 };
    const { items } = await need(client.GET("/api/v1/sessions", { params: { query } }));
    if (job.value?.id !== before?.id) return; // it was accepted, or closed, meanwhile
    if (before !== null && (before.state !== "ASSIGNED" || items.some((each) => each.id === before.id))) return;
    const next = items[0] ?? null;
    if (isNews && next?.state === "ASSIGNED") chime();
    job.value = next;
  }
  function takeJob(found: Session): void {
    const isMine = job.value === null || job.value.id === found.id || job.value.endedAt !== null;
    if (!isMine || (found.state !== "ASSIGNED" && found.state !== "LIVE" && job.value?.id !== found.id)) return;
    if (found.state === "ASSIGNED" && job.value?.id !== found.id) chime();
    job.value = found;
  }
  function acceptJob(found: Session): void {
    takeJob(found);
    // The list in which it was pressed is far below the job, and its entry is gone soon.
    setTimeout(() => {
      const head = document.querySelector("#start")?.closest("section")?.querySelector("h2");
      if (head != null) head.tabIndex = -1;
      head?.focus({ preventScroll: true });
      scrollTo(0, 0);
    });
  }
  /** Send nothing without a picture, and try to have the camera again. */
  async function lose(): Promise<void> {
    media.value = null;
    publisher.value?.stop();
    publisher.value = null;
    sending.value = "lost";
    await openCamera();
  }
  async function openCamera(): Promise<void> {
    const turn = (opens.current += 1);
    try {
      media.value?.getTracks().forEach((track) => track.stop());
      const video = { facingMode: { ideal: facing.value }, width: { ideal: 1280 }, height: { ideal: 720 } };
      const made = await navigator.mediaDevices.getUserMedia({ video, audio: hasSound.value }).catch(async (error: unknown) => {
        if (!hasSound.value) throw error;
        const mute = await navigator.mediaDevices.getUserMedia({ video });
        hasSound.value = false;
        notify("microphoneRefused", "", true);
        return mute;
      });
      if (turn !== opens.current) return made.getTracks().forEach((track) => track.stop()); // it is being opened again
      media.value = made;
      // Taken by another app, unplugged, or no longer allowed. A track that this page stops does not say so.
      for (const track of made.getTracks()) track.addEventListener("ended", () => media.value === made && void lose());
      mediaError.value = null;
      if (preview.current !== null) preview.current.srcObject = made;
      await publisher.value?.replace("video", made.getVideoTracks()[0] ?? null);
      await publisher.value?.replace("audio", made.getAudioTracks()[0] ?? null);
    } catch (error) {
      if (turn !== opens.current) return;
      media.value = null;
      mediaError.value = cameraProblem(error);
    }
  }

  const switchSound = (isOn: boolean): Promise<void> => ((hasSound.value = isOn), openCamera());

  // Publish while the session is LIVE, also after a reload of the page.
  const isElsewhere = useComputed(() => job.value?.state === "LIVE" && filmed.value !== job.value.id).value;
  const liveUrl = useComputed(() => (job.value?.state === "LIVE" && filmed.value === job.value.id ? job.value.whipUrl : null));
  // A reload in the middle of a view must not make it silent.
  const liveId = liveUrl.value === null ? null : (job.value?.id ?? null);
  useEffect(() => {
    if (liveId === null) return;
    if (hasSound.value) sessionStorage.setItem(SOUNDED, liveId);
    else sessionStorage.removeItem(SOUNDED);
  }, [liveId, hasSound.value]);
  // Without a camera no request may come here: a device that sends no position is sent none. A view that runs is left as it is.
  const isBlind = useComputed(() => media.value === null && liveUrl.value === null).value;
  useEffect(() => {
    locator.value?.quieten(isElsewhere || isBlind);
  }, [isElsewhere, isBlind, locator.value]);
  const isUnopened = useComputed(() => mediaError.value !== null).value;
  useEffect(() => {
    if (!isUnopened) return;
    const again = (): void => void openCamera();
    const timer = setInterval(() => void isCameraAllowed().then((isAllowed) => isAllowed && !document.hidden && again()), CAMERA_EVERY_MS);
    navigator.mediaDevices.addEventListener("devicechange", again);
    return () => {
      clearInterval(timer);
      navigator.mediaDevices.removeEventListener("devicechange", again);
    };
  }, [isUnopened]);
  // The device on which somebody said so last films: the one before hears of it at its next position, and leaves.
  const takenOver = locator.value?.takenOver.value ?? 0;
  useEffect(() => {
    if (takenOver > 0) film(null);
  }, [takenOver]);
  const filmInstead = async (): Promise<void> => {
    await locator.value?.takeOver();
    await new Promise((done) => setTimeout(done, LEAVES_WITHIN_MS));
    film(job.value?.id ?? null);
  };
  useEffect(() => {
    if (liveUrl.value === null || media.value === null || publisher.value !== null) return;
    sending.value = "connecting";
    const onChange = (state: Sending): void => {
      sending.value = state;
      if (state === "sending") sendingSince.value = now.value;
    };
    const onQuality = (seen: Quality | null): Quality | null => (quality.value = seen);
    publisher.value = new Publisher(liveUrl.value, media.value, { onChange, onQuality, resolve: reachable });
  }, [liveUrl.value, media.value]);
  useEffect(() => {
    if (liveUrl.value !== null) return;
    publisher.value?.stop(job.value?.state !== "LIVE");
    publisher.value = null;
  }, [liveUrl.value]);
  // Also where another device films it: this one may have to take over.
  const running = useComputed(() => (job.value?.state === "LIVE" ? job.value.id : null)).value;
  useEffect(() => followSession(client, running, apiKey, job, meter), [running]);

  // The consumer extended the view.
  const longest = useRef({ id: "", seconds: 0 });
  useEffect(() => {
    const { id: sessionId = "", maxDurationSeconds: seconds = 0 } = job.value ?? {};
    const added = sessionId === longest.current.id ? seconds - longest.current.seconds : 0;
    longest.current = { id: sessionId, seconds };
    if (added <= 0) return;
    chime();
    notify("jobExtended", clock(added));
  }, [job.value?.id, job.value?.maxDurationSeconds]);

  const fix = locator.value?.fix.value ?? null;
  // Neither video nor heartbeats get through: nobody receives what is filmed.
  const isConnected = online.value && sending.value === "sending" && (locator.value?.missed.value ?? 0) < MISSED_MAX;
  const problem = locator.value?.error.value ?? null;
  const isChecking = locator.value?.isChecking.value ?? false;
  const isLocated = useComputed(() => {
    const [atMs, error] = [locator.value?.fix.value?.atMs ?? 0, locator.value?.error.value ?? null];
    return now.value > 0 && error === null && Date.now() - atMs < LOCATED_MS;
  }).value;
  const isInaccurate = isLocated && fix !== null && fix.accuracyMeters > ACCURACY_MAX_M;
  const positionWord = problem ?? (fix === null ? "positionSearching" : "positionSilent");
  const pausesSoon = liveUrl.value !== null && job.value?.meterState === "RUNNING" && t("pausesSoon");
  const state = workspace.value?.availabilityState ?? "OFFLINE";
  // A phone that sleeps hears of no job and sends no position.
  const isAtWork = state !== "OFFLINE" || liveUrl.value !== null;
  useEffect(() => stayAwake(isAtWork), [isAtWork]);
  // A browser asks before it closes a tab on which somebody has pressed something.
  useEffect(() => {
    if (liveUrl.value === null) return;
    const ask = (event: Event): void => event.preventDefault();
    addEventListener("beforeunload", ask);
    return () => removeEventListener("beforeunload", ask);
  }, [liveUrl.value]);
  // What is uncertain about the position is no reason to warn.
  const isAway = fix !== null && (distanceToArea(workspace.value, fix) ?? 0) > fix.accuracyMeters;
  const patch = async (body: { availabilityState?: "ONLINE" | "OFFLINE"; deviceKind?: "PHONE"; coverageLat?: number; coverageLng?: number; coverageRadiusMeters?: number }): Promise<void> => {
    isChanging.current = true;
    try {
      workspace.value = await need(client.PATCH("/api/v1/workspaces/{id}", { params: { path: { id } }, body }));
      changedElsewhere.value = null;
    } finally {
      isChanging.current = false;
    }
  };
  const goOnline = async (): Promise<void> => {
    if (fix === null) return;
    const covers = (distanceToArea(workspace.value, fix) ?? 1) <= 0;
    await patch({ availabilityState: "ONLINE", deviceKind: "PHONE", ...(!covers && areaAround(fix, COVERAGE_M)) });
  };
  const workHere = async (): Promise<void> => {
    if (fix === null) return;
    await patch(areaAround(fix, workspace.value?.coverageRadiusMeters ?? COVERAGE_M));
    notify("areaMoved");
  };
  const isBusy = job.value?.state === "ASSIGNED" || job.value?.state === "LIVE";
  const isStranded = state === "ONLINE" && mediaError.value !== null && job.value === null && !isSuspended.value;
  const goOffline = (): Promise<void> => patch({ availabilityState: "OFFLINE" });
  const isLive = job.value?.state === "LIVE";
  const isPaused = isLive && job.value?.meterState === "PAUSED";
  const isFilming = isConnected && !isPaused;
  const filmWord: Word = sending.value === "refused" ? "filmRefused" : mediaError.value !== null ? "badgeNoCamera" : !isConnected ? "filmConnecting" : isPaused ? "statePaused" : "filming";
  const isServerAway = liveUrl.value !== null && (locator.value?.missed.value ?? 0) >= MISSED_MAX;
  const shownState = isSuspended.value ? "SUSPENDED" : isElsewhere ? (isPaused ? "PAUSED" : "BUSY") : isLive ? (isPaused ? "PAUSED" : "LIVE") : job.value?.state === "ASSIGNED" ? "ASKED" : state;
  /** What is missing for a request or for the view, as the badge says it. */
  const missing = ((): Word | null => {
    if (isElsewhere || isSuspended.value || (!isLive && shownState !== "ASKED" && state !== "ONLINE")) return null;
    if (mediaError.value !== null) return "badgeNoCamera";
    if (isLive && !isConnected) return "badgeAway";
    if (isPaused) return null;
    return !isLocated ? "badgeNoPosition" : isInaccurate ? "badgeUncertain" : null;
  })();
  const forgetPhone = async (): Promise<void> => {
    // The key goes in any case.
    await Promise.all([state === "ONLINE" && goOffline().catch(report), endAlerts(client, id).catch(report)]);
    onForget();
  };
  return (
    <>
      <header class="page-head">
        <div>
          <h1>{identity.workspace.name}</h1>
          {!isBusy && <p class="dim">{t("cameraLead")}</p>}
          {!isBusy && workspace.value !== null && <p class="dim" id="payee">{t("filmedFor")} <Address value={workspace.value.walletAddress} /></p>}
        </div>
        {missing === null ? <Badge state={shownState} /> : <span class="badge paused">{t(missing)}</span>}
      </header>
      {isSuspended.value && <Banner kind="bad" icon="warn"><strong>{t("suspended")}.</strong> {t("suspendedText")}</Banner>}
      {(problem !== null || isChecking || fix !== null) && !isLocated && (
        <div class="banner warn" role="alert" id="no-position">
          <Icon name="pin" />
          <div>
            <p>{t(isChecking ? "positionChecking" : positionWord)} {pausesSoon}</p>
            <div class="row"><Button run={() => locator.value?.check()}>{t("checkPosition")}</Button></div>
          </div>
        </div>
      )}
      {isInaccurate && !isElsewhere && <Banner id="inaccurate" kind="warn" icon="warn">{uncertain(fix.accuracyMeters)} {pausesSoon}</Banner>}
      <div class="stage dark">
        <video ref={preview} muted playsInline autoPlay aria-label={t("preview")} />
        {media.value === null && mediaError.value === null && (
          <div class="cover" role="status">
            <span class="spinner big" aria-hidden="true" />
            <p>{t("cameraStarting")}</p>
          </div>
        )}
        {mediaError.value !== null && (
          <div class="cover" role="alert">
            <Icon name="warn" />
            <p>{t(mediaError.value)}</p>
            <Button run={openCamera}>{t("checkCamera")}</Button>
          </div>
        )}
        {liveUrl.value !== null && (
          <span class={isFilming ? "tag recording" : "tag"} role="status" id="sending" data-sending={sending.value}>{isFilming && <i class="dot" />}{t(filmWord)}</span>
        )}
        {liveUrl.value !== null && isConnected && quality.value !== null && (
          <Grade quality={quality.value} forMs={now.value - sendingSince.value} />
        )}
        {job.value?.state === "LIVE" && !isElsewhere && <Newest client={client} id={job.value.id} messages={job.value.messages} />}
      </div>
      {!online.value && <Banner kind="warn" icon="warn">{t("cameraOffline")}</Banner>}
      {online.value && isServerAway && <Banner id="server-away" kind="bad" icon="warn">{t("cameraServerAway")}</Banner>}
      {locator.value?.isShared.value === true && !isElsewhere && (
        <div id="other-device"><Banner kind={liveUrl.value === null ? "info" : "bad"} icon="warn">{t(liveUrl.value === null ? "otherDeviceOnline" : "otherDevice")}</Banner></div>
      )}
      {(changedElsewhere.value === "SUSPENDED" ? "OFFLINE" : changedElsewhere.value) === state && job.value?.state !== "LIVE" && !isSuspended.value && (
        <div id="changed-elsewhere"><Banner kind="info" icon="camera">{t(changedElsewhere.value === "SUSPENDED" ? "suspensionOver" : state === "ONLINE" ? "setOnlineElsewhere" : "setOfflineElsewhere")}</Banner></div>
      )}
      {isHidden.value && liveUrl.value !== null && <Banner kind="bad" icon="pause">{t("backgroundPause")}</Banner>}
      {state === "ONLINE" && isAway && (
        <Banner kind="warn" icon="pin">
          {t("awayFromArea", { radius: metres(workspace.value?.coverageRadiusMeters ?? 0) })}
          <div class="row"><Button id="work-here" run={workHere}>{t("workHere")}</Button></div>
        </Banner>
      )}
      {isElsewhere && job.value !== null && (
        <Elsewhere session={job.value} meter={meter.value}>
          <Button id="film-instead" kind={job.value.meterState === "PAUSED" ? "main" : "plain"} disabled={media.value === null || !isLocated} run={filmInstead}>{t("filmInstead")}</Button>
        </Elsewhere>
      )}
      {isStranded && (
        <div id="no-requests">
          <Banner kind="warn" icon="camera">
            {t("cameraNoRequests")}
            <div class="row"><Button run={goOffline}>{t("goOffline")}</Button></div>
          </Banner>
        </div>
      )}
      {!isSuspended.value && !isElsewhere && !isStranded && (job.value !== null || state !== "ONLINE") && <Job client={client} ownId={id} job={job} meter={meter.value} fix={fix} isOffline={state === "OFFLINE"} isLocated={isLocated} isCut={!online.value || isServerAway} lacks={media.value === null ? (mediaError.value ?? "cameraStarting") : isLocated ? null : positionWord} onStart={film} />}
      {state === "ONLINE" && !isSuspended.value && !isStranded && <Requests client={client} workspaceId={id} isOffline={false} at={isLocated ? fix : null} changes={requestsTold.value} onAccepted={acceptJob} />}
      <div class="row centre">
        <Button run={() => ((facing.value = facing.value === "user" ? "environment" : "user"), openCamera())}>{t("flip")}</Button>
        <Switch id="microphone" isOn={hasSound.value} run={() => switchSound(!hasSound.value)}>{t("microphone")}</Switch>
        <Lens stream={media.value} />
        <Menu id="camera-menu" label={t("menu")} closesOn={job.value?.id}>
          {remembered("signedIn") !== null && <a href={link("operate")}>{t("earningsAndHistory")}</a>}
          <Preferences />
          <JobAlerts client={client} workspaceId={id} />
          {state !== "BUSY" && <Confirm id="forget-phone" question={t("forgetPhoneAsk")} action={t("forgetPhone")} run={forgetPhone}>{t("forgetPhone")}</Confirm>}
        </Menu>
      </div>
      <Card title={t("position")}>
        <p role="status" id="position">
          {isLocated && fix !== null ? `${point(fix.lat, fix.lng)} ± ${metres(fix.accuracyMeters)}` : t(isChecking || positionWord === "positionSearching" ? "positionSearching" : "positionNone")}
        </p>
        {workspace.value?.coverageLat != null && workspace.value.coverageLng != null && !isBusy && <p class="hint" id="covered">{t("youCover", { radius: metres(workspace.value.coverageRadiusMeters ?? 0), place: point(workspace.value.coverageLat, workspace.value.coverageLng) })} <Town lat={workspace.value.coverageLat} lng={workspace.value.coverageLng} /></p>}
        {!isSuspended.value && (locator.value?.missed.value ?? 0) > 2 && <Banner kind="warn" icon="clock">{t("positionMissed", { count: locator.value?.missed.value ?? 0 })}</Banner>}
        {job.value?.state !== "LIVE" && !isSuspended.value &&
          (state === "OFFLINE" ? (
            <Button id="go-online" kind="main" disabled={fix === null || media.value === null} run={goOnline}>{t("goOnline")}</Button>
          ) : (
            !isStranded && <Button run={goOffline}>{t("goOffline")}</Button>
          ))}
        {job.value?.state !== "LIVE" && !isSuspended.value && !isStranded && <p class="hint">{t("availabilityHint")}</p>}
      </Card>
    </>
  );
}

/** How well it sends. */
function Grade({ quality, forMs }: { quality: Quality; forMs: number }) {
  const { grade, word } = shownGrade(quality.grade, forMs);
  return <span class={`tag at-end ${grade}`} id="quality" data-grade={grade}><i class="dot" />{quality.height !== null && `${quality.height}p · `}{t(word)}</span>;
}

/** A view that another device films, or has stopped to film without ending it: it ends by itself then. */
function Elsewhere({ session, meter, children }: { session: Session; meter: Meter | null; children: ComponentChildren }) {
  if (session.meterState !== "PAUSED") return <Card title={t("filmedElsewhere")}><p class="dim">{t("filmedElsewhereText")}</p>{children}</Card>;
  const missing = (meter?.windows ?? []).filter((each) => each.to === null).map((each) => each.reason);
  const isSilent = missing.includes("LOCATION_STALE") && missing.includes("MEDIA_LOST");
  const ends = meter === null ? null : pauseEndsAt(meter, timeEndsAt(session));
  return (
    <Card title={t("pausedElsewhere")}>
      <Banner kind="warn" icon="pause">
        {isSilent ? t("elsewhereSilent") : wordOf(ELSEWHERE_REASONS, session.pauseReason)} {t("notPaid")}
        {ends !== null && <p>{t("endsItself")} <Countdown until={ends} /></p>}
      </Banner>
      {children}
    </Card>
  );
}

/** Whether the camera can be opened without a question to the user; false where the browser does not tell. */
const isCameraAllowed = (): Promise<boolean> =>
  navigator.permissions.query({ name: "camera" }).then(({ state }) => state === "granted", () => false);

interface Point {
  lat: number;
  lng: number;
}
const areaAround = ({ lat, lng }: Point, radiusM: number) => ({ coverageLat: lat, coverageLng: lng, coverageRadiusMeters: radiusM });

/** Where the phone's own map shows a place: Android knows geo:, Apple's devices know their own maps. */
function onMap({ requestedLat, requestedLng }: Session): string {
  const at = `${requestedLat},${requestedLng}`;
  return /iPhone|iPad|Macintosh/.test(navigator.userAgent) ? `https://maps.apple.com/?q=${at}` : `geo:${at}?q=${at}`;
}

/** Metres to the area that a workspace covers, below 0 inside; null without an area. */
function distanceToArea(covering: Model["Workspace"] | null, { lat, lng }: Point): number | null {
  if (covering === null || covering.coverageLat === null || covering.coverageLng === null) return null;
  return distanceM(lat, lng, covering.coverageLat, covering.coverageLng) - (covering.coverageRadiusMeters ?? 0);
}

interface JobProps {
  client: Client;
  ownId: string;
  job: Signal<Session | null>;
  meter: Meter | null;
  fix: Fix | null;
  isOffline: boolean;
  /** Whether `fix` is where the device is now. */
  isLocated: boolean;
  /** The phone has no connection, or the server is away, which is said above: nothing else need be checked. */
  isCut: boolean;
  /** Why it cannot film: without the camera or the position a view would be LIVE without a picture, or paused. */
  lacks: Word | null;
  /** This browser films the session from now on. */
  onStart: (sessionId: string) => void;
}
function Job({ client, ownId, job, meter, fix: last, isOffline, isLocated, isCut, lacks, onStart }: JobProps) {
  const shown = job.value;
  if (shown === null) return <Card><p class="dim" role="status">{t(isOffline ? "cameraIsOffline" : isLocated ? "cameraWaiting" : "cameraWaitingUnlocated")}</p></Card>;
  const params = { path: { id: shown.id }, header: once() };
  const most = usdc(withoutFee(shown.holdMicroUsdc, shown.platformFeeBps));
  const fix = isLocated ? last : null;
  const away = fix === null ? null : distanceM(fix.lat, fix.lng, shown.requestedLat, shown.requestedLng);
  const ends = meter === null ? null : pauseEndsAt(meter, timeEndsAt(shown));
  const timeEnds = timeEndsAt(shown);
  const isOutside = away !== null && away > shown.radiusMeters;
  // As the server counts: what is uncertain about the position is no reason to pause.
  const isFarOutside = away !== null && fix !== null && away - fix.accuracyMeters > shown.radiusMeters + Math.max(MARGIN_M, MARGIN_RATIO * shown.radiusMeters);
  const freeUntil = Date.parse(shown.assignedAt ?? "") + DECLINE_FREE_MS;
  const isUncertain = fix !== null && fix.accuracyMeters > ACCURACY_MAX_M;
  const awayRow = [t("away"), <span id="away">{last === null ? "–" : awayFrom(shown, { ...last, ageMs: isLocated ? 0 : Date.now() - last.atMs })}</span>] as const;
  const area = (
    <PlaceMap
      isSmall
      scene={{
        fence: { lat: shown.requestedLat, lng: shown.requestedLng, radiusM: shown.radiusMeters },
        operator: fix === null ? null : { ...fix, accuracyM: fix.accuracyMeters },
        isOwn: true,
        cells: [],
        cellDegrees: 0,
        isClose: true,
      }}
    />
  );
  const stop = async (): Promise<void> => {
    noteEnd(shown.id);
    job.value = await need(client.POST("/api/v1/sessions/{id}/end", { params }));
  };
  const decline = async (): Promise<void> => {
    await need(client.POST("/api/v1/sessions/{id}/decline", { params }));
    job.value = null;
    notify("declined");
  };
  const giveBack = <Confirm id="decline" question={t("declineAsk")} action={t("decline")} run={decline}>{t("decline")}</Confirm>;
  if (shown.state === "ASSIGNED")
    return (
      <Card title={t("jobTitle")} aside={shown.expiresAt !== null && <span class="dim"><Icon name="clock" /> <Countdown until={shown.expiresAt} /></span>}>
        <p class="job">{shown.instructions ?? t("jobNoInstructions")}</p>
        {isOutside && <Banner kind="warn" icon="warn">{t("outsideFirst", { radius: metres(shown.radiusMeters) })}</Banner>}
        {lacks !== null && <Banner kind="warn" icon="warn">{t(lacks)} {t("startNeeds")}<div class="row">{giveBack}</div></Banner>}
        <Button id="start" kind={isOutside ? "plain" : "main"} disabled={lacks !== null} run={async () => (onStart(shown.id), (job.value = (await need(client.POST("/api/v1/sessions/{id}/start", { params }))).session))}>{t("startFilming")}</Button>
        <div class="apart">
          <p class="hint" id="decline-hint">{now.value < freeUntil ? <>{t("declineHint")} <strong><Countdown until={freeUntil} />.</strong> {t("declineLater")}</> : t("declineCounts")}</p>
          {lacks === null && giveBack}
        </div>
        <Facts rows={[
          [t("place"), <><a href={onMap(shown)}>{t("watchLead", { place: point(shown.requestedLat, shown.requestedLng), radius: metres(shown.radiusMeters) })}</a> <Town lat={shown.requestedLat} lng={shown.requestedLng} /></>],
          awayRow,
          [t("longest"), clock(shown.maxDurationSeconds)],
          [t("earnAtMost"), most],
        ]} />
        {area}
      </Card>
    );
  if (shown.state === "LIVE")
    return (
      <Card title={t(shown.meterState === "PAUSED" ? "statePaused" : "filming")} aside={shown.meterState !== "PAUSED" && <span class="number" id="filmed">{clock(Math.min((now.value - Date.parse(shown.startedAt ?? "")) / 1000, shown.maxDurationSeconds))}</span>}>
        {shown.meterState === "PAUSED" && (
          <Banner id="paused" kind="warn" icon="pause">
            {isCut ? null : shown.pauseReason === "LOCATION_STALE" && isUncertain ? uncertain(fix.accuracyMeters) : shown.pauseReason === "GEOFENCE_EXIT" && away !== null && !isOutside ? t("backInside") : wordOf(OWN_REASONS, shown.pauseReason)} {t("notPaid")}
            {ends !== null && <p>{t("endsItself")} <Countdown until={ends} /></p>}
          </Banner>
        )}
        <p class="job">{shown.instructions ?? t("jobNoInstructions")}</p>
        {isOutside && shown.meterState !== "PAUSED" && <Banner kind="warn" icon="warn">{t(isFarOutside ? "outsideFar" : "outside", { radius: metres(shown.radiusMeters) })}</Banner>}
        <Messages messages={shown.messages} />
        {isOutside && area}
        <Facts rows={[
          [t("proved"), clock(shown.cleanSeconds)],
          [t("earned"), usdc(withoutFee(shown.accruedMicroUsdc, shown.platformFeeBps))],
          [t("longest"), clock(shown.maxDurationSeconds)],
          ...(timeEnds === null ? [] : [[t("timeLeft"), <Countdown until={timeEnds} />] as const]),
          awayRow,
        ]} />
        <Confirm id="stop" question={t("stopAsk", { amount: usdc(withoutFee(shown.accruedMicroUsdc, shown.platformFeeBps)) })} action={t("stopFilming")} run={stop}>{t("stopFilming")}</Confirm>
      </Card>
    );
  const earned = withoutFee(shown.chargedMicroUsdc, shown.platformFeeBps);
  return (
    <Card title={t("jobOver")}>
      {shown.startedAt === null ? (
        <p>{endingOf(shown, ownId)} {t("jobNotStarted")} {shown.endReason === "CONSUMER_CANCELLED" && t("noCountAgainst")}</p>
      ) : (
        <>
          <p class="price"><span class="number">{usdc(earned)}</span></p>
          <Facts rows={grossRows(shown.chargedMicroUsdc, shown.platformFeeBps)} />
          <p class="dim">{t("jobOverText", { time: clock(shown.cleanSeconds) })} {endingOf(shown, ownId)}</p>
          <UnchargedOf client={client} session={shown} title="unpaidTime" isOwn />
          {remembered("signedIn") !== null && <a href={link("receipt", shown.id)}>{t("seeReceipt")}</a>}
        </>
      )}
      <Button id="next-job" run={() => (job.value = null)}>{t("close")}</Button>
    </Card>
  );
}

/** The stream tells of changes of state at once; the proved seconds grow between them. */
function followSession(
  client: Client, id: string | null, key: string, job: Signal<Session | null>, meter: Signal<Meter | null>,
): (() => void) | undefined {
  meter.value = null;
  if (id === null) return undefined;
  const onEvent = (name: string, data: unknown): void => {
    if (name === "session") job.value = data as Session;
    if (name === "meter") meter.value = data as Meter;
  };
  const leave = follow(`/api/v1/sessions/${id}/events`, { onEvent }, key);
  let isAsking = false;
  let isOver = false;
  const read = async (): Promise<void> => {
    if (isAsking) return;
    isAsking = true;
    try {
      const call = { params: { path: { id } }, signal: AbortSignal.timeout(ANSWER_MS) };
      const found = await need(client.GET("/api/v1/sessions/{id}", call));
      if (!isOver) job.value = found;
      // A second reason within a pause changes no state.
      const read = found.meterState === "PAUSED" ? await need(client.GET("/api/v1/sessions/{id}/meter", call)) : null;
      if (!isOver && read !== null) meter.value = read;
    } finally {
      isAsking = false;
    }
  };
  const timer = setInterval(() => void read().catch(() => undefined), PROVED_EVERY_MS);
  return () => {
    isOver = true;
    leave();
    clearInterval(timer);
  };
}

/** Keep the screen on; the browser lets the lock go whenever the page is hidden. */
function stayAwake(isWanted: boolean): (() => void) | undefined {
  if (!isWanted || !("wakeLock" in navigator)) return undefined;
  let lock: WakeLockSentinel | null = null;
  let isOver = false;
  const take = async (): Promise<void> => {
    if (document.hidden || isOver) return;
    lock = await navigator.wakeLock.request("screen").catch(() => null);
    if (isOver) void lock?.release();
  };
  void take();
  document.addEventListener("visibilitychange", take);
  return () => {
    isOver = true;
    document.removeEventListener("visibilitychange", take);
    void lock?.release();
  };
}
