// What the consumer tells the operator during a view, on both sides.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api, need, once, type Client, type Model } from "../api";
import { timeOf } from "../format";
import { Button, Card, Icon } from "../parts";
import { now, tell } from "../store";
import { t, type Word } from "../strings";
import { chime } from "./chime";

type Message = Omit<Model["OperatorMessage"], "shown"> & { readonly shown?: boolean };
/** For so long a message stays on the picture of the operator. */
const SHOWN_MS = 10_000;
/** So many are on it at once. */
const SHOWN_MAX = 3;
const TEXT_MAX = 200;
/** From so many characters on, the count is shown: what is typed after the last one is not taken. */
const COUNTED_FROM = 150;
/** A longer message has smaller letters, so that all of it is on the picture of a phone. */
const LONG = 60;
const USUAL: readonly Word[] = ["tellLeft", "tellRight", "tellCloser", "tellBack", "tellHold"];

/**
 * For who films: new messages over the picture, each until a press or some seconds, with a sound when one comes. The viewer is told
 * that they were shown; if that call fails, the next reading of the session repeats it.
 */
export function Newest({ client, id, messages }: { client: Client; id: string; messages: readonly Message[] }) {
  const closed = useSignal<ReadonlySet<number>>(new Set());
  const newest = messages.at(-1);
  const isNew = (each: Message): boolean => now.value - Date.parse(each.sentAt) < SHOWN_MS;
  const shown = messages.filter(isNew).slice(-SHOWN_MAX).filter((each) => !closed.value.has(each.number));
  useEffect(() => {
    if (newest !== undefined && isNew(newest)) chime();
  }, [newest?.number]);
  const unmarked = newest?.shown === false && now.value > 0 && document.visibilityState === "visible" ? newest.number : null;
  useEffect(() => {
    if (unmarked === null) return;
    client.POST("/api/v1/sessions/{id}/messages/shown", { params: { path: { id } }, body: { number: unmarked } }).catch(() => undefined);
  }, [messages, unmarked]);
  return (
    <p class={shown.reduce((sum, each) => sum + each.text.length, 0) > LONG ? "said long" : "said"} role="alert" id="said">
      {shown.map((each) => (
        <Button key={each.number} run={() => (closed.value = new Set([...closed.value, each.number]))}><span>{each.text}</span><Icon name="cross" /><span class="sr">{t("close")}</span></Button>
      ))}
    </p>
  );
}

/** The newest messages, the newest first; with `marks`, whether the operator's device has shown each. */
export const Messages = ({ messages, marks = false }: { messages: readonly Message[]; marks?: boolean }) =>
  messages.length > 0 && (
    <ul class="messages" aria-label={t("messages")} tabIndex={0}>
      {[...messages].reverse().map((each) => <li key={each.number}><time>{timeOf(each.sentAt)}</time> <span>{each.text}</span>{marks && <small>{t(each.shown === true ? "messageShown" : "messageSent")}</small>}</li>)}
    </ul>
  );

/** For who watches: say something to the operator of a LIVE session. */
export function Tell({ id, messages }: { id: string; messages: readonly Message[] }) {
  const text = useSignal("");
  const send = async (line: string): Promise<void> => {
    tell(await need(api.POST("/api/v1/sessions/{id}/messages", { params: { path: { id }, header: once() }, body: { text: line } })));
  };
  const submit = async (): Promise<void> => {
    const line = text.value.trim();
    if (line === "") return;
    await send(line);
    text.value = "";
  };
  return (
    <Card title={t("tellTitle")} kind="tell">
      <form class="with-button" onSubmit={(event) => (event.preventDefault(), document.getElementById("tell")?.click())}>
        <input id="tell-text" aria-label={t("tellLabel")} placeholder={t("tellShort")} maxLength={TEXT_MAX} autocomplete="off" value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} />
        <Button id="tell" run={submit}>{t("send")}</Button>
      </form>
      {text.value.length >= COUNTED_FROM && <p class="hint number" id="letters" role="status">{t("lettersLeft", { count: text.value.length, max: TEXT_MAX })}</p>}
      <div class="row usual">{USUAL.map((word) => <Button key={word} run={() => send(t(word))}>{t(word)}</Button>)}</div>
      <Messages messages={messages} marks />
      <p class="hint">{t("tellHint")}</p>
    </Card>
  );
}
