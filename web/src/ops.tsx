// The operator's screen at /ops of the internal listener: readiness, live sessions, parked actors, open settlements, backup and books.
import { render, type ComponentChildren } from "preact";
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import icon from "./icon.svg";
import "./style.css";
import { ApiError, randomId, reach } from "./api";
import { explain, unreached } from "./errors";
import { clock, dateTimeUtc, point, usdc } from "./format";
import { Badge, Banner, Button, Card, Copy, Empty, Facts, Field, Icon, Loading, Page } from "./parts";
import { notices, now, notify } from "./store";
import { speakPreferred, t } from "./strings";

const READ_EVERY_MS = 3000;
const TOKEN = "sightline.internalToken";
/** From then on the alert SightlineBackupOld fires. */
const BACKUP_OLD_S = 2 * 86_400;

interface Check {
  ok: boolean;
  detail: string;
  [figure: string]: unknown;
}
interface Kind {
  active: number;
  depth: number;
  parked: Record<string, string>;
}
interface Live {
  id: string;
  lat: number;
  lng: number;
  startedAt: string | null;
  meterState: string;
  pauseReason: string | null;
  cleanSeconds: number;
  ratePerSecondMicroUsdc: string;
}
interface Unsettled {
  sessionId: string;
  state: string;
  reason: string | null;
  amountMicroUsdc: string;
  tries: number;
  retryAt: string | null;
}
interface State {
  checks: Record<string, Check>;
  kinds: Record<string, Kind>;
  live: readonly Live[];
  unsettled: readonly Unsettled[];
  metrics: ReadonlyMap<string, number>;
}

function authorization(): Record<string, string> {
  const token = sessionStorage.getItem(TOKEN);
  return token === null ? {} : { authorization: `Bearer ${token}` };
}

/** Call the internal listener. /readyz answers 503 with its checks. Throws ApiError. */
async function ask<T>(path: string, method = "GET"): Promise<T> {
  const headers: Record<string, string> = { accept: "application/json", ...authorization() };
  if (method !== "GET") headers["idempotency-key"] = randomId();
  const answer = await reach(path, { method, headers });
  const body = (await answer.json()) as { data?: T; checks?: unknown; code?: string; message?: string; hint?: string };
  if (body.data !== undefined) return body.data;
  if (body.checks !== undefined) return body as T;
  throw new ApiError(answer.status, body.code ?? "", body.hint ?? body.message ?? answer.statusText);
}

/** The metrics that have no labels, by name. */
async function readMetrics(): Promise<Map<string, number>> {
  const answer = await reach("/metrics", { headers: authorization() });
  const text = answer.ok ? await answer.text() : "";
  return new Map([...text.matchAll(/^sightline_(\w+) (\S+)$/gm)].map(([, name = "", value]) => [name, Number(value)]));
}

async function readAll(): Promise<State> {
  const [ready, actors, sessions, settlements, metrics] = await Promise.all([
    ask<{ checks: Record<string, Check> }>("/readyz"),
    ask<{ kinds: Record<string, Kind> }>("/internal/actors"),
    ask<{ items: Live[] }>("/internal/admin/sessions?state=LIVE&limit=200"),
    ask<{ items: Unsettled[] }>("/internal/settlements"),
    readMetrics(),
  ]);
  return { checks: ready.checks, kinds: actors.kinds, live: sessions.items, unsettled: settlements.items, metrics };
}

