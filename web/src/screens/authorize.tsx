// A program asks for access by OAuth: who it says it is, where the answer goes, and what a member allows it.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError, api, need, once, type Model } from "../api";
import { Banner, Button, Card, Empty, Field, Loading, Page } from "../parts";
import { explain } from "../errors";
import { me, report, select, workspace } from "../store";
import { t, type Word } from "../strings";
import { Limits, limitsOf, SCOPES, useLimits } from "./limits";

const DAYS: readonly (readonly [Model["GrantBody"]["days"], Word])[] = [[1, "day1"], [30, "days30"], [90, "days90"]];

/** The request as the client sent it: the server reads it, this page only passes it on. */
const sent = (): string => {
  const at = location.hash.indexOf("?");
  return at < 0 ? "" : location.hash.slice(at + 1);
};

export default function Authorize() {
  const request = sent();
  const asked = useSignal<Model["AuthorizationAsked"] | null>(null);
  const refused = useSignal<string | null>(null);
  const isDone = useSignal(false);
  const days = useSignal<Model["GrantBody"]["days"]>(30);
  const limits = useLimits();
  useEffect(() => {
    [asked.value, refused.value, isDone.value] = [null, null, false];
    need(api.GET("/api/v1/me/authorization-request", { params: { query: { request } } })).then(
      (found) => (asked.value = found),
      (error: unknown) => {
        if (error instanceof ApiError && error.status === 400) refused.value = explain(error);
        else report(error);
      },
    );
  }, [request]);
  const shown = asked.value;
  if (refused.value !== null) return <Empty isPage icon="warn" title={t("accessWrong")} text={refused.value} />;
  if (shown === null) return <Loading />;
  if (isDone.value) return <Empty isPage icon="check" title={t("accessDone")} text={t("accessDoneText")} />;

  const leave = (url: string): void => {
    isDone.value = true;
    location.assign(url); // the server has checked that it is no script
  };
  const allow = async (): Promise<void> => {
    const id = workspace.value?.id ?? "";
    const bounds = limitsOf(limits);
    const body = { request, days: days.value, ...(maySpend && bounds !== undefined && { limits: bounds }) };
    leave((await need(api.POST("/api/v1/workspaces/{id}/grants", { params: { path: { id }, header: once() }, body }))).redirectUrl);
  };
  const maySpend = shown.scopes.includes("sessions:create");
  const mayAllow = me.value?.role === "OWNER" || me.value?.role === "ADMIN";
  if (shown.refused !== null)
    return (
      <Empty isPage icon="warn" title={t("accessWrong")} text={shown.refused}>
        <Button run={() => leave(shown.denyUrl)}>{t("accessBack", { host: shown.redirectHost })}</Button>
      </Empty>
    );
  return (
    <Page title={t("accessTitle", { name: shown.clientName })} lead={t("accessLead")}>
      <Card kind="narrow">
        <dl class="facts">
          <div><dt>{t("accessName")}</dt><dd><bdi>{shown.clientName}</bdi></dd></div>
          {shown.clientHost !== null && <div><dt>{t("accessDescribed")}</dt><dd><code>{shown.clientHost}</code></dd></div>}
          <div><dt>{t("accessAnswer")}</dt><dd id="answer-host"><code>{shown.redirectHost}</code> {shown.isLoopback && t("accessLoopback")}</dd></div>
        </dl>
        {!shown.isLoopback && <Banner kind="warn" icon="warn">{t("accessHostWarning", { host: shown.redirectHost })}</Banner>}
        <h2>{t("accessMay")}</h2>
        <ul class="bullets">
          {SCOPES.filter(([scope]) => shown.scopes.includes(scope)).map(([scope, word]) => (
            <li key={scope}>{t(word)} <code class="dim">{scope}</code></li>
          ))}
        </ul>
        <div class="form">
          <Field label={t("workspace")}>
            <select id="workspace" value={workspace.value?.id ?? ""} onChange={(event) => void select(event.currentTarget.value).catch(report)}>
              {(me.value?.workspaces ?? []).map((each) => <option key={each.id} value={each.id}>{each.name} ({each.slug})</option>)}
            </select>
          </Field>
          {maySpend && <Limits limits={limits} hint={t("accessLimitHint")} />}
          <Field label={t("accessFor")}>
            <select id="days" value={String(days.value)} onChange={(event) => (days.value = DAYS.find(([each]) => String(each) === event.currentTarget.value)?.[0] ?? 30)}>
              {DAYS.map(([each, word]) => <option key={each} value={String(each)}>{t(word)}</option>)}
            </select>
          </Field>
          {!mayAllow && <Banner kind="warn" icon="team">{t("accessNotYours")}</Banner>}
          <div class="row">
            <Button id="allow" kind="main" disabled={!mayAllow || (maySpend && limits.isWrong())} run={allow}>{t("accessAllow")}</Button>
            <Button id="deny" run={() => leave(shown.denyUrl)}>{t("accessDeny")}</Button>
          </div>
          <p class="dim">{t("accessRevoke")}</p>
        </div>
      </Card>
    </Page>
  );
}
