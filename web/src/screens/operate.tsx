// Film for others: availability, coverage, the phone as camera, and open requests.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import encodeQr from "qr";
import { api, makeClient, need, once, type Model } from "../api";
import { clock, dateTime, metres, point, usdc } from "../format";
import { keep, remembered } from "../kept";
import { JobAlerts } from "../live/push";
import { useCoverage } from "../map/coverage";
import { PlaceMap } from "../map/map";
import { Badge, Banner, Button, Card, Confirm, Countdown, Facts, Field, Icon, Loopback, Page, Secret } from "../parts";
import { PlaceField } from "../place/field";
import { placeAt, typed } from "../place/place";
import { link } from "../router";
import { notify, now, report, tell, told, workspace, type Session } from "../store";
import { t, type Word } from "../strings";
import { Payee } from "./invitations";
import { Requests } from "./requests";

const RADII = [500, 1000, 2000, 5000, 10_000, 20_000, 50_000] as const;
const DEVICES: Record<Model["Workspace"]["deviceKind"], Word> = {
  PHONE: "devicePhone", LAPTOP: "deviceLaptop", DRONE: "deviceDrone", PTZ: "devicePtz", FIXED: "deviceFixed", OTHER: "deviceOther",
};
const EARNING_DAYS = 14;
const DAY_MS = 86_400_000;
/** A camera sends its position every 2 s: after so long none is open. */
const UNSEEN_MS = 60_000;
const SEEN_EVERY_MS = 10_000;

export default function Operate() {
  const shown = workspace.value;
  const id = shown?.id;
  const isOnline = shown?.availabilityState === "ONLINE";
  // The stream tells of changes of state, and not of each position.
  useEffect(() => {
    if (id === undefined || !isOnline) return;
    const read = async (): Promise<void> => void (workspace.value = await need(api.GET("/api/v1/workspaces/{id}", { params: { path: { id } } })));
    const timer = setInterval(() => document.hidden || void read().catch(() => undefined), SEEN_EVERY_MS);
    return () => clearInterval(timer);
  }, [id, isOnline]);
  if (shown === null) return null;
  const silentMs = now.value - Date.parse(shown.lastSeenAt ?? "");
  const isUnseen = isOnline && !(silentMs < UNSEEN_MS);
  const accepted = (session: Session): unknown => (tell(session), isTouched() && filmHere());
  return (
    <Page title={t("operateTitle")} lead={t("operateLead")} aside={isUnseen ? <span class="badge paused">{t("badgeNoCamera")}</span> : <Badge state={shown.availabilityState} />}>
      {isUnseen && (
        <Banner id="no-camera-open" kind="warn" icon="camera">
          {shown.lastSeenAt === null ? t("noCameraYet") : t("noCameraOpen", { time: clock(silentMs / 1000) })}
          <div class="row"><Button run={filmHere}>{t("phoneHere")}</Button></div>
        </Banner>
      )}
      <Payee address={shown.walletAddress} />
      <div class="columns">
        <div class="stack">
          <Assigned />
          <Requests client={api} workspaceId={shown.id} isOffline={shown.availabilityState === "OFFLINE"} changes={told.value} onAccepted={accepted} />
          <Earnings />
        </div>
        <div class={hasCamera(shown) ? "stack" : "stack first"}>
          <Phone />
          <Availability />
        </div>
      </div>
    </Page>
  );
}

