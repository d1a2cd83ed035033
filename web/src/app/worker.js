// Keeps the page and its scripts in the browser, so that the installed app opens without a network. Everything else goes to the
// server as if this file were not there: no answer of the API is ever kept.
const SHELL = "sightline-BUILD";
const FILES = FILES_OF_THE_SHELL;
const PAGE = "/console/";

self.addEventListener("install", (event) => event.waitUntil(caches.open(SHELL).then((shell) => shell.addAll(FILES))));

// A page of the former version goes on with its own files: this version takes over when that page is closed.
self.addEventListener("activate", (event) => {
  const isOld = (name) => name.startsWith("sightline-") && name !== SHELL;
  event.waitUntil(caches.keys().then((names) => Promise.all(names.filter(isOld).map((name) => caches.delete(name)))));
});

self.addEventListener("fetch", (event) => {
  const { method, mode, url } = event.request;
  const { origin, pathname } = new URL(url);
  if (method !== "GET" || origin !== location.origin || !FILES.includes(pathname)) return;
  const kept = () => caches.match(pathname);
  // The page names the newest scripts, so the server is asked first. Scripts have their content in their name.
  if (pathname === PAGE) event.respondWith(mode === "navigate" ? fetch(event.request).catch(kept) : fetch(event.request));
  else event.respondWith(kept().then((found) => found ?? fetch(event.request)));
});
