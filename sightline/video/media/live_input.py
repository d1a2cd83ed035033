"""One live input: its publisher, its viewers, and forwarding between them.

Belongs to the worker's event loop, is not thread-safe, and awaits nothing. A new publisher takes over when its
transport is connected, not at its offer, so that an offer that fails does not interrupt a running stream. The loss of a
publisher is reported after a grace time only, because a phone that changes its network reconnects with a new offer.
"""

import math
from collections.abc import Callable
from typing import Final, Protocol, final

import structlog

from sightline.ports.video import MediaKind
from sightline.video.media.assembler import EncodedFrame
from sightline.video.media.clip import ClipBuffer
from sightline.video.media.codecs import H264Format, PayloadFormat
from sightline.video.media.decoder_budget import DecoderBudget
from sightline.video.media.egress import Viewer
from sightline.video.media.ingest import Ingest, VideoStream
from sightline.video.media.picture_size import PictureLimit
from sightline.video.media.picture_threads import PictureThreads
from sightline.video.media.stream import AUDIO_RATE, VIDEO_RATE, GopCache, StreamFrame, Timeline
from sightline.video.media.tap import FrameTap
from sightline.video.options import Options
from sightline.video.rtc.rtp import RtpPacket

WATCHED_EVERY_MS: Final = 3_000
DELETED: Final = "deleted by the client"
"""Why a connection is closed whose publisher or viewer has ended it, instead of losing it."""
REPLAY_MAX_SPAN_MS: Final = 3_000
"""Maximum length of a GOP that is replayed to a new viewer; a longer one would be a burst of megabytes."""
REPLAY_ANYWAY_MS: Final = 700.0
"""Time after which a requested keyframe counts as ignored (OBS); the cached GOP is then replayed."""
log = structlog.get_logger()


class Emit(Protocol):
    """Takes a media event, with what `MediaEvent` has."""

    def __call__(
        self,
        session_id: str,
        kind: MediaKind,
        at_ms: int,
        viewers: tuple[str, ...] = (),
        receiving: tuple[str, ...] = (),
        /,
    ) -> None:
        """Take it; never blocks."""
        ...


