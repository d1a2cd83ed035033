// Makes the console an app that can be installed, and opens the job of a message that was pressed.
import { go } from "../router";

/** Registered after the page has loaded: its files must not delay the first screen. Fails where the certificate is not trusted. */
export function registerWorker(): void {
  if (!("serviceWorker" in navigator)) return;
  navigator.serviceWorker.addEventListener("message", ({ data }: MessageEvent<{ job?: string }>) => {
    if (data.job !== undefined) go("job", data.job);
  });
  const register = (): void => void navigator.serviceWorker.register("/console/worker.js").catch(() => undefined);
  if (document.readyState === "complete") register();
  else addEventListener("load", register, { once: true });
}
