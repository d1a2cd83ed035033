// Screens by the fragment of the URL: the server sees one page, and a secret in a link never leaves the browser.
import { signal } from "@preact/signals";

export interface Place {
  screen: string;
  id: string;
  query: URLSearchParams;
}

function parse(hash: string): Place {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [screen = "", id = ""] = path.split("/");
  return { screen, id, query: new URLSearchParams(query) };
}

export const place = signal<Place>(parse(location.hash));
/** Whether another screen was opened since the page was loaded. */
export let hasMoved = false;
function follow(): void {
  hasMoved ||= place.value.screen !== "";
  place.value = parse(location.hash);
  scrollTo(0, 0);
}
let followed: string | null = null;
addEventListener("hashchange", () => {
  if (followed !== location.hash) follow();
  followed = null;
});

/** Take the query out of the address: neither the history nor a screen that is shown again sees what it gave. */
export function dropQuery(): void {
  const { screen, id } = place.peek();
  history.replaceState(null, "", link(screen, id));
  place.value = parse(location.hash);
}

export const link = (screen: string, id = ""): string => (id === "" ? `#/${screen}` : `#/${screen}/${id}`);
export function go(screen: string, id = ""): void {
  location.hash = link(screen, id);
  if (parse(location.hash).screen === place.value.screen && parse(location.hash).id === place.value.id) return;
  followed = location.hash;
  follow(); // at once: what is rendered before the event must not see the former screen
}