@final
class LiveInput:
    """One live input.

    Args:
        clip_max_bytes: Memory that the input may use now for clips.
        emit: Takes each media event.
        wall_ms: Unix time. `now_ms` arguments elsewhere are the loop's monotonic milliseconds.
    """

    def __init__(
        self,
        session_id: str,
        options: Options,
        *,
        threads: PictureThreads,
        budget: DecoderBudget,
        clip_max_bytes: Callable[[], int],
        emit: Emit,
        wall_ms: Callable[[], int],
        mono_ms: Callable[[], float],
    ) -> None:
        self.session_id = session_id
        self._options = options
        self._emit = emit
        self._wall_ms = wall_ms
        self._mono_ms = mono_ms
        self.publisher: tuple[str, Ingest] | None = None
        self.pending: tuple[str, Ingest] | None = None
        self.viewers: dict[str, Viewer] = {}
        self._joining: dict[str, float] = {}
        self.gop = GopCache(max_bytes=options.gop_max_bytes, max_ms=options.gop_max_ms)
        share = threads.share()
        self.clips = ClipBuffer(
            keep_ms=options.clip_seconds * 1_000, max_bytes=clip_max_bytes, share=share, now_ms=wall_ms
        )
        self.tap = FrameTap(
            self.gop,
            share=share,
            budget=budget,
            limit=PictureLimit(options.picture_max_width, options.picture_max_height),
            ask_key=self.ask_key,
            is_lost=self._is_lost,
            now_ms=wall_ms,
            warm_ms=options.warm_ms,
            key_every_ms=options.poll_key_ms,
        )
        self.format: PayloadFormat | None = None
        self._video_line = Timeline(VIDEO_RATE)
        self._top_layer: int | None = None
        """SSRC of the stream of frames, clips, new viewers and those whose link carries everything."""
        self._audio_line = Timeline(AUDIO_RATE)
        self._audio_offset: int | None = None
        self._audio_top = 0
        self._sequence = 0
        self._epoch = 0
        self._frames_since_tick = 0
        self._last_frame: StreamFrame | None = None
        self._audio_lag_ms = 0.0
        self._gone_since_ms: int | None = None
        self._reported_connected = False
        self._reported_quiet: MediaKind | None = None
        self._reported_watched_ms = -math.inf
        self._connected_at_ms = 0.0

    # -- publishers

    @property
    def is_live(self) -> bool:
        """True while a publisher is connected."""
        return self.publisher is not None

    def publisher_connected(self, resource: str, ingest: Ingest) -> None:
        """A publisher's transport is connected: it takes over."""
        old, self.publisher = self.publisher, (resource, ingest)
        self._epoch = max(self._epoch + 1, self._wall_ms())
        self._forget_pictures()
        if self.pending is not None and self.pending[1] is ingest:
            self.pending = None
        self._video_line.restart()
        self._audio_line.restart()
        self._audio_offset = None
        self._top_layer = None
        self.choose_layer(*self.viewers.values())
        self._gone_since_ms = None
        self._connected_at_ms = self._mono_ms()
        self._reported_quiet = None
        if old is not None:
            old[1].stop("taken over")
        if not self._reported_connected or old is None:
            self._reported_connected = True
            self._emit(self.session_id, MediaKind.CONNECTED, self._wall_ms())
        log.info("publisher_connected", session_id=self.session_id, takeover=old is not None)

    def publisher_closed(self, ingest: Ingest, reason: str) -> None:
        """A publisher's transport is closed, by either side."""
        if self.pending is not None and self.pending[1] is ingest:
            self.pending = None
        if self.publisher is None or self.publisher[1] is not ingest:
            return
        self.publisher = None
        if reason == DELETED:
            self._forget_pictures()
        last = ingest.last_rtp_ms
        ago_ms = self._mono_ms() - last if last is not None else 0.0
        self._gone_since_ms = self._wall_ms() - int(ago_ms)
        log.info("publisher_gone", session_id=self.session_id, reason=reason)

    def _forget_pictures(self) -> None:
        """What one publisher sent must not be shown as the next one's."""
        self.gop.clear()
        self.clips.forget()
        self.tap.forget()

    def _is_lost(self) -> bool:
        """Whether no whole frame has arrived for `stale_ms`."""
        if self.publisher is None:
            return True
        newest_ms = self.publisher[1].last_frame_ms
        since_ms = self._connected_at_ms if newest_ms is None else newest_ms
        return self._mono_ms() - since_ms >= self._options.stale_ms

    def ask_key(self) -> None:
        """Request a keyframe from the publisher; rate limited there."""
        if self.publisher is not None:
            self.publisher[1].ask_key(self._mono_ms())

    # -- media

    def on_frame(self, ingest: Ingest, stream: VideoStream, encoded: EncodedFrame) -> None:
        """Forward a complete frame: one of the highest layer to everything, one of a lower layer to its viewers."""
        if self.publisher is None or self.publisher[1] is not ingest or ingest.peer is None:
            return
        now_ms = self._mono_ms()
        if stream is ingest.top and stream.ssrc != self._top_layer:
            if not encoded.key:  # it was a lower layer until now
                ingest.ask_key(now_ms)
            else:
                self._top_layer = stream.ssrc
                self.choose_layer(*self.viewers.values())
        is_top = stream.ssrc == self._top_layer
        frame = self._on_the_line(ingest, stream, encoded, is_top=is_top)
        if is_top:
            self._keep(frame)
        legs = [each.video for each in self.viewers.values() if each.video is not None]
        for leg in legs:
            if is_top or leg.layer is not None:
                leg.live(frame, now_ms)
        # One after the other: a receiver that sleeps between two of them makes the second dearer (ADR 0253).
        for leg in legs:
            leg.flush()
        if is_top:
            if frame.key and self._joining:
                self._joining.clear()
            self.tap.on_frame(frame)

    def _on_the_line(self, ingest: Ingest, stream: VideoStream, encoded: EncodedFrame, *, is_top: bool) -> StreamFrame:
        """The frame with its place in the input's sequence and timeline."""
        # Arrival of its last packet at the kernel, not the time at which this process read it.
        wall_ms = self._wall_ms() - max(0, int(self._mono_ms() - encoded.arrived_ms))
        if is_top:
            self._sequence = max(self._sequence + 1, wall_ms)
        captured_at_ms, claimed = stream.clock.captured(encoded.timestamp, wall_ms)
        return StreamFrame(
            sequence=self._sequence if is_top else wall_ms,
            timestamp=self._video_line.map(encoded.timestamp, encoded.arrived_ms, stream.ssrc),
            payloads=encoded.payloads,
            key=encoded.key,
            size=encoded.size,
            received_at_ms=wall_ms,
            captured_at_ms=captured_at_ms,
            captured_by_rtcp=claimed,
            publisher_epoch=self._epoch,
            format=stream.assembler.format,
            layer=stream.ssrc,
        )

    def _keep(self, frame: StreamFrame) -> None:
        """Take a frame of the highest layer for new viewers and clips."""
        self._frames_since_tick += 1
        self._last_frame = frame
        if self.format is not None and self.format.name != frame.format.name:
            self._codec_changed(frame.format)
        self.format = frame.format
        self.gop.add(frame)
        self.clips.add(frame)

    def _codec_changed(self, fmt: PayloadFormat) -> None:
        """Disconnect viewers that did not negotiate the new codec; they must reconnect."""
        self.gop.clear()
        self.clips.forget()
        for viewer in list(self.viewers.values()):
            if viewer.video is not None and not viewer.video.takes(fmt.name):
                viewer.stop("codec changed")

    def on_audio(self, ingest: Ingest, packet: RtpPacket) -> None:
        """Forward an audio packet."""
        if self.publisher is None or self.publisher[1] is not ingest:
            return
        now_ms = self._mono_ms()
        if self._audio_offset is None:
            self._audio_offset = self._audio_top + 1 - packet.sequence
        sequence = (packet.sequence + self._audio_offset) & 0xFFFF
        if (sequence - self._audio_top) & 0xFFFF < 0x8000:
            self._audio_top = sequence
        timestamp = self._audio_line.map(packet.timestamp, now_ms, packet.ssrc)
        wall_ms = self._wall_ms()
        self._audio_lag_ms = wall_ms - ingest.audio_clock.captured(packet.timestamp, wall_ms)[0]
        for viewer in self.viewers.values():
            if viewer.audio is not None:
                viewer.audio.live(packet, sequence, timestamp)

    # -- viewers

    @property
    def live_codec(self) -> str:
        """Codec name of the live stream; before its first frame the negotiated one."""
        if self.format is not None or self.publisher is None:
            return self.format.name if self.format is not None else "H264"
        return self.publisher[1].agreed_codec

    @property
    def live_profile(self) -> str | None:
        """H.264 profile-level-id of the live stream, if it is H.264."""
        return self.format.profile if isinstance(self.format, H264Format) else None

    def viewer_connected(self, viewer: Viewer) -> None:
        """Replay the GOP to a new viewer, or request a keyframe."""
        self.choose_layer(viewer)
        if not self._replay(viewer):
            self._joining[viewer.resource] = self._mono_ms()
            self.ask_key()

    def viewer_needs_key(self, viewer: Viewer) -> None:
        """Handle a viewer's keyframe request (PLI): replay the GOP, or request a keyframe."""
        if not self._replay(viewer):
            self._ask_key_for(viewer)

    def _ask_key_for(self, viewer: Viewer) -> None:
        """Request a keyframe of the layer that a viewer gets."""
        if self.publisher is not None:
            layer = viewer.video.layer if viewer.video is not None else None
            self.publisher[1].ask_key(self._mono_ms(), layer)

    def choose_layer(self, *viewers: Viewer) -> None:
        """Give viewers the layer that their link carries."""
        if self.publisher is None:
            return
        ingest, now_ms = self.publisher[1], self._mono_ms()
        layers = ingest.layers(now_ms)
        for viewer in viewers:
            if viewer.video is not None:
                viewer.video.choose_layer(layers, now_ms)
        legs = [viewer.video for viewer in self.viewers.values() if viewer.video is not None]
        ingest.wanted = frozenset(leg.layer for leg in legs if leg.layer is not None)
        for viewer in viewers:
            if viewer.video is not None and viewer.video.awaits_layer:
                self._ask_key_for(viewer)

    def _replay(self, viewer: Viewer, *, anyway: bool = False) -> bool:
        if viewer.video is None or not (anyway or self.gop.span_ms <= REPLAY_MAX_SPAN_MS):
            return False
        if viewer.video.layer not in (None, self._top_layer):
            return False
        return viewer.video.replay(self.gop.frames, self._mono_ms())

    def viewer_closed(self, viewer: Viewer) -> None:
        """Remove a viewer."""
        if viewer.receives:
            self._report_watched(self._wall_ms())
        self.viewers.pop(viewer.resource, None)
        self._joining.pop(viewer.resource, None)

    # -- time

    def tick(self) -> None:
        """Call once a second: reports, liveness, viewers without a picture."""
        now_ms, wall_ms = self._mono_ms(), self._wall_ms()
        if self._frames_since_tick:
            self._frames_since_tick = 0
            self._reported_quiet = None
            assert self._last_frame is not None
            self._emit(self.session_id, MediaKind.FRAMES, self._last_frame.received_at_ms)
            if self.clips.wants_key():
                self.ask_key()
        if self.publisher is not None:
            self._watch_publisher(self.publisher[1], now_ms, wall_ms)
        elif self._gone_since_ms is not None and self.pending is None:
            self._watch_absence(wall_ms)
        self._report_viewers(now_ms, wall_ms)
        is_first = any(viewer.receives and not viewer.has_received for viewer in self.viewers.values())
        if is_first or (self.viewers and now_ms - self._reported_watched_ms >= WATCHED_EVERY_MS):
            self._reported_watched_ms = now_ms
            self._report_watched(wall_ms)

    def _report_watched(self, wall_ms: int) -> None:
        workspaces = {viewer.workspace_id for viewer in self.viewers.values()}
        receiving = {viewer.workspace_id for viewer in self.viewers.values() if viewer.receives}
        for viewer in self.viewers.values():
            viewer.has_received |= viewer.receives
            viewer.receives = False
        self._emit(self.session_id, MediaKind.WATCHED, wall_ms, tuple(workspaces), tuple(receiving))

    def _watch_publisher(self, ingest: Ingest, now_ms: float, wall_ms: int) -> None:
        ingest.report(now_ms)
        if ingest.overloads:
            log.warning("media_overload", session_id=self.session_id, dropped_times=ingest.overloads)
            ingest.overloads = 0
        silent_ms = now_ms - (ingest.last_rtp_ms or self._connected_at_ms)
        blind_ms = now_ms - (ingest.last_frame_ms or self._connected_at_ms)
        if silent_ms >= self._options.lost_ms:
            ingest.stop("no media")
        elif silent_ms >= self._options.stale_ms:
            self._report_quiet(MediaKind.NO_RTP, wall_ms - int(silent_ms))
        elif blind_ms >= self._options.stale_ms:
            self._report_quiet(MediaKind.NO_FRAME, wall_ms - int(blind_ms))

    def _report_quiet(self, kind: MediaKind, at_ms: int) -> None:
        if self._reported_quiet is not kind:
            self._reported_quiet = kind
            self._emit(self.session_id, kind, at_ms)

    def _watch_absence(self, wall_ms: int) -> None:
        assert self._gone_since_ms is not None
        if wall_ms - self._gone_since_ms >= self._options.takeover_grace_ms:
            at_ms, self._gone_since_ms = self._gone_since_ms, None
            self._reported_connected = False
            self.gop.clear()
            self.clips.forget()
            self._emit(self.session_id, MediaKind.DISCONNECTED, at_ms)

    def _report_viewers(self, now_ms: float, wall_ms: int) -> None:
        self.choose_layer(*self.viewers.values())
        for viewer in self.viewers.values():
            if viewer.wants_key(now_ms):
                self._ask_key_for(viewer)
            viewer.report(float(wall_ms), now_ms, self._audio_lag_ms)
        for resource, since_ms in list(self._joining.items()):
            if self._has_joined(self.viewers.get(resource), now_ms - since_ms):
                del self._joining[resource]
            else:
                self.ask_key()

    def _has_joined(self, viewer: Viewer | None, waited_ms: float) -> bool:
        if viewer is None or viewer.video is None or not viewer.video.waiting_key:
            return True
        return waited_ms >= REPLAY_ANYWAY_MS and self._replay(viewer, anyway=True)

    def close(self, reason: str) -> None:
        """Disconnect all peers."""
        for entry in (self.publisher, self.pending):
            if entry is not None:
                entry[1].stop(reason)
        self.publisher = self.pending = None
        self._gone_since_ms = None
        for viewer in list(self.viewers.values()):
            viewer.stop(reason)
        self.viewers.clear()
        self._forget_pictures()
