// A map of a screen. What it shows and does is also in the screen's form: without the map nothing is missing.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { language, t, type Word } from "../strings";
import type { Atlas, Hooks, Scene } from "./atlas";

export type { Scene } from "./atlas";

type PlaceMapProps = Hooks & {
  scene: Scene;
  isSmall?: boolean;
  /** Operators online without an area of their own: no cell shows them. */
  everywhere?: number;
  /** The map shows more than coverage is known for. */
  isWide?: boolean;
};
/** Drawn anew in another language: names, units and the buttons are part of it. */
export const PlaceMap = (props: PlaceMapProps) => <DrawnMap key={language.value} {...props} />;

function DrawnMap({ scene, isSmall = false, everywhere = 0, isWide = false, ...hooks }: PlaceMapProps) {
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
    <figure>
      <div class={isSmall ? "map small" : "map"} data-map={atlas.value === null ? "loading" : "ready"}>
        <div ref={node} class="map-view" role="application" aria-label={t(hooks.onPick === undefined ? "mapToLook" : "mapToPick")} />
      </div>
      <Legend scene={scene} hasCoverage={hooks.onView !== undefined} everywhere={everywhere} isWide={isWide} />
    </figure>
  );
}

/** What the marks on the map mean. */
function Legend({ scene, hasCoverage, everywhere, isWide }: { scene: Scene; hasCoverage: boolean; everywhere: number; isWide: boolean }) {
  const marks: [string, Word, boolean][] = [
    ["fence", "legendArea", scene.fence !== null],
    ["operator", scene.isOwn === true ? "legendYou" : "legendOperator", scene.operator !== null],
    ["cell", isWide && scene.cells.length === 0 ? "legendZoom" : "legendCells", hasCoverage],
  ];
  return (
    <figcaption>
      <ul class="legend" aria-label={t("legend")}>
        {marks.filter(([, , isShown]) => isShown).map(([mark, word]) => (
          <li key={mark}><span class={`legend-mark ${mark}`} aria-hidden="true" />{t(word)}</li>
        ))}
        {everywhere > 0 && <li id="everywhere">{t("legendEverywhere", { count: everywhere })}</li>}
      </ul>
    </figcaption>
  );
}
