// What a client written against the generated types relies on. `tsc --strict` checks it; nothing runs it.
import type { components, paths } from "sightline-js";

type Schemas = components["schemas"];
type Query<P extends keyof paths> = paths[P] extends { get: { parameters: { query?: infer Q } } } ? NonNullable<Q> : never;
type Events<P extends "/api/v1/sessions/{id}/events" | "/api/v1/workspaces/{id}/events"> =
  paths[P]["get"]["responses"][200]["content"]["text/event-stream"];
type FrameHeaders = paths["/api/v1/sessions/{id}/frame"]["get"]["responses"][200]["headers"];

// Numbers in a query are numbers.
export const quote: Query<"/api/v1/pricing/quote"> = { lat: 52.52, lng: 13.405, durationSeconds: 600 };
// @ts-expect-error text is not a number
export const wrong: Query<"/api/v1/pricing/quote"> = { lat: "52.52", lng: 13.405, durationSeconds: 600 };

// Fields with a default may be left out of a request.
export const create: Schemas["CreateSessionBody"] = { lat: 52.52, lng: 13.405 };
export const key: Schemas["MintKeyBody"] = {
  label: "agent",
  environment: "TEST",
  scopes: ["sessions:create"],
  limits: { perDayMicroUsdc: "1000000" },
};
// @ts-expect-error a place is needed
export const nowhere: Schemas["CreateSessionBody"] = { lat: 52.52 };

// Every field of a response is there; what may be missing in a verdict may be left out.
export const verdict: Schemas["HeartbeatVerdict"] = { sequence: 1, ok: true };
export function rate(session: Schemas["Session"]): [string, number, string | null] {
  return [session.ratePerSecondMicroUsdc, session.cleanSeconds, session.endedAt];
}
export function lastLine(receipt: Schemas["Receipt"]): string | undefined {
  return receipt.events.at(-1)?.facts.map((fact) => `${fact.name}=${fact.value ?? ""}`).join(" ");
}

// The name of an event decides the type of its data.
export function position(event: Events<"/api/v1/sessions/{id}/events">): number | null {
  return event.event === "location" ? event.data.lat : null;
}
export function closed(event: Events<"/api/v1/workspaces/{id}/events">): string | null {
  if (event.event === "requestClosed") return event.data.sessionId;
  if (event.event === "assignmentClosed") return event.data.sessionId;
  return event.event === "workspace" ? null : event.data.state;
}

// Headers of a frame are named and typed.
export const sequence = (headers: FrameHeaders): number | undefined => headers["x-svc-frame-sequence"];
export const state = (headers: FrameHeaders): "live" | "black" | "frozen" | "lost" | undefined => headers["x-svc-frame-state"];
