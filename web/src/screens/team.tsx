// Who may act for the workspace: members, keys of programs, webhooks, and the wallet's other workspaces.
import { useSignal } from "@preact/signals";
import { ApiError, api, need, once, type Model } from "../api";
import { dateTime, listed, short, usdc, used } from "../format";
import { Button, Card, Confirm, Copy, Countdown, Empty, Field, Loopback, OTHERS_CHANGE_MS, Page, Secret, Unread, useReading } from "../parts";
import { me, notify, now, workspace } from "../store";
import { t } from "../strings";
import { Choice, Invitations, Payee, ROLES, Status } from "./invitations";
import { Limits, limitsOf, SCOPES, useLimits, type Scope } from "./limits";
import { Webhooks } from "./webhooks";

type Role = Model["Member"]["role"];
export default function Team() {
  const role = me.value?.role ?? "VIEWER";
  return (
    <Page title={t("navTeam")} lead={t("teamLead")}>
      <Invitations />
      <Keys mayChange={role !== "VIEWER"} />
      <div class="columns">
        {role === "OWNER" && <Members />}
        <Workspaces />
      </div>
      {role !== "VIEWER" && <Webhooks />}
    </Page>
  );
}

function Keys({ mayChange }: { mayChange: boolean }) {
  const id = workspace.value?.id ?? "";
  const keys = useSignal<readonly Model["ApiKey"][] | null>(null);
  const minted = useSignal<string | null>(null);
  const isOpen = useSignal(false);
  const label = useSignal("");
  const scopes = useSignal<readonly Scope[]>(["sessions:read", "sessions:create", "pricing:read", "wallet:read"]);
  const limits = useLimits();
  const path = { id };
  const load = async (): Promise<void> => {
    keys.value = (await need(api.GET("/api/v1/workspaces/{id}/api-keys", { params: { path } }))).items;
  };
  const reading = useReading(load, [id], OTHERS_CHANGE_MS);
  const maySpend = scopes.value.includes("sessions:create");
  const mint = async (): Promise<void> => {
    const bounds = limitsOf(limits);
    const body = {
      label: label.value.trim(),
      environment: "TEST" as const,
      scopes: [...scopes.value],
      ...(maySpend && bounds !== undefined && { limits: bounds }),
    };
    minted.value = (await need(api.POST("/api/v1/workspaces/{id}/api-keys", { params: { path }, body }))).plaintext;
    isOpen.value = false;
    label.value = "";
    limits.reset();
    await load();
  };
  const revoke = async ({ keyId, label }: Model["ApiKey"]): Promise<void> => {
    await need(api.POST("/api/v1/workspaces/{id}/api-keys/{keyId}/revoke", { params: { path: { id, keyId }, header: once() } }));
    await load();
    notify("revoked", label);
  };
  const retain = async (keyId: string): Promise<void> => {
    try {
      await need(api.POST("/api/v1/workspaces/{id}/api-keys/{keyId}/keep", { params: { path: { id, keyId }, header: once() } }));
      notify("keptKey");
    } catch (error) {
      if (!(error instanceof ApiError && error.detail === "apiKey:revoked")) throw error;
      notify("tooLateToKeep", "", true);
    }
    await load();
  };
  const toggle = (scope: Scope): void => {
    scopes.value = scopes.value.includes(scope) ? scopes.value.filter((each) => each !== scope) : [...scopes.value, scope];
  };
  const isOver = (at: string | null): boolean => at !== null && Date.parse(at) <= now.value;
  const shown = (keys.value ?? []).filter((each) => !isOver(each.gracePeriodEnd) && !isOver(each.expiresAt));
  return (
    <Card title={t("keys")} aside={mayChange && !isOpen.value && <Button id="new-key" run={() => ((isOpen.value = true), (minted.value = null))}>{t("newKey")}</Button>}>
      <p class="dim">{t("keysText")}</p>
      {minted.value !== null && <Secret id="minted" title={t("keyOnce")} label={t("keys")} value={minted.value} />}
      {isOpen.value && (
        <div class="form panel">
          {workspace.value !== null && scopes.value.includes("sessions:operate") && <Payee address={workspace.value.walletAddress} />}
          <Field label={t("keyLabel")}>
            <input id="key-label" maxLength={80} value={label.value} onInput={(event) => (label.value = event.currentTarget.value)} />
          </Field>
          <fieldset>
            <legend class="label">{t("keyMay")}</legend>
            {SCOPES.map(([scope, word]) => (
              <label key={scope} class="check">
                <input type="checkbox" checked={scopes.value.includes(scope)} onChange={() => toggle(scope)} />
                <span>{t(word)} <code class="dim">{scope}</code></span>
              </label>
            ))}
          </fieldset>
          {maySpend && <Limits limits={limits} hint={t("keyLimitHint")} />}
          <div class="row">
            <Button id="mint" kind="main" disabled={label.value.trim() === "" || scopes.value.length === 0 || (maySpend && limits.isWrong())} run={mint}>{t("createKey")}</Button>
            <Button kind="quiet" run={() => (isOpen.value = false)}>{t("cancel")}</Button>
          </div>
        </div>
      )}
      {keys.value === null ? (
        <Unread {...reading} />
      ) : shown.length === 0 ? (
        !isOpen.value && <Empty icon="settings" title={t("noKeys")} text={t("noKeysText")} />
      ) : (
        <ul class="rows">
          {shown.map((each) => (
            <li key={each.keyId}>
              <div class="list-main">
                <strong>{each.label}</strong>
                <small><code>{each.prefix}…</code> · ID <code title={each.keyId}>{short(each.keyId)}</code> · {each.scopes.join(", ")}</small>
                {each.limits !== null && (
                  <small>
                    {listed([
                      ...(each.limits.perSessionMicroUsdc === null ? [] : [t("limitSession", { amount: usdc(each.limits.perSessionMicroUsdc) })]),
                      ...(each.limits.perDayMicroUsdc === null ? [] : [t("limitDay", { amount: usdc(each.limits.perDayMicroUsdc) })]),
                    ])}
                  </small>
                )}
                {each.expiresAt !== null && <small>{t("grantUntil", { time: dateTime(each.expiresAt) })}</small>}
                <small>{used(each.lastUsedAt)}</small>
              </div>
              {each.gracePeriodEnd !== null ? (
                <div class="row">
                  <span class="bad nowrap">{t("stopsIn")} <Countdown until={each.gracePeriodEnd} /></span>
                  {mayChange && <Button kind="quiet" run={() => retain(each.keyId)}>{t("keepKey")}</Button>}
                </div>
              ) : (
                mayChange && (
                  <Confirm question={t("revokeAsk", { name: each.label })} action={t("revokeNamed", { name: each.label })} run={() => revoke(each)}>
                    {t("revoke")}
                  </Confirm>
                )
              )}
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

const invitationLink = (id: string): string => `${location.origin}/console/#/start?invitation=${id}`;

function Members() {
  const id = workspace.value?.id ?? "";
  const members = useSignal<readonly Model["Member"][] | null>(null);
  const address = useSignal("");
  const role = useSignal<Role>("VIEWER");
  const path = { id };
  const load = async (): Promise<void> => {
    members.value = (await need(api.GET("/api/v1/workspaces/{id}/members", { params: { path } }))).items;
  };
  const reading = useReading(load, [id], OTHERS_CHANGE_MS);
  const isAddress = /^0x[0-9a-fA-F]{40}$/.test(address.value.trim());
  const add = async (): Promise<void> => {
    const body = { walletAddress: address.value.trim(), role: role.value };
    const added = await need(api.POST("/api/v1/workspaces/{id}/members", { params: { path, header: once() }, body }));
    address.value = "";
    notify(added.status === "INVITED" ? "invited" : "saved");
    await load();
  };
  const remove = async (walletAddress: string): Promise<void> => {
    await need(api.DELETE("/api/v1/workspaces/{id}/members/{walletAddress}", { params: { path: { id, walletAddress }, header: once() } }));
    await load();
  };
  return (
    <Card title={t("members")}>
      {members.value === null && <Unread {...reading} />}
      <ul class="rows">
        {(members.value ?? []).map((each) => {
          const isMe = each.walletAddress.toLowerCase() === me.value?.walletAddress.toLowerCase();
          return (
            <li key={each.walletAddress} class={each.status === "INVITED" ? "invited" : ""}>
              <div class="list-main">
                <strong><code title={each.walletAddress}>{short(each.walletAddress)}</code>{isMe && ` (${t("you")})`}</strong>
                <small>{t(ROLES[each.role])}</small>
                {each.expiresAt !== null && <small>{t("openUntil", { time: dateTime(each.expiresAt) })}</small>}
              </div>
              <Status member={each} />
              {each.invitationId !== null && <Copy text={invitationLink(each.invitationId)} label={t("copyLink")} />}
              {!isMe && <Button kind="quiet" run={() => remove(each.walletAddress)}>{t(each.status === "INVITED" ? "withdraw" : "remove")}</Button>}
            </li>
          );
        })}
      </ul>
      <p class="dim">{t("inviteText")}</p>
      {(members.value ?? []).some((each) => each.invitationId !== null) && <Loopback />}
      <div class="form">
        <Field label={t("memberWallet")} {...(address.value !== "" && !isAddress && { error: t("memberWrong") })}>
          <input id="member" value={address.value} placeholder="0x" onInput={(event) => (address.value = event.currentTarget.value)} />
        </Field>
        <Field label={t("role")}>
          <select value={role.value} onChange={(event) => (role.value = event.currentTarget.value as Role)}>
            {(Object.keys(ROLES) as Role[]).reverse().map((each) => <option key={each} value={each}>{t(ROLES[each])}</option>)}
          </select>
        </Field>
        <Button disabled={!isAddress} run={add}>{t("addMember")}</Button>
      </div>
    </Card>
  );
}

function Workspaces() {
  const name = useSignal(workspace.value?.name ?? "");
  const shown = workspace.value;
  if (shown === null) return null;
  const rename = async (): Promise<void> => {
    workspace.value = await need(api.PATCH("/api/v1/workspaces/{id}", { params: { path: { id: shown.id } }, body: { name: name.value.trim() } }));
    notify("saved");
  };
  return (
    <Card title={t("workspace")}>
      <Field label={t("workspaceName")}>
        <div class="with-button">
          <input maxLength={80} value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} />
          <Button disabled={name.value.trim() === "" || name.value.trim() === shown.name} run={rename}>{t("save")}</Button>
        </div>
      </Field>
      <Choice without={shown.id} />
    </Card>
  );
}
