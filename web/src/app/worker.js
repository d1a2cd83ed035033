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

const WORDS = {
  ar: { title: "مهمة تنتظر", body: (place, minutes) => `قرب ${place}، حتى ${minutes} دقيقة` },
  de: { title: "Ein Auftrag wartet", body: (place, minutes) => `Bei ${place}, bis zu ${minutes} min` },
  en: { title: "A job waits", body: (place, minutes) => `Near ${place}, up to ${minutes} min` },
};

self.addEventListener("push", (event) => {
  const { sessionId, lat, lng, maxDurationSeconds } = event.data.json();
  const { title, body } = WORDS[navigator.language.slice(0, 2)] ?? WORDS.en;
  event.waitUntil(
    self.registration.showNotification(title, {
      body: body(`${lat}, ${lng}`, Math.ceil(maxDurationSeconds / 60)),
      data: sessionId,
      icon: "/console/icon-192.png",
      renotify: true,
      requireInteraction: true,
      tag: sessionId, // one that is sent twice is shown once
      vibrate: [120, 80, 120],
    }),
  );
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(openJob(event.notification.data));
});

// A page that is open is told, not loaded again: it may be filming.
async function openJob(sessionId) {
  const open = await clients.matchAll({ type: "window", includeUncontrolled: true });
  const own = open.filter(({ url }) => new URL(url).pathname === PAGE);
  const page = own.find(({ url }) => url.includes("#/camera")) ?? own[0];
  if (page === undefined) return clients.openWindow(`${PAGE}#/job/${sessionId}`);
  page.postMessage({ job: sessionId });
  return page.focus();
}
