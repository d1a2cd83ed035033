// The request of a workspace as it was left, such as on the way to the wallet, or as it was made before.
import { signal } from "@preact/signals";
import { workspace, type Session } from "../store";
import { nameOfPlace } from "./names";
import { keepPlace, placeAt } from "./place";

export const DURATIONS: readonly number[] = [60, 300, 600, 1800, 3600];
export const RADII: readonly number[] = [100, 250, 500, 1000, 5000];
const draft = { of: "", duration: signal(300), radius: signal(500), instructions: signal("") };

export function draftOf(id: string): typeof draft {
  if (draft.of !== id) [draft.of, draft.duration.value, draft.radius.value, draft.instructions.value] = [id, 300, 500, ""];
  return draft;
}

/** The smallest of the offered values that is enough, or the largest. */
const offered = (values: readonly number[], wanted: number): number => values.find((each) => each >= wanted) ?? values.at(-1) ?? wanted;

/** Fill the form with what a session was asked for. */
export function draftAgain(session: Session): void {
  const { duration, radius, instructions } = draftOf(workspace.value?.id ?? "");
  duration.value = offered(DURATIONS, session.maxDurationSeconds);
  radius.value = offered(RADII, session.radiusMeters);
  instructions.value = session.instructions ?? "";
  const place = placeAt(session.requestedLat, session.requestedLng);
  keepPlace({ ...place, text: nameOfPlace(session) ?? place.text });
}