function Ops() {
  const state = useSignal<State | null>(null);
  const failure = useSignal<ApiError | Error | null>(null);
  const read = async (): Promise<void> => {
    try {
      state.value = await readAll();
      failure.value = null;
    } catch (error) {
      failure.value = error instanceof Error ? error : new Error(String(error));
    }
  };
  useEffect(() => {
    void read();
    const timer = setInterval(() => document.hidden || void read(), READ_EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  if (failure.value instanceof ApiError && failure.value.status === 401) return <Token done={read} />;
  if (state.value === null) return failure.value === null ? <Loading /> : <Empty isPage icon="warn" title={t(unreached())} text={explain(failure.value)} />;
  const { checks, kinds, live, unsettled, metrics } = state.value;
  const isReady = Object.values(checks).every((each) => each.ok);
  return (
    <Page title={t("opsTitle")} lead={t("opsLead")} aside={<span class={`badge ${isReady ? "live" : "paused"}`}>{t(isReady ? "opsReady" : "opsNotReady")}</span>}>
      {failure.value !== null && <Banner kind="warn" icon="warn">{t("opsOld")}</Banner>}
      <div class="columns">
        <div class="stack">
          <Card title={t("opsChecks")}>
            <ul class="checks">
              {Object.entries(checks).map(([name, check]) => (
                <li key={name} class={check.ok ? "right" : "wrong"} data-ready={name}>
                  <span class="check-mark"><Icon name={check.ok ? "check" : "cross"} /></span>
                  <div><strong>{name}</strong><small>{check.detail}{typeof check["lagBlocks"] === "number" && ` ${t("opsLag", { count: check["lagBlocks"] })}`}</small></div>
                </li>
              ))}
            </ul>
          </Card>
          <Kept metrics={metrics} />
          <Actors kinds={kinds} read={read} />
        </div>
        <div class="stack">
          <List title={t("opsLive", { count: live.length })} empty={t("opsNoneLive")}>
            {live.map((each) => (
              <li key={each.id}>
                <div class="list-main">
                  <strong><Id value={each.id} /> {point(each.lat, each.lng)}</strong>
                  <small>
                    {t("proved")} {clock(each.cleanSeconds)}
                    {each.startedAt !== null && `, ${t("opsSince", { time: clock((now.value - Date.parse(each.startedAt)) / 1000) })}`}
                    {each.pauseReason !== null && `, ${each.pauseReason}`}
                  </small>
                </div>
                <Badge state={each.meterState === "PAUSED" ? "PAUSED" : "LIVE"} />
              </li>
            ))}
          </List>
          <List title={t("opsUnsettled", { count: unsettled.length })} empty={t("opsAllSettled")}>
            {unsettled.map((each) => (
              <li key={each.sessionId}>
                <div class="list-main">
                  <strong><Id value={each.sessionId} /> {usdc(each.amountMicroUsdc)}</strong>
                  <small>{each.reason ?? each.state}, {t("opsTries", { count: each.tries })}{each.retryAt !== null && `, ${t("opsNext", { time: dateTimeUtc(each.retryAt) })}`}</small>
                </div>
                <Badge state={each.state} />
              </li>
            ))}
          </List>
        </div>
      </div>
    </Page>
  );
}

const List = ({ title, empty, children }: { title: string; empty: string; children: readonly ComponentChildren[] }) => (
  <Card title={title}>{children.length === 0 ? <p class="dim">{empty}</p> : <ul class="rows">{children}</ul>}</Card>
);

const ID_SHOWN = 8;
/** An id, shortened. The whole of it is its title, and is copied: commands take no less. */
const Id = ({ value }: { value: string }) => (
  <span class="address">
    <code title={value}>{value.slice(0, ID_SHOWN)}</code>
    <Copy text={value} name={t("copyOf", { text: value.slice(0, ID_SHOWN) })} />
  </span>
);

/** When this directory was backed up, and what the last comparison of the books with the chain found. */
function Kept({ metrics }: { metrics: ReadonlyMap<string, number> }) {
  const [backupS, comparedS, differences] = ["backup_timestamp_seconds", "books_compared_timestamp_seconds", "books_differences"].map((name) => metrics.get(name));
  const at = (seconds: number): string => dateTimeUtc(new Date(seconds * 1000).toISOString());
  const isOld = backupS === undefined || now.value / 1000 - backupS > BACKUP_OLD_S;
  return (
    <Card title={t("opsKept")}>
      <Facts
        rows={[
          [t("opsBackup"), <span id="backup" class={isOld ? "bad" : undefined}>{backupS === undefined ? t("opsNoBackup") : at(backupS)}</span>],
          [t("opsBooks"), <span id="books">{comparedS === undefined ? t("opsNotCompared") : at(comparedS)}</span>],
          [t("opsDifferences"), <span id="differences" class={differences === undefined || differences === 0 ? undefined : "bad"}>{differences ?? ""}</span>],
        ]}
      />
    </Card>
  );
}

function Actors({ kinds, read }: { kinds: Record<string, Kind>; read: () => Promise<void> }) {
  const parked = Object.entries(kinds).flatMap(([kind, counts]) => Object.entries(counts.parked).map(([id, reason]) => ({ kind, id, reason })));
  const revive = async (kind: string, id: string): Promise<void> => {
    await ask(`/internal/actors/${kind}/${encodeURIComponent(id)}/revive`, "POST");
    notify("opsRevived");
    await read();
  };
  return (
    <Card title={t("opsActors")}>
      <table class="table">
        <thead><tr><th scope="col">{t("opsKind")}</th><th scope="col">{t("opsActive")}</th><th scope="col">{t("opsWaiting")}</th><th scope="col">{t("opsParked")}</th></tr></thead>
        <tbody>
          {Object.entries(kinds).map(([kind, counts]) => (
            <tr key={kind}><th scope="row">{kind}</th><td>{counts.active}</td><td>{counts.depth}</td><td>{Object.keys(counts.parked).length}</td></tr>
          ))}
        </tbody>
      </table>
      {parked.length > 0 && (
        <ul class="rows">
          {parked.map(({ kind, id, reason }) => (
            <li key={kind + id} data-parked={id}>
              <div class="list-main"><strong>{kind} <Id value={id} /></strong><small>{reason}</small></div>
              <Button run={() => revive(kind, id)}>{t("opsRevive")}</Button>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

function Token({ done }: { done: () => Promise<void> }) {
  const value = useSignal("");
  const isWrong = useSignal(false);
  const enter = async (): Promise<void> => {
    sessionStorage.setItem(TOKEN, value.value.trim());
    isWrong.value = false;
    await done();
    isWrong.value = true; // else the page is gone
  };
  return (
    <Page title={t("opsTitle")} lead={t("opsTokenText")}>
      <Card>
        <div class="form">
          <Field label={t("opsToken")}>
            <input
              id="token" type="password" autoComplete="off" value={value.value}
              onInput={(event) => (value.value = event.currentTarget.value)}
              onKeyDown={(event) => event.key === "Enter" && value.value.trim() !== "" && void enter()}
            />
          </Field>
          {isWrong.value && <p id="token-wrong" class="bad" role="alert">{t("opsTokenWrong")}</p>}
          <Button id="enter" kind="main" disabled={value.value.trim() === ""} run={enter}>{t("opsEnter")}</Button>
        </div>
      </Card>
    </Page>
  );
}

const App = () => (
  <>
    <header class="top"><span class="brand"><img src={icon} alt="" width="30" height="30" />Sightline</span></header>
    <main id="main"><Ops /></main>
    <div class="notices" role="status" aria-live="polite">
      {notices.value.map((notice) => (
        <div key={notice.id} class={notice.isBad ? "notice bad" : "notice"}><strong>{t(notice.word)}</strong>{notice.detail !== "" && <span>{notice.detail}</span>}</div>
      ))}
    </div>
  </>
);

void speakPreferred().then(() => {
  const root = document.getElementById("app");
  if (root !== null) render(<App />, root);
});
