// What was not charged of a session that is over, by its reasons: the same on each page that shows it.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { need, type Client } from "../api";
import { clock, timeOf } from "../format";
import { type Session } from "../store";
import { t, type Word } from "../strings";
import { unchargedOf, type Uncharged } from "./pauses";
import { reasonsOf } from "./reasons";

export const UnchargedParts = ({ parts, isOwn = false }: Pick<Uncharged, "parts"> & { isOwn?: boolean }) => (
  <ul class="windows">
    {parts.map(({ from, reasons, seconds }) => (
      <li key={from}>
        <span>{reasonsOf(reasons, isOwn)} <small class="dim">{timeOf(new Date(from).toISOString())}</small></span>
        <span class="number">{clock(seconds)}</span>
      </li>
    ))}
  </ul>
);

/** Nothing, if all was charged, the session never ran, or its meter cannot be read: the receipt has it too. */
export function UnchargedOf({ client, session, title, isOwn = false }: { client: Client; session: Session; title: Word; isOwn?: boolean }) {
  const found = useSignal<Uncharged | null>(null);
  const { id, startedAt, endedAt, cleanSeconds } = session;
  useEffect(() => {
    if (startedAt === null || endedAt === null) return;
    need(client.GET("/api/v1/sessions/{id}/meter", { params: { path: { id } } })).then(
      ({ windows }) => (found.value = unchargedOf({ startedAt, endedAt, cleanSeconds }, windows)),
      () => undefined,
    );
  }, [id, endedAt, cleanSeconds]);
  if (found.value === null || found.value.seconds === 0) return null;
  return (
    <div class="uncharged">
      <p>{t(title)} <strong class="number">{clock(found.value.seconds)}</strong></p>
      <UnchargedParts parts={found.value.parts} isOwn={isOwn} />
    </div>
  );
}
