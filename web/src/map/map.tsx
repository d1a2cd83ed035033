// A map of a screen. What it shows and does is also in the screen's form: without the map nothing is missing.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { t } from "../strings";
import type { Atlas, Hooks, Scene } from "./atlas";

export type { Scene } from "./atlas";

export function PlaceMap({ scene, isSmall = false, ...hooks }: Hooks & { scene: Scene; isSmall?: boolean }) {
  const node = useRef<HTMLDivElement>(null);
  const atlas = useSignal<Atlas | null>(null);
  const hasFailed = useSignal(false);
  const newest = useRef(hooks);
  newest.current = hooks;
  useEffect(() => {
    let isGone = false;
    import("./atlas")
      .then(async ({ open }) => {
        if (isGone || node.current === null) return;
        const made = await open(node.current, {
          onPick: hooks.onPick && ((lat, lng) => newest.current.onPick?.(lat, lng)),
          onView: (box) => newest.current.onView?.(box),
        });
        if (isGone) made.close();
        else atlas.value = made;
      })
      .catch(() => (hasFailed.value = true));
    return () => {
      isGone = true;
      atlas.value?.close();
    };
  }, []);
  useEffect(() => atlas.value?.show(scene), [atlas.value, JSON.stringify(scene)]);
  if (hasFailed.value) return null;
  return (
    <div class={isSmall ? "map small" : "map"} data-map={atlas.value === null ? "loading" : "ready"}>
      <div ref={node} class="map-view" role="application" aria-label={t(hooks.onPick === undefined ? "mapToLook" : "mapToPick")} />
    </div>
  );
}
