// Every session of the workspace, newest first.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api, need } from "../api";
import { dateTime, point, usdc, withoutFee } from "../format";
import { Badge, Button, Empty, Field, Page, Unread, grossRows, useReading } from "../parts";
import { nameOfPlace, placeOf } from "../place/names";
import { link } from "../router";
import { home, told, workspace, type Session } from "../store";
import { t } from "../strings";

const FILTERS = { all: [], open: ["REQUESTED", "ASSIGNED", "LIVE"], ended: ["ENDED"], closed: ["CANCELLED", "EXPIRED"] } as const;
type Filter = keyof typeof FILTERS;
type View = "both" | "consumer" | "operator";

export default function Sessions() {
  const filter = useSignal<Filter>("all");
  const view = useSignal<View>("both");
  const items = useSignal<readonly Session[] | null>(null);
  const following = useSignal<string | null>(null);

  const load = async (cursor: string | null): Promise<void> => {
    const query = {
      limit: 20,
      ...(view.value !== "both" && { view: view.value }),
      ...(FILTERS[filter.value].length > 0 && { state: [...FILTERS[filter.value]] }),
      ...(cursor !== null && { cursor }),
    };
    const wanted = [filter.value, view.value];
    const page = await need(api.GET("/api/v1/sessions", { params: { query } }));
    if (filter.value !== wanted[0] || view.value !== wanted[1]) return; // of a choice that was changed since
    items.value = cursor === null ? page.items : [...(items.value ?? []), ...page.items];
    following.value = page.nextCursor;
  };
  const reading = useReading(() => ((items.value = null), load(null)), [filter.value, view.value]);
  useEffect(() => {
    const known = items.value ?? [];
    if (known.some((each) => told.value.has(each.id) && told.value.get(each.id) !== each)) {
      items.value = known.map((each) => told.value.get(each.id) ?? each);
    }
  }, [told.value]);

  return (
    <Page title={t("navSessions")} lead={t("sessionsLead")}>
      <div class="filters">
        <Field label={t("show")}>
          <select value={filter.value} onChange={(event) => (filter.value = event.currentTarget.value as Filter)}>
            <option value="all">{t("filterAll")}</option>
            <option value="open">{t("filterOpen")}</option>
            <option value="ended">{t("filterEnded")}</option>
            <option value="closed">{t("filterClosed")}</option>
          </select>
        </Field>
        <Field label={t("as")}>
          <select value={view.value} onChange={(event) => (view.value = event.currentTarget.value as View)}>
            <option value="both">{t("asBoth")}</option>
            <option value="consumer">{t("asConsumer")}</option>
            <option value="operator">{t("asOperator")}</option>
          </select>
        </Field>
      </div>
      {items.value === null ? (
        <Unread {...reading} />
      ) : items.value.length === 0 ? (
        <Empty icon="list" title={t("noSessions")} text={t("noSessionsText")}>
          <a class="button main" href={link(home.value)}>{t(home.value === "buy" ? "navBuy" : "operateTitle")}</a>
        </Empty>
      ) : (
        <ul class="list">
          {items.value.map((each) => <Row key={each.id} session={each} />)}
        </ul>
      )}
      {following.value !== null && <div class="row centre"><Button run={() => load(following.value)}>{t("more")}</Button></div>}
    </Page>
  );
}

function Row({ session }: { session: Session }) {
  const isMine = session.consumerWorkspaceId === workspace.value?.id;
  const wish = session.instructions?.split(/[.\n]/)[0] || null;
  const own = (micro: string): string => usdc(isMine ? micro : withoutFee(micro, session.platformFeeBps));
  const isOpen = FILTERS.open.some((each) => each === session.state);
  return (
    <li>
      <a class="list-row" href={link(session.state === "ENDED" ? "receipt" : "watch", session.id)}>
        <span class="list-main">
          <strong class="two-lines">{wish ?? nameOfPlace(session) ?? point(session.requestedLat, session.requestedLng)}</strong>
          {(wish ?? nameOfPlace(session)) !== null && <small class="where">{wish === null ? point(session.requestedLat, session.requestedLng) : placeOf(session)}</small>}
          <small>{dateTime(session.createdAt)} · {t(isMine ? "asConsumer" : "asOperator")}</small>
          {!isMine && session.state === "ENDED" && <small>{grossRows(session.chargedMicroUsdc, session.platformFeeBps).map((each) => each.join(" ")).join(" · ")}</small>}
        </span>
        <span class="list-end">
          <span class="number">{isOpen ? t("atMostOf", { amount: own(session.holdMicroUsdc) }) : own(session.chargedMicroUsdc)}</span>
          <Badge state={session.state} />
        </span>
      </a>
    </li>
  );
}
