// Light and zoom of a phone's camera, where the browser lets a page set them (W3C MediaStream Image Capture).
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Switch } from "../parts";
import { t } from "../strings";

interface Able {
  torch?: boolean;
  zoom?: { min: number; max: number; step: number };
}
/** The settings of the specification that TypeScript's own types lack. */
type Wanted = MediaTrackConstraints & { advanced: { torch?: boolean; zoom?: number }[] };

/** Offers what this camera has, and nothing where it has neither. A camera that is opened again begins dark and wide. */
export function Lens({ stream }: { stream: MediaStream | null }) {
  const able = useSignal<Able>({});
  const isLit = useSignal(false);
  const zoom = useSignal(1);
  const track = stream?.getVideoTracks()[0];
  useEffect(() => {
    // Firefox has no capabilities of a camera.
    able.value = (track?.getCapabilities?.() ?? {}) as Able;
    isLit.value = false;
    zoom.value = able.value.zoom?.min ?? 1;
  }, [track]);
  const set = async (wanted: { torch?: boolean; zoom?: number }): Promise<void> => track?.applyConstraints({ advanced: [wanted] } as Wanted);
  const light = async (): Promise<void> => {
    await set({ torch: !isLit.value });
    isLit.value = !isLit.value;
  };
  const range = able.value.zoom;
  return (
    <>
      {able.value.torch === true && <Switch id="torch" isOn={isLit.value} run={light}>{t("torch")}</Switch>}
      {range !== undefined && range.max > range.min && (
        <label class="zoom">
          {t("zoom")}
          <input id="zoom" type="range" min={range.min} max={range.max} step={range.step} value={zoom.value} onInput={(event) => ((zoom.value = event.currentTarget.valueAsNumber), void set({ zoom: zoom.value }).catch(() => undefined))} />
        </label>
      )}
    </>
  );
}
