// The picture of a LIVE session: video by WebRTC, or still pictures where no video arrives.
import type { ComponentChildren } from "preact";
import { useComputed, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { Connection } from "sightline-js/http";
import { Player, type PlayerStatus } from "sightline-js/player";
import { Stills, type Still } from "sightline-js/stills";
import { reachable } from "../api";
import { timeOf } from "../format";
import { Button, Icon, Switch } from "../parts";
import { t, type Word } from "../strings";

const CONNECTING: PlayerStatus = { picture: "connecting", delayMs: null };

interface PictureProps {
  connection: Connection;
  sessionId: string;
  url: string;
  isServerAway: boolean;
  /** Why what runs is not charged, which is on the picture in place of "live"; null while it is charged. */
  paused: string | null;
  /** Whether the camera has sent a picture before, as far as the session knows: after a reload, the page does not. */
  hasShown?: boolean;
  /** Whether the session is over when the picture goes away: its connection needs no goodbye then. */
  isOver: () => boolean;
  /** Who watches pays nothing. */
  isShared?: boolean;
  /** A button after those of the picture: it comes and goes, and moves none of them. */
  last?: ComponentChildren;
  /** Buttons before those of the picture. */
  children?: ComponentChildren;
}
export function Picture({ connection, sessionId, url, isServerAway, paused, hasShown = false, isOver, isShared = false, last, children }: PictureProps) {
  const video = useRef<HTMLVideoElement>(null);
  const playing = useSignal<PlayerStatus>(CONNECTING);
  const still = useSignal<Still | null>(null);
  const wantsStills = useSignal(false);
  const isMuted = useSignal(true);
  useEffect(() => {
    if (wantsStills.value) {
      const made = new Stills(connection, sessionId, (next) => (still.value = next));
      return () => (made.stop(), (still.value = null));
    }
    if (video.current === null) return;
    const made = new Player(video.current, url, { onChange: (status) => (playing.value = status), resolve: reachable });
    return () => (made.stop(isOver()), (playing.value = CONNECTING));
  }, [url, wantsStills.value]);
  const picture = useComputed(() => playing.value.picture);
  const hasPlayed = useRef(false);
  hasPlayed.current ||= picture.value === "playing";
  const words: Record<string, Word> = {
    connecting: "pictureConnecting", noCamera: hasShown || hasPlayed.current ? "pictureLost" : "pictureNoCamera", stalled: "pictureStalled", failed: "pictureFailed",
  };
  const word = isServerAway && picture.value !== "playing" ? (isShared ? "serverAwayShared" : "serverAway") : words[picture.value];
  return (
    <>
      <div class="stage dark" data-picture={wantsStills.value ? "stills" : picture.value}>
        {wantsStills.value ? (
          still.value === null ? <div class="cover" role="status"><span class="spinner big" /><p>{t(hasShown ? "pictureLost" : "pictureNoCamera")}</p></div> : <img src={still.value.url} alt={t("stillOf", { time: timeOf(still.value.capturedAt) })} />
        ) : (
          <video ref={video} muted={isMuted.value} playsInline autoPlay aria-label={t("liveVideo")} />
        )}
        {paused !== null && <span class="tag" id="paused-tag"><Icon name="pause" />{t("statePaused")} · {paused}</span>}
        {paused === null && wantsStills.value && <span class="tag">{t("stills")}</span>}
        {wantsStills.value && still.value?.state === "lost" && <div class="cover" role="status"><span class="spinner big" aria-hidden="true" /><p>{t("pictureLost")}</p></div>}
        {!wantsStills.value && word !== undefined && (
          <div class="cover" role="status">
            {picture.value === "failed" && !isServerAway ? <Icon name="warn" /> : <span class="spinner big" aria-hidden="true" />}
            <p>{t(word)}</p>
            {picture.value === "failed" && !isServerAway && <Button run={() => (wantsStills.value = true)}>{t("showStills")}</Button>}
          </div>
        )}
        {paused === null && !wantsStills.value && picture.value === "playing" && (
          <span class="tag"><i class="dot" />{t("live")}{playing.value.delayMs !== null && <> · {t("delay", { ms: playing.value.delayMs })}</>}</span>
        )}
      </div>
      <div class="row controls">
        {children}
        {!wantsStills.value && (
          <>
            <Switch id="sound" isOn={!isMuted.value} run={() => (isMuted.value = !isMuted.value)}>{t("sound")}</Switch>
            <Button run={() => video.current?.requestFullscreen()}>{t("fullScreen")}</Button>
          </>
        )}
        <Button id="show-stills" run={() => (wantsStills.value = !wantsStills.value)}>{t(wantsStills.value ? "showVideo" : "showStills")}</Button>
        {last}
      </div>
    </>
  );
}
