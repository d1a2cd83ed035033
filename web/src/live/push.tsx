// Tells this browser of jobs by Web Push, also while the console is closed.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError, need, type Client } from "../api";
import { forget, keep, remembered } from "../kept";
import { Switch } from "../parts";
import { notify, report } from "../store";
import { t } from "../strings";

/** On an iPhone only the installed app has it. */
const hasPush = "serviceWorker" in navigator && "PushManager" in window && "Notification" in window;
const PATH = "/api/v1/push-subscriptions";
const bytesOf = (text: string): Uint8Array<ArrayBuffer> => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (each) => each.charCodeAt(0));

/** The browser's subscription for this server's key. One for another key, from before a restore, gives way. */
async function subscribe(client: Client): Promise<PushSubscription> {
  // `ready` never resolves without a registration, which fails where the certificate is not trusted.
  const late = new Promise<never>((_, fail) => setTimeout(() => fail(new DOMException("no worker", "TimeoutError")), READY_MS));
  const worker = await Promise.race([navigator.serviceWorker.ready, late]);
  const applicationServerKey = bytesOf((await need(client.GET(PATH))).serverKey);
  const options = { userVisibleOnly: true, applicationServerKey };
  try {
    return await worker.pushManager.subscribe(options);
  } catch (error) {
    if (!(error instanceof DOMException && error.name === "InvalidStateError")) throw error;
    await (await worker.pushManager.getSubscription())?.unsubscribe();
    return await worker.pushManager.subscribe(options);
  }
}

async function send(client: Client, name: string): Promise<void> {
  const { endpoint = "", keys } = (await subscribe(client)).toJSON();
  const body = { endpoint, keys: { p256dh: keys?.["p256dh"] ?? "", auth: keys?.["auth"] ?? "" } };
  keep(name, (await need(client.POST(PATH, { body }))).id);
}

/** A renewal that is under way. Answered after an end, it would subscribe this browser again. */
let renewal = Promise.resolve();
const ANSWER_MS = 5000;
const READY_MS = 10_000;

/** End this browser's alerts of a workspace. Other workspaces of this browser keep its subscription. */
export async function endAlerts(client: Client, workspaceId: string): Promise<void> {
  const name = `push.${workspaceId}`;
  await renewal;
  const id = remembered(name);
  try {
    if (id !== null) await need(client.DELETE(`${PATH}/{id}`, { params: { path: { id } }, signal: AbortSignal.timeout(ANSWER_MS) }));
  } catch (error) {
    if (!(error instanceof ApiError && error.status === 404)) throw error; // the server may have ended it first
  }
  forget(name);
}

/** Offered where the browser has Web Push. Each visit renews it, because the server forgets browsers that stay away. */
export function JobAlerts({ client, workspaceId }: { client: Client; workspaceId: string }) {
  const name = `push.${workspaceId}`;
  const isOn = useSignal(hasPush && Notification.permission === "granted" && remembered(name) !== null);
  useEffect(() => {
    if (isOn.value) renewal = send(client, name).catch(() => { isOn.value = false; });
  }, []);
  if (!hasPush) return null;
  const allow = async (): Promise<void> => {
    if ((await Notification.requestPermission()) !== "granted") return notify("alertsDenied");
    try {
      await send(client, name);
      isOn.value = true;
    } catch (error) {
      // The browser has no connection to its push service, or was built without one.
      if (error instanceof DOMException) notify("alertsFailed");
      else report(error);
    }
  };
  const end = async (): Promise<void> => {
    await endAlerts(client, workspaceId);
    isOn.value = false;
  };
  return <Switch id="job-alerts" isOn={isOn.value} run={isOn.value ? end : allow}>{t("jobAlerts")}</Switch>;
}