function Availability() {
  const shown = workspace.value;
  const where = useSignal(shown?.coverageLat != null && shown.coverageLng != null ? placeAt(shown.coverageLat, shown.coverageLng) : typed(""));
  const radius = useSignal(shown?.coverageRadiusMeters ?? 2000);
  const { coverage, isWide, onView } = useCoverage();
  // The camera sets the area where it goes online for the first time.
  useEffect(() => {
    if (where.value.text === "" && shown?.coverageLat != null && shown.coverageLng != null) where.value = placeAt(shown.coverageLat, shown.coverageLng);
  }, [shown?.coverageLat]);
  if (shown === null) return null;
  const chosen = where.value.point;
  const isOn = shown.availabilityState !== "OFFLINE";
  const patch = async (body: Parameters<typeof change>[1]): Promise<void> => {
    workspace.value = await change(shown.id, body);
  };
  const save = async (): Promise<void> => {
    if (chosen === null) return;
    await patch({ coverageLat: chosen.lat, coverageLng: chosen.lng, coverageRadiusMeters: radius.value });
    notify("saved");
  };
  const radii = RADII.some((each) => each === radius.value) ? RADII : [...RADII, radius.value].sort((a, b) => a - b);
  return (
    <Card title={t("availability")}>
      <Facts rows={[[t("lastHeartbeat"), shown.lastSeenAt === null ? t("never") : dateTime(shown.lastSeenAt)], [t("device"), t(DEVICES[shown.deviceKind])]]} />
      <div class="form">
        <PlaceField id="coverage" label={t("coverageCentre")} hint={t("placeHint")} place={where} />
        <PlaceMap
          scene={{
            fence: chosen === null ? null : { ...chosen, radiusM: radius.value },
            operator: null,
            cells: coverage?.items ?? [],
            cellDegrees: coverage?.cellDegrees ?? 0,
            isClose: false,
          }}
          everywhere={coverage?.everywhere ?? 0}
          isWide={isWide}
          onPick={(lat, lng) => (where.value = placeAt(lat, lng))}
          onView={onView}
        />
        <Field label={t("coverageRadius")}>
          <select value={radius.value} onChange={(event) => (radius.value = Number(event.currentTarget.value))}>
            {radii.map((each) => <option key={each} value={each}>{metres(each)}</option>)}
          </select>
        </Field>
        <div class="row">
          <Button disabled={chosen === null} run={save}>{t("save")}</Button>
          <JobAlerts client={api} workspaceId={shown.id} />
          <Button kind={isOn || !hasCamera(shown) ? "plain" : "main"} run={() => patch({ availabilityState: isOn ? "OFFLINE" : "ONLINE" })}>{t(isOn ? "goOffline" : "goOnline")}</Button>
        </div>
      </div>
    </Card>
  );
}

/** Whether this is a phone or a tablet, which can film itself. */
const isTouched = (): boolean => matchMedia("(pointer: coarse)").matches;

/** The next step of who has no camera is to make a code; of who has one, to go online. */
const hasCamera = (shown: Model["Workspace"] | null): boolean => shown !== null && shown.lastSeenAt !== null;

const change = (id: string, body: { availabilityState?: "ONLINE" | "OFFLINE"; coverageLat?: number; coverageLng?: number; coverageRadiusMeters?: number }) =>
  need(api.PATCH("/api/v1/workspaces/{id}", { params: { path: { id } }, body }));

async function makeKey(): Promise<string> {
  const id = workspace.value?.id ?? "";
  const body = { label: `${t("cameraKeyLabel")}, ${dateTime(new Date(now.value).toISOString())}`, environment: "TEST" as const, scopes: ["sessions:read" as const, "sessions:operate" as const] };
  return (await need(api.POST("/api/v1/workspaces/{id}/api-keys", { params: { path: { id } }, body }))).plaintext;
}

/** Opens the camera with the key that this browser has, if it still works for this workspace, or with a new one. */
async function filmHere(): Promise<void> {
  const known = remembered("cameraKey");
  const found = known === null ? null : await need(makeClient(known).GET("/api/v1/me")).catch(() => null);
  if (found?.kind !== "api_key" || found.workspaceId !== workspace.value?.id) keep("cameraKey", await makeKey());
  location.hash = "#/camera";
}

function Phone() {
  const url = useSignal<string | null>(null);
  const make = async (): Promise<void> => void (url.value = `${location.origin}/console/#/camera?key=${await makeKey()}`);
  const makeKind = hasCamera(workspace.value) || isTouched() ? "plain" : "main";
  return (
    <Card title={t("phoneTitle")}>
      {url.value === null ? (
        <>
          <p class="dim">{t("phoneText")}</p>
          <Loopback />
          {!isSecureContext && <Banner kind="warn" icon="warn">{t("cameraNeedsHttpsText")}</Banner>}
          <div class="row">
            <Button id="make-qr" kind={makeKind} run={make}>{t("phoneMake")}</Button>
            <Button id="film-here" kind={isTouched() ? "main" : "quiet"} run={filmHere}>{t("phoneHere")}</Button>
          </div>
        </>
      ) : (
        <>
          <Qr text={url.value} />
          <p class="hint">{t("phoneScan")}</p>
          <Loopback />
          <Secret id="camera-link" title={t("phoneLink")} label={t("phoneLink")} value={url.value}>
            {t("phoneSecret")} <a href={link("team")}>{t("navTeam")}</a>
          </Secret>
        </>
      )}
    </Card>
  );
}

