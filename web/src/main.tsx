// The frame around every screen: navigation, account, notices. A screen is loaded when it is first opened.
import { render, type ComponentType } from "preact";
import { signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import icon from "./icon.svg";
import "./style.css";
import { ApiError } from "./api";
import { registerWorker } from "./app/install";
import { online, unreached } from "./errors";
import { short } from "./format";
import { remembered } from "./kept";
import { Banner, Button, Confirm, Empty, Icon, Loading, Menu, Suspended, type IconName } from "./parts";
import { Preferences } from "./preferences";
import { go, link, place } from "./router";
import { openViews, Running } from "./running";
import { canBuy, canOperate, home, invitations, isConnected, isSuspended, leave, me, notices, refresh, report, signOut, workspace } from "./store";
import { speakPreferred, t, type Word } from "./strings";

type Load = () => Promise<{ default: ComponentType }>;
const SCREENS: Record<string, Load> = {
  start: () => import("./screens/start"),
  buy: () => import("./screens/buy"),
  watch: () => import("./screens/watch"),
  sessions: () => import("./screens/sessions"),
  receipt: () => import("./screens/receipt"),
  wallet: () => import("./screens/wallet"),
  operate: () => import("./screens/operate"),
  camera: () => import("./screens/camera"),
  team: () => import("./screens/team"),
  authorize: () => import("./screens/authorize"),
  shared: () => import("./screens/shared"),
};
const OPEN_TO_ALL = new Set(["start", "camera", "shared"]);

const loaded = signal<Record<string, ComponentType>>({});
function Screen({ name }: { name: string }) {
  const failed = useSignal(false);
  useEffect(() => {
    failed.value = false;
    if (loaded.value[name] !== undefined) return;
    SCREENS[name]?.()
      .then((module) => (loaded.value = { ...loaded.value, [name]: module.default }))
      .catch(() => (failed.value = true));
  }, [name]);
  if (!(name in SCREENS)) return <Empty isPage icon="warn" title={t("notFound")} text={t("notFoundText")} />;
  if (failed.value)
    return (
      <Empty isPage icon="warn" title={t(unreached())} text={t("screenFailed")}>
        <button class="button main" onClick={() => location.reload()}>{t("reload")}</button>
      </Empty>
    );
  const Shown = loaded.value[name];
  return Shown === undefined ? <Loading /> : <Shown key={`${place.value.id} ${place.value.query.get("key") ?? ""}`} />;
}

const NAVIGATION: readonly (readonly [string, Word, IconName, () => boolean])[] = [
  ["buy", "navBuy", "eye", () => canBuy.value],
  ["operate", "navOperate", "camera", () => canOperate.value],
  ["sessions", "navSessions", "list", () => true],
  ["wallet", "navWallet", "wallet", () => true],
  ["team", "navTeam", "team", () => true],
];

function Account() {
  const identity = me.value;
  if (identity === null || identity === undefined) return null;
  return (
    <Menu
      label={
        <span class="who">
          <strong>{workspace.value?.name ?? t("noWorkspace")}</strong>
          <small>{short(identity.walletAddress)}</small>
        </span>
      }
    >
      <a href={link("start")}>{t("checklist")}</a>
      <Preferences />
      {openViews().some((each) => each.state === "LIVE") ? (
        <Confirm id="sign-out" question={t("signOutAsk")} action={t("signOut")} run={signOut}>{t("signOut")}</Confirm>
      ) : (
        <button class="button plain" onClick={() => void signOut()}>{t("signOut")}</button>
      )}
    </Menu>
  );
}

/** A message about a job opens it on the camera, if this browser is one. */
const screenOfJob = (): string => (remembered("cameraKey") === null ? link("watch", place.value.id) : link("camera"));

const isUnreachable = signal(false);
/** The screen that was asked for by somebody who is not signed in. */
let wanted: string | null = null;

function App() {
  const isIn = me.value !== null && me.value !== undefined && workspace.value !== null;
  const name = place.value.screen || (isIn ? home.value : "start");
  useEffect(() => {
    if (name === "job") return location.replace(screenOfJob());
    // The address names the screen from the first moment, so that it stays while the checklist goes on.
    if (me.value === undefined) return;
    if (isIn && wanted !== null) {
      location.replace(wanted);
      wanted = null;
    } else if (place.value.screen === "" || (!isIn && !OPEN_TO_ALL.has(name))) {
      if (!isIn && name !== "start" && name in SCREENS) wanted = location.hash;
      go(isIn ? name : "start");
    }
  }, [me.value, isIn, name, place.value.id]);
  if (name === "job") return <Loading />;
  if (name === "camera") return <main class="bare"><Screen name="camera" /><Notices /></main>;
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.querySelector<HTMLElement>("main h1")?.focus())}>
        {t("skip")}
      </a>
      <header class="top">
        <a class="brand" href={link(isIn ? home.value : "start")}>
          <img src={icon} alt="" width="30" height="30" />
          Sightline
        </a>
        {isIn && name !== "shared" && (
          <nav aria-label={t("navigation")}>
            {NAVIGATION.filter(([, , , isShown]) => isShown()).map(([screen, word, icon]) => (
              <a key={screen} href={link(screen)} aria-current={name === screen ? "page" : undefined}>
                <Icon name={icon} />
                <span>{t(word)}</span>
                {screen === "team" && invitations.value.length > 0 && (
                  <span class="count" title={t("invitations")}>{invitations.value.length}<span class="sr"> {t("invitations")}</span></span>
                )}
              </a>
            ))}
          </nav>
        )}
        <div class="top-end">{me.value === undefined ? null : me.value === null ? <Preferences /> : <Account />}</div>
      </header>
      <main id="main">
        {!online.value && <Banner kind="warn" icon="warn">{t("youAreOffline")}</Banner>}
        {online.value && !isConnected.value && isIn && !isSuspended.value && <Banner kind="info" icon="clock">{t("reconnecting")}</Banner>}
        {isIn && name !== "shared" && !isSuspended.value && <Running />}
        {isSuspended.value && name !== "shared" ? (
          <Suspended again={refresh}><Button id="leave-suspended" run={() => (leave(), (me.value = null), go("start"))}>{t("signOut")}</Button></Suspended>
        ) : me.value !== undefined ? <Screen name={name} /> : isUnreachable.value ? <Empty isPage icon="warn" title={t(unreached())} text={t("tryingAgain")} /> : <Loading />}
      </main>
      <Notices />
    </>
  );
}

const Notices = () => (
  <div class="notices" role="status" aria-live="polite">
    {notices.value.map((notice) => (
      <div key={notice.id} class={notice.isBad ? "notice bad" : "notice"}>
        <strong>{t(notice.word)}</strong>
        {notice.detail !== "" && <span>{notice.detail}</span>}
      </div>
    ))}
  </div>
);

// The first screen's file is loaded while the server is asked who is signed in.
void SCREENS[place.value.screen || (remembered("signedIn") === null ? "start" : "buy")]?.().catch(() => undefined);
async function begin(): Promise<void> {
  try {
    await refresh();
  } catch (error) {
    if (error instanceof ApiError && error.status === 0) isUnreachable.value = true;
    else report(error);
    setTimeout(() => void begin(), 2000);
  }
}
void speakPreferred().then(() => {
  const root = document.getElementById("app");
  if (root !== null) render(<App />, root);
  void begin();
});
registerWorker();
