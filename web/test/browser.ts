// The parts of a browser that the modules under test read when they are loaded.
const kept = new Map<string, string>();

globalThis.navigator ??= { language: "en", languages: ["en"] as readonly string[] } as Navigator;
Object.assign(globalThis, {
  GeolocationPositionError: { PERMISSION_DENIED: 1, POSITION_UNAVAILABLE: 2, TIMEOUT: 3 },
  addEventListener: () => undefined,
  window: globalThis,
  location: { origin: "http://127.0.0.1:8080", href: "http://127.0.0.1:8080/console/", hash: "" },
  localStorage: {
    getItem: (name: string) => kept.get(name) ?? null,
    setItem: (name: string, value: string) => void kept.set(name, value),
    removeItem: (name: string) => void kept.delete(name),
  },
});
