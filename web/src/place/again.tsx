// Asking again for what a session was asked for.
import { api, need, type Model } from "../api";
import { Button } from "../parts";
import { go } from "../router";
import { type Session } from "../store";
import { t } from "../strings";
import { draftAgain } from "./draft";

/** More than a session has. */
const EVENTS_MAX = 500;

/** The seconds of each extension, by the recorded events. */
export const extensionsOf = (events: readonly Pick<Model["MeterEvent"], "kind" | "facts">[]): number[] =>
  events.filter(({ kind }) => kind === "EXTENDED").map(({ facts }) => Number(facts.find(({ name }) => name === "seconds")?.value ?? 0));

/** Opens the form with the place, the radius, the instructions and the time that a session was asked for, without its extensions. */
export function AskAgain({ session, kind = "plain" }: { session: Session; kind?: "main" | "plain" }) {
  const again = async (): Promise<void> => {
    const params = { path: { id: session.id }, query: { limit: EVENTS_MAX } };
    const events = session.startedAt === null ? [] : (await need(api.GET("/api/v1/sessions/{id}/meter/events", { params }))).items;
    const extended = extensionsOf(events).reduce((sum, each) => sum + each, 0);
    draftAgain({ ...session, maxDurationSeconds: session.maxDurationSeconds - extended });
    go("buy");
  };
  return <Button id="ask-again" kind={kind} run={again}>{t("askAgain")}</Button>;
}
