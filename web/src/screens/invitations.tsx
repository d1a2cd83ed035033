// Invitations to workspaces, and the choice between the workspaces of one wallet.
import { useEffect } from "preact/hooks";
import { api, need, once, type Model } from "../api";
import { dateTime, short } from "../format";
import { Address, Badge, Banner, Button, Card } from "../parts";
import { go, place } from "../router";
import { invitations, me, notify, readInvitations, refresh, select, workspace } from "../store";
import { t, type Word } from "../strings";

type Invitation = Model["Invitation"];
export const ROLES: Record<Model["Member"]["role"], Word> = { OWNER: "roleOwner", ADMIN: "roleAdmin", VIEWER: "roleViewer" };

const isMine = (address: string): boolean => address.toLowerCase() === me.value?.walletAddress.toLowerCase();

/** Who is paid for what is filmed in a workspace. Another wallet than one's own stands out. */
export const Payee = ({ address }: { address: string }) =>
  isMine(address) ? (
    <p class="dim payee">{t("paidToYou")} <Address value={address} /></p>
  ) : (
    <Banner kind="warn" icon="wallet">{t("paidToOther")} <code class="payee">{address}</code></Banner>
  );

/** Open invitations of the wallet; nothing when there are none. */
export function Invitations() {
  useEffect(() => void readInvitations(), [place.value]);
  if (invitations.value.length === 0) return null;
  const answer = async (method: "accept" | "decline", each: Invitation): Promise<void> => {
    const params = { path: { id: each.id }, header: once() };
    if (method === "decline") {
      await need(api.DELETE("/api/v1/me/invitations/{id}", { params }));
    } else {
      await need(api.POST("/api/v1/me/invitations/{id}/accept", { params }));
      notify("joined", each.workspace.name);
      await refresh();
    }
    if (place.value.query.has("invitation")) go("start");
    await readInvitations();
  };
  const declineAll = async (): Promise<void> => {
    for (const each of invitations.value) await answer("decline", each);
  };
  return (
    <Card
      title={t("invitations")}
      aside={invitations.value.length > 2 && <Button kind="quiet" run={declineAll}>{t("declineAll")}</Button>}
    >
      <p class="dim">{t("invitationsText")}</p>
      <ul class="rows" id="invitations">
        {invitations.value.map((each) => (
          <li key={each.id} class="invitation">
            <div class="list-main">
              <strong>{each.workspace.name}</strong>
              <small><code>{each.workspace.slug}</code></small>
              <small>{t(ROLES[each.role])}</small>
              <small>{t("invitedBy")} <code>{each.invitedBy}</code></small>
              {each.workspace.roles.includes("SUPPLIER") && <small>{t("invitationPays")} <code>{each.workspace.walletAddress}</code></small>}
              <small>{t("openUntil", { time: dateTime(each.expiresAt) })}</small>
            </div>
            <div class="row">
              <Button kind="main" run={() => answer("accept", each)}>{t("join")}</Button>
              <Button kind="quiet" run={() => answer("decline", each)}>{t("decline")}</Button>
            </div>
          </li>
        ))}
      </ul>
    </Card>
  );
}

/** The workspaces of the wallet, each with the wallet that pays and is paid. */
export function Choice({ without }: { without?: string }) {
  const others = (me.value?.workspaces ?? []).filter((each) => each.id !== without);
  if (others.length === 0) return null;
  return (
    <ul class="rows" id="workspaces">
      {others.map((each) => (
        <li key={each.id}>
          <div class="list-main">
            <strong>{each.name}</strong>
            <small><code>{each.slug}</code></small>
            <small>{t(ROLES[each.role])}</small>
            <small title={each.walletAddress}>
              {t(isMine(each.walletAddress) ? "walletYours" : "walletOther")} <code>{short(each.walletAddress)}</code>
            </small>
          </div>
          <Button kind={workspace.value === null ? "main" : "plain"} run={() => select(each.id)}>{t(workspace.value === null ? "choose" : "switchTo")}</Button>
        </li>
      ))}
    </ul>
  );
}

export const Status = ({ member }: { member: Model["Member"] }) => (member.status === "INVITED" ? <Badge state="INVITED" /> : null);
