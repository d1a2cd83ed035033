"""Receiving side of one publisher: frame assembly, RTCP feedback, clock mapping."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, final

from msgspec import field

from sightline.domain.value import Value
from sightline.video.media.assembler import Assembler, EncodedFrame
from sightline.video.media.codecs import PayloadFormat
from sightline.video.media.layers import LAYERS_MAX, Layer, LayerChooser
from sightline.video.media.stream import AUDIO_RATE, VIDEO_RATE, CaptureClock
from sightline.video.rtc.peer import RtcPeer
from sightline.video.rtc.rtp import (
    RTCP_SR,
    RtpPacket,
    build_nack,
    build_pli,
    build_receiver_report,
    build_remb,
    header_extension,
    parse_rtcp,
    parse_rtp,
    unwrap_rtx,
)
from sightline.video.rtc.twcc import ArrivalRecorder, transport_sequence

FEEDBACK_EVERY_S: Final = 0.06
"""Interval of congestion feedback while packets arrive; the draft names 50 to 250 ms."""
LATE_MAX_MS: Final = 300.0
"""Media that waited longer than this in the socket is dropped up to the next keyframe."""
LATE_OVER_MS: Final = 50.0
"""The process has caught up when packets waited less than this."""
PLI_EVERY_MS: Final = 400.0
"""Minimum interval of keyframe requests: keyframes are large, and more of them overload a bad network."""


@final
class IngestPlan(Value, kw_only=True):
    """What was negotiated with a publisher, or with an engine that is read."""

    video: dict[int, PayloadFormat]
    """By payload type."""
    video_rtx: dict[int, int] = field(default_factory=dict)
    """Retransmission payload type -> media payload type."""
    audio: frozenset[int] = frozenset()
    """Opus payload types."""
    rtx_ssrcs: dict[int, int] = field(default_factory=dict)
    """Retransmission SSRC -> media SSRC."""
    transport_cc: int | None = None
    """Header extension id of transport-wide congestion control; None: not negotiated."""
    rid: int | None = None
    """Header extension id of the stream id of simulcast; None: not negotiated."""
    repaired_rid: int | None = None
    """Header extension id of the stream that a retransmission repairs; None: not negotiated."""


@final
class _Reception:
    """Loss and jitter of one source for receiver reports (RFC 3550, appendix A.8)."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self.received = 0
        self.base = self.highest = -1
        self.jitter = 0.0
        self._transit: float | None = None
        self._prior = (0, 0)
        self.lsr = 0
        self.lsr_at_ms = 0.0

    def take(self, packet: RtpPacket, now_ms: float) -> None:
        if self.highest < 0:
            self.base = self.highest = packet.sequence
        step = (packet.sequence - self.highest) & 0xFFFF
        if step < 0x8000:
            self.highest += step
        self.received += 1
        transit = now_ms * self._rate - packet.timestamp
        if self._transit is not None:
            change = abs(transit - self._transit)
            if change < 10_000 * self._rate:
                self.jitter += (change - self.jitter) / 16
        self._transit = transit

    def report(self, ssrc: int, media_ssrc: int, now_ms: float) -> bytes:
        expected = self.highest - self.base + 1
        lost = expected - self.received
        span, got = expected - self._prior[0], self.received - self._prior[1]
        self._prior = (expected, self.received)
        fraction = max(0, min(255, (span - got) * 256 // span)) if span > 0 else 0
        since = int((now_ms - self.lsr_at_ms) * 65.536) if self.lsr else 0
        return build_receiver_report(
            ssrc=ssrc,
            media_ssrc=media_ssrc,
            lost_fraction=fraction,
            lost=lost,
            highest=self.highest,
            jitter=int(self.jitter),
            lsr=self.lsr,
            dlsr=since,
        )


@final
class VideoStream:
    """One video stream that is assembled: the publisher's only one, or a layer of simulcast."""

    def __init__(
        self,
        ssrc: int,
        payload_type: int,
        fmt: PayloadFormat,
        clock: CaptureClock,
        on_frame: Callable[["VideoStream", EncodedFrame], None],
    ) -> None:
        self.ssrc = ssrc
        self.payload_type = payload_type
        self.clock = clock
        """Each stream of simulcast has timestamps of its own."""
        self.assembler = Assembler(fmt, partial(on_frame, self))
        self._asked_ms = -PLI_EVERY_MS

    def take_request(self, now_ms: float) -> bool:
        """Whether to request a keyframe now; True counts as a request."""
        if now_ms - self._asked_ms < PLI_EVERY_MS:
            return False
        self._asked_ms = now_ms
        return True


@final
class Ingest:
    """The receiving side of one publisher.

    Args:
        ssrc: Our SSRC in feedback.
        bitrate_max_bps: What the publisher may send; 0 means as much as its congestion control allows.
        on_frame: Takes each whole frame of the highest stream, and of those in `wanted`.
    """

    def __init__(
        self,
        plan: IngestPlan,
        *,
        ssrc: int,
        bitrate_max_bps: int,
        on_frame: Callable[["Ingest", VideoStream, EncodedFrame], None],
        on_audio: Callable[["Ingest", RtpPacket], None],
    ) -> None:
        self._plan = plan
        self._ssrc = ssrc
        self._bitrate_max_bps = bitrate_max_bps
        self._arrivals = ArrivalRecorder(ssrc) if plan.transport_cc is not None else None
        self._feedback_timer: asyncio.TimerHandle | None = None
        self._on_frame = on_frame
        self._on_audio = on_audio
        self.peer: RtcPeer | None = None
        self.audio_clock = CaptureClock(AUDIO_RATE)
        self.top: VideoStream | None = None
        """The highest stream that arrives."""
        self.wanted: frozenset[int] = frozenset()
        """SSRCs of the streams that viewers get."""
        self._streams: dict[int, VideoStream] = {}  # by SSRC
        self._audio_ssrc: int | None = None
        self._layers = LayerChooser()
        self._named: dict[bytes, int] = {}  # stream id -> SSRC
        self._rtx_ssrcs = dict(plan.rtx_ssrcs)
        self._clocks: dict[int, CaptureClock] = {}  # of video, by SSRC
        self._catching_up = False
        self.overloads = 0
        """Times that late media was dropped since this was last reset."""
        self._reception: dict[int, _Reception] = {}
        self.last_rtp_ms: float | None = None
        self.last_frame_ms: float | None = None
        self.packets = 0

    @property
    def has_gap(self) -> bool:
        """True while packets are missing, so that `tick` must run often."""
        return any(stream.assembler.has_gap for stream in self._streams.values())

    @property
    def needs_key(self) -> bool:
        """True while frames are dropped until a keyframe arrives."""
        return self.top is None or self.top.assembler.needs_key

    @property
    def agreed_codec(self) -> str:
        """Codec name that was negotiated for video."""
        return next(fmt.name for fmt in self._plan.video.values())

    def layers(self, now_ms: float) -> list[Layer]:
        """The streams that arrive, the lowest first; none while there is only one."""
        return self._layers.below(now_ms) if self._layers.several else []

    def on_packet(self, data: bytes, rtcp: bool, now_ms: float, *, late_ms: float = 0.0) -> None:
        """Take one decrypted packet.

        Args:
            now_ms: When the kernel received it.
            late_ms: How long it has waited in the socket. Media that waited too long is dropped to the next keyframe.
        """
        if rtcp:
            self._on_rtcp(data, now_ms)
            return
        packet = parse_rtp(data)
        if packet is None:
            return
        if self._arrivals is not None:
            self._record_arrival(self._arrivals, data, now_ms)
        self.last_rtp_ms = now_ms
        self.packets += 1
        kind = packet.payload_type
        if self._is_overloaded(late_ms):
            if kind in self._plan.video:
                self._count(packet, VIDEO_RATE, now_ms)
            return
        if kind in self._plan.video:
            self._learn_name(packet.ssrc, data)
            self._take_video(packet, now_ms)
        elif kind in self._plan.video_rtx:
            original = self._repaired_ssrc(packet.ssrc, data)
            inner = unwrap_rtx(packet, self._plan.video_rtx[kind], original or 0)
            stream = self._streams.get(original) if original is not None else None
            if stream is not None and inner is not None and self._misses(stream, inner):
                self._push(stream, inner, now_ms)
        elif kind in self._plan.audio:
            self._audio_ssrc = packet.ssrc
            self._count(packet, AUDIO_RATE, now_ms)
            self._on_audio(self, packet)

    def _is_overloaded(self, late_ms: float) -> bool:
        """Whether to drop a packet because this process is too far behind: from LATE_MAX_MS until it has caught up."""
        if late_ms > LATE_MAX_MS and not self._catching_up:
            self._catching_up = True
            self.overloads += 1
            for stream in self._streams.values():
                stream.assembler.drop_to_key()
        elif self._catching_up and late_ms < LATE_OVER_MS:
            self._catching_up = False
        return self._catching_up

    def _misses(self, stream: VideoStream, repaired: RtpPacket) -> bool:
        """Whether a retransmission is of this stream: with several streams it may belong to another one."""
        return not self._layers.several or stream.assembler.misses(repaired.sequence)

    def _learn_name(self, ssrc: int, data: bytes) -> None:
        """Note which stream of simulcast has this SSRC: offers of browsers name none."""
        if self._plan.rid is not None and ssrc not in self._named.values() and len(self._named) < LAYERS_MAX:
            name = header_extension(data, self._plan.rid)
            if name is not None:
                self._named[name] = ssrc

    def _repaired_ssrc(self, ssrc: int, data: bytes) -> int | None:
        """The SSRC of the stream that a retransmission repairs."""
        known = self._rtx_ssrcs.get(ssrc)
        if known is None and self._plan.repaired_rid is not None and len(self._rtx_ssrcs) < LAYERS_MAX:
            known = self._named.get(header_extension(data, self._plan.repaired_rid) or b"")
            if known is not None:
                self._rtx_ssrcs[ssrc] = known
        return self._top_ssrc if known is None else known

    @property
    def _top_ssrc(self) -> int | None:
        return self.top.ssrc if self.top is not None else None

    def _record_arrival(self, arrivals: ArrivalRecorder, data: bytes, arrived_ms: float) -> None:
        assert self._plan.transport_cc is not None
        sequence = transport_sequence(data, self._plan.transport_cc)
        if sequence is not None:
            arrivals.record(sequence, arrived_ms)
            if self._feedback_timer is None:
                loop = asyncio.get_running_loop()
                self._feedback_timer = loop.call_later(FEEDBACK_EVERY_S, self._send_congestion_feedback, arrivals)

    def _send_congestion_feedback(self, arrivals: ArrivalRecorder) -> None:
        self._feedback_timer = None
        media_ssrc = self._top_ssrc or self._audio_ssrc
        if self.peer is not None and media_ssrc is not None:
            for message in arrivals.reports(media_ssrc):
                self.peer.send(message, rtcp=True)

    def _count(self, packet: RtpPacket, rate: int, now_ms: float) -> None:
        reception = self._reception.get(packet.ssrc)
        if reception is None:
            if len(self._reception) > 8:
                return
            reception = self._reception[packet.ssrc] = _Reception(rate)
        reception.take(packet, now_ms)

    def _take_video(self, packet: RtpPacket, now_ms: float) -> None:
        ssrc, kind = packet.ssrc, packet.payload_type
        is_top = self._layers.take(ssrc, len(packet.payload), now_ms) == ssrc
        self._count(packet, VIDEO_RATE, now_ms)
        if not is_top and ssrc not in self.wanted:
            self._streams.pop(ssrc, None)
            return
        stream = self._streams.get(ssrc)
        if stream is None or stream.payload_type != kind:
            fmt = self._plan.video[kind].for_stream()
            stream = self._streams[ssrc] = VideoStream(ssrc, kind, fmt, self._clock_of(ssrc), self._frame)
        if is_top and self.top is not stream:
            self.top = stream
            self._streams = {key: one for key, one in self._streams.items() if one is stream or key in self.wanted}
        self._push(stream, packet, now_ms)

    def _push(self, stream: VideoStream, packet: RtpPacket, now_ms: float) -> None:
        stream.assembler.push(packet, now_ms)
        if stream.assembler.needs_key:
            self.ask_key(now_ms, stream.ssrc)

    def _frame(self, stream: VideoStream, frame: EncodedFrame) -> None:
        if stream is self.top:
            self.last_frame_ms = frame.arrived_ms
        self._on_frame(self, stream, frame)

    def _on_rtcp(self, data: bytes, now_ms: float) -> None:
        for message in parse_rtcp(data):
            if message.kind == RTCP_SR and len(message.body) >= 24:
                ssrc = int.from_bytes(message.body[:4], "big")
                ntp = int.from_bytes(message.body[4:12], "big")
                timestamp = int.from_bytes(message.body[12:16], "big")
                if ssrc == self._audio_ssrc:
                    self.audio_clock.report(ntp, timestamp)
                elif ssrc in self._reception:
                    self._clock_of(ssrc).report(ntp, timestamp)
                if (reception := self._reception.get(ssrc)) is not None:
                    reception.lsr, reception.lsr_at_ms = ntp >> 16 & 0xFFFFFFFF, now_ms

    def _clock_of(self, ssrc: int) -> CaptureClock:
        """Each stream of simulcast has timestamps of its own."""
        if len(self._clocks) > LAYERS_MAX:
            self._clocks.clear()
        return self._clocks.setdefault(ssrc, CaptureClock(VIDEO_RATE))

    def ask_key(self, now_ms: float, ssrc: int | None = None) -> None:
        """Request a keyframe of a stream, by default the highest, at most every 400 ms.

        A stream that is not assembled yet is asked when its next packet arrives.
        """
        stream = self.top if ssrc is None else self._streams.get(ssrc)
        if self.peer is not None and stream is not None and stream.take_request(now_ms):
            self.peer.send(build_pli(self._ssrc, stream.ssrc), rtcp=True)

    def tick(self, now_ms: float) -> None:
        """Repeat retransmission requests and give up old gaps. Call every 10 to 20 ms while `has_gap`."""
        if self.peer is None:
            return
        for stream in list(self._streams.values()):
            assembler = stream.assembler
            assembler.tick(now_ms)
            if missing := assembler.due_nacks(now_ms):
                self.peer.send(build_nack(self._ssrc, stream.ssrc, missing), rtcp=True)
            if assembler.needs_key:
                self.ask_key(now_ms, stream.ssrc)

    def report(self, now_ms: float) -> None:
        """Send receiver reports, and the bitrate limit to a publisher without transport-wide feedback. About once a
        second."""
        if self.peer is None:
            return
        for media_ssrc, reception in self._reception.items():
            self.peer.send(reception.report(self._ssrc, media_ssrc, now_ms), rtcp=True)
        if self.top is not None:
            if self._arrivals is None and self._bitrate_max_bps:
                self.peer.send(build_remb(self._ssrc, self.top.ssrc, self._bitrate_max_bps), rtcp=True)
            if self.needs_key:
                self.ask_key(now_ms)

    def stop(self, reason: str) -> None:
        """Disconnect the publisher."""
        if self._feedback_timer is not None:
            self._feedback_timer.cancel()
        if self.peer is not None:
            self.peer.close(reason)
