// What errors of calls say to the user.
import { signal } from "@preact/signals";
import { ApiError } from "./api";
import { t, type Word } from "./strings";

export const online = signal(navigator.onLine);
addEventListener("online", () => (online.value = true));
addEventListener("offline", () => (online.value = false));

/** Whether the server refuses every call of the workspace, as its administrators decided. */
export const isSuspension = (error: unknown): boolean => error instanceof ApiError && error.detail === "workspace:suspended";
export const isUnreached = (error: unknown): boolean => error instanceof ApiError && error.code === "OFFLINE";
/** What a call says that did not reach the server. */
export const unreached = (): Word => (online.value ? "errorOffline" : "errorNoNetwork");

/** What an error says, with what to do if the server said it. */
export const explain = (error: unknown): string => {
  if (isUnreached(error)) return t(unreached());
  if (!(error instanceof ApiError)) return error instanceof Error ? error.message : String(error);
  return error.hint ?? (error.detail === undefined ? error.message : `${error.message} (${error.detail})`);
};