function Qr({ text }: { text: string }) {
  const rows = encodeQr(text, "raw", { border: 2 });
  const path = rows.map((row, y) => row.map((isDark, x) => (isDark ? `M${x} ${y}h1v1h-1z` : "")).join("")).join("");
  return (
    <svg class="qr" viewBox={`0 0 ${rows.length} ${rows.length}`} role="img" aria-label={t("phoneQr")} shape-rendering="crispEdges">
      <rect width="100%" height="100%" fill="#fff" />
      <path d={path} fill="#000" />
    </svg>
  );
}

function Earnings() {
  const usage = useSignal<Pick<Model["Usage"], "items" | "total"> | null>(null);
  const day = (ms: number): string => new Date(ms).toISOString().slice(0, 10);
  const query = { side: "operator" as const, from: day(now.value - (EARNING_DAYS - 1) * DAY_MS), to: day(now.value) };
  const ended = [...told.value.values()].filter((each) => each.state === "ENDED").length;
  useEffect(() => {
    need(api.GET("/api/v1/usage", { params: { query } })).then((found) => (usage.value = found)).catch(report);
  }, [query.to, ended]);
  const shown = usage.value;
  if (shown === null) return null;
  const { amountMicroUsdc, platformFeeMicroUsdc } = shown.total;
  const most = Math.max(1, ...shown.items.map((each) => Number(each.amountMicroUsdc)));
  const summary = t("earningsOf", { amount: usdc(amountMicroUsdc), count: shown.total.sessions });
  return (
    <Card title={t("earnings")} aside={<a class="button quiet" download={`sightline-usage-${query.from}-${query.to}.csv`} href={`/api/v1/usage?${new URLSearchParams({ ...query, format: "csv" })}`}><Icon name="download" />CSV</a>}>
      <p class="price"><span class="number" id="earned">{usdc(amountMicroUsdc)}</span></p>
      <Facts rows={[[t("paid"), usdc(BigInt(amountMicroUsdc) + BigInt(platformFeeMicroUsdc))], [t("statementFee"), usdc(platformFeeMicroUsdc)]]} />
      {shown.total.sessions > 0 && (
        <div class="days" role="img" aria-label={summary}>
          {shown.items.map((each) => (
            <span key={each.date} ref={(node) => { if (node !== null) node.style.height = `${Math.max(3, (Number(each.amountMicroUsdc) / most) * 100)}%`; }} />
          ))}
        </div>
      )}
      <p class="hint">{shown.total.sessions > 0 ? summary : t("noEarnings")} <a href={link("wallet")}>{t("statements")}</a></p>
    </Card>
  );
}

function Assigned() {
  const mine = [...told.value.values()].filter((each) => each.operatorWorkspaceId === workspace.value?.id && (each.state === "ASSIGNED" || each.state === "LIVE"));
  const decline = async (id: string): Promise<void> => {
    await need(api.POST("/api/v1/sessions/{id}/decline", { params: { path: { id }, header: once() } }));
    told.value = new Map([...told.value].filter(([each]) => each !== id));
    notify("declined");
  };
  if (mine.length === 0) return null;
  const isPaused = (each: Session): boolean => each.state === "LIVE" && each.meterState === "PAUSED";
  return (
    <Card title={t("yourJobs")}>
      {mine.some(isPaused) && <Banner id="job-paused" kind="bad" icon="pause">{t("jobPaused")}</Banner>}
      <ul class="rows">
        {mine.map((each) => (
          <li key={each.id} class="job-row">
            <a class="list-main" href={link("watch", each.id)}>
              <strong>{each.instructions || point(each.requestedLat, each.requestedLng)}</strong>
              <small>{each.instructions && `${point(each.requestedLat, each.requestedLng)} · `}{t("withinOnly", { radius: metres(each.radiusMeters) })}</small>
              {each.state === "ASSIGNED" && each.expiresAt !== null && <small>{t("startsWithin")} <Countdown until={each.expiresAt} /></small>}
            </a>
            <Badge state={isPaused(each) ? "PAUSED" : each.state} />
            {each.state === "ASSIGNED" && <Confirm id="decline" question={t("declineAsk")} action={t("decline")} run={() => decline(each.id)}>{t("decline")}</Confirm>}
          </li>
        ))}
      </ul>
      <p class="hint"><Icon name="camera" /> {t("filmOnCamera")}</p>
      <div class="row"><Button id="film-job" kind="main" run={filmHere}>{t("phoneHere")}</Button></div>
    </Card>
  );
}
