// What runs and costs money, on every screen but its own: place, time, cost, the way back and the end.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api, need, once } from "./api";
import { clock, dateTime, usdc, withoutFee } from "./format";
import { forget, keep, remembered } from "./kept";
import { endingOf, noteEnd } from "./live/endings";
import { Badge, Button, Confirm, Icon } from "./parts";
import { calledIn } from "./place/names";
import { link, place } from "./router";
import { canBuy, now, refreshFunds, tell, told, workspace, type Session } from "./store";
import { t } from "./strings";

const READ_EVERY_MS = 5000;
const OPEN = ["REQUESTED", "ASSIGNED", "LIVE"] as const;
const isOpen = (session: Session): boolean => (OPEN as readonly string[]).includes(session.state);
const isOwn = (session: Session): boolean => session.consumerWorkspaceId === workspace.value?.id;
const isParty = (session: Session): boolean => isOwn(session) || session.operatorWorkspaceId === workspace.value?.id;

/** The sessions of the workspace as consumer that are not over. */
export const openViews = (): readonly Session[] => [...told.value.values()].filter((each) => isOwn(each) && isOpen(each));

/** Sessions that were live while a page of this browser was open, and whose end nobody has read. Those that cost money are kept between visits. */
const ran = signal<readonly string[]>([]);
const RAN_MAX = 20;
function setRan(ids: readonly string[]): void {
  const id = workspace.value?.id;
  if (id === undefined) return;
  ran.value = [...new Set(ids)].slice(-RAN_MAX);
  const own = ran.value.filter((each) => told.value.get(each)?.operatorWorkspaceId !== id);
  own.length > 0 ? keep(`ran.${id}`, own.join(" ")) : forget(`ran.${id}`);
}
const forgetEnds = (ids: readonly string[]): void => setRan(ran.value.filter((each) => !ids.includes(each)));
/** More views that ended are on the page of sessions. */
const ENDS_MAX = 2;

async function readOpen(): Promise<void> {
  const query = { view: "consumer" as const, state: [...OPEN], limit: 20 };
  (await need(api.GET("/api/v1/sessions", { params: { query } }))).items.forEach(tell);
}

const read = (id: string): Promise<void> =>
  need(api.GET("/api/v1/sessions/{id}", { params: { path: { id } }, signal: AbortSignal.timeout(READ_EVERY_MS) })).then(tell);

// A browser asks before it closes a tab on which somebody has clicked.
addEventListener("beforeunload", (event) => {
  if (place.value.screen !== "camera" && openViews().some((each) => each.state === "LIVE")) event.preventDefault();
});

export function Running() {
  const id = workspace.value?.id;
  useEffect(() => {
    if (id === undefined) return;
    setRan(remembered(`ran.${id}`)?.split(" ") ?? []);
    // What ended while every page was closed is read one by one: it is not among the open ones.
    if (canBuy.value) void readOpen().then(() => ran.value.forEach((each) => !told.value.has(each) && void read(each).catch(() => undefined))).catch(() => undefined);
  }, [id]);
  const shown = openViews().filter((each) => place.value.screen !== "watch" || place.value.id !== each.id);
  const live = shown.filter((each) => each.state === "LIVE").map((each) => each.id).join(" ");
  useEffect(() => {
    if (live === "") return;
    const readAll = (): void => live.split(" ").forEach((each) => void read(each).catch(() => undefined));
    readAll();
    const timer = setInterval(readAll, READ_EVERY_MS);
    return () => clearInterval(timer);
  }, [live]);
  const parties = [...told.value.values()].filter(isParty);
  const begun = parties.filter((each) => each.state === "LIVE" && !ran.value.includes(each.id)).map((each) => each.id).join(" ");
  useEffect(() => {
    if (begun !== "") setRan([...ran.value, ...begun.split(" ")]);
  }, [id, begun]);
  // What ran must not just vanish: another device may have ended it. Its own screens say it too.
  const seen = ["watch", "receipt"].includes(place.value.screen) ? place.value.id : "";
  const isSeen = told.value.get(seen)?.state === "ENDED";
  useEffect(() => {
    if (isSeen) forgetEnds([seen]);
  }, [seen, isSeen]);
  // Below a picture that runs they would be in the way; they come back after it.
  const isWatching = told.value.get(seen)?.state === "LIVE";
  const over = isWatching ? [] : parties.filter((each) => each.state === "ENDED" && ran.value.includes(each.id) && each.id !== seen);
  over.sort((one, other) => Date.parse(other.endedAt ?? "") - Date.parse(one.endedAt ?? ""));
  const older = over.slice(ENDS_MAX).map((each) => each.id);
  return (
    <>
      {shown.map((session) => (
        <section key={session.id} class="running" aria-label={t("runningView")}>
          <Badge state={session.state === "LIVE" && session.meterState === "PAUSED" ? "PAUSED" : session.state} />
          <span class="number">{calledIn(session)}</span>
          {session.startedAt !== null && <span class="number">{clock(Math.min((now.value - Date.parse(session.startedAt)) / 1000, session.maxDurationSeconds))}</span>}
          <strong class="number">{usdc(session.accruedMicroUsdc)}</strong>
          <a class="button" href={link("watch", session.id)}><Icon name="eye" />{t("returnToView")}</a>
          {session.state === "LIVE" ? (
            <Confirm question={t("endAsk", { amount: usdc(session.accruedMicroUsdc) })} action={t("endSession")} run={() => close(session)}>{t("endSession")}</Confirm>
          ) : (
            <Button kind="danger" run={() => close(session)}>{t("cancelRequest")}</Button>
          )}
        </section>
      ))}
      <div class="stack ends" role="status">
        {over.slice(0, ENDS_MAX).map((session) => (
          <section key={session.id} class="running over" aria-label={t("ended")}>
            <Badge state={session.state} />
            <span class="number">{calledIn(session)}</span>
            <span>{endingOf(session, workspace.value?.id)} <small class="dim">{dateTime(session.endedAt ?? "")}</small></span>
            <strong class="number">{usdc(isOwn(session) ? session.chargedMicroUsdc : withoutFee(session.chargedMicroUsdc, session.platformFeeBps))}</strong>
            <a class="button" href={link("receipt", session.id)}>{t("seeReceipt")}</a>
            <Button kind="quiet" run={() => forgetEnds([session.id, ...older])}><Icon name="cross" /><span class="sr">{t("close")}</span></Button>
          </section>
        ))}
      </div>
    </>
  );
}

async function close(session: Session): Promise<void> {
  const params = { path: { id: session.id }, header: once() };
  noteEnd(session.id);
  tell(await need(session.state === "REQUESTED" ? api.DELETE("/api/v1/sessions/{id}", { params }) : api.POST("/api/v1/sessions/{id}/end", { params })));
  await refreshFunds();
}
