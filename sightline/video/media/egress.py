"""Sending side of one viewer: one of the publisher's layers with continuing numbers, replay of the GOP, retransmission,
keyframes only for slow viewers."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, final

import structlog
from msgspec import Struct

from sightline.video.media.codecs import Vp8Shift, continuing
from sightline.video.media.layers import Layer
from sightline.video.media.stream import AUDIO_RATE, VIDEO_RATE, StreamFrame
from sightline.video.media.viewer_link import ViewerLink
from sightline.video.rtc.peer import RtcPeer
from sightline.video.rtc.rtp import (
    FMT_FIR,
    FMT_NACK,
    FMT_PLI,
    RTCP_PSFB,
    RTCP_RR,
    RTCP_RTPFB,
    RTCP_SR,
    RtcpMessage,
    RtpPacket,
    build_rtp,
    build_sender_report,
    ntp_from_ms,
    parse_rtcp,
    read_nack,
    read_report_blocks,
    wrap_rtx,
)

HISTORY_PACKETS: Final = 1024
"""Kept for retransmission: about 4 s at 2.5 Mbit/s. A power of two, so that slots stay in order when sequences wrap."""
BURST_PACKETS: Final = 40
BURST_EVERY_S: Final = 0.005
"""A replay is sent at up to 75 Mbit/s: faster than a GOP grows, slower than socket buffers overflow."""
REPLAY_SPACING: Final = VIDEO_RATE
"""Replayed frames get timestamps 1 ms apart before the live ones, so that a jitter buffer does not see delay."""
QUEUE_MAX_FRAMES: Final = 900
REPLAY_AGAIN_MS: Final = 1_000.0
REPORTS_KEPT: Final = 8
RESEND_MAX: Final = 5
"""Retransmissions of one packet; a viewer that still misses it asks for a keyframe."""
SLOW_SHARE: Final = 0.7
"""Share of the measured rate that keyframes take; the rest is for audio and retransmissions."""
ALL_LOST: Final = 255 / 256
"""Loss in a receiver report that says that nothing arrived."""
THIN_KEY_EVERY_MS: Final = 4_000.0
"""How often a keyframe is asked for on behalf of such a viewer."""
RESEND_MAX_PER_S: Final = 400
"""Retransmissions to one viewer: a stream of NACKs must not be amplified."""
log = structlog.get_logger()


@final
class _Sent(Struct):
    """A frame as it went to one viewer."""

    payloads: tuple[bytes, ...]
    shift: Vp8Shift | None
    payload_type: int
    timestamp: int
    ssrc: int
    sequence: int
    """Of its first packet."""

    def packet(self, index: int) -> bytes:
        """The RTP packet with one of the payloads."""
        payload = self.payloads[index]
        return build_rtp(
            payload if self.shift is None else self.shift.apply(payload),
            marker=index == len(self.payloads) - 1,
            payload_type=self.payload_type,
            sequence=(self.sequence + index) & 0xFFFF,
            timestamp=self.timestamp,
            ssrc=self.ssrc,
        )

    def packets(self) -> list[bytes]:
        """The RTP packets with all payloads, in order."""
        return [self.packet(index) for index in range(len(self.payloads))]

    def seal(self, peer: RtcPeer) -> None:
        """Encrypt all packets; `peer.send_sealed` sends them."""
        shift = self.shift
        peer.seal_frame(
            self.payloads if shift is None else [shift.apply(each) for each in self.payloads],
            payload_type=self.payload_type,
            sequence=self.sequence,
            timestamp=self.timestamp,
            ssrc=self.ssrc,
        )


@final
class VideoLeg:
    """The video sent to one viewer."""

    def __init__(
        self, *, peer: RtcPeer, formats: dict[str, tuple[int, int | None]], ssrc: int, rtx_ssrc: int, origin: int
    ) -> None:
        self._peer = peer
        self.formats = formats
        """Codec name -> (payload type, its retransmission payload type)."""
        self.ssrc = ssrc
        self.rtx_ssrc = rtx_ssrc
        self._origin = origin & 0xFFFFFFFF
        self._sequence = origin & 0x7FFF
        self._rtx_sequence = origin >> 8 & 0x7FFF
        self._history: list[_Sent | None] = [None] * HISTORY_PACKETS
        """The frame of the packet in each slot. The payloads are those of the frame, which all viewers share."""
        self._queue: deque[tuple[StreamFrame, int]] = deque()
        self._pump: asyncio.TimerHandle | None = None
        self._floor = -1
        self._replayed_ms = -REPLAY_AGAIN_MS
        self._resent: dict[int, tuple[int, int, float]] = {}  # slot -> (sequence, times, when last)
        self._slow: deque[bytes] = deque()
        """Packets of a keyframe that goes out at the pace of a slow viewer."""
        self._slow_timer: asyncio.TimerHandle | None = None
        self._link = ViewerLink()
        self.layer: int | None = None
        """SSRC of the publisher's stream that this viewer should get; None while there is only one."""
        self._sent_layer: int | None = None
        """The stream of the newest frame that was sent; None after a fall, until the chosen layer's keyframe."""
        self._newest: tuple[StreamFrame, Vp8Shift | None] | None = None
        self._newest_timestamp = -1
        self._resends = 0
        self._resend_window_ms = 0.0
        self.waiting_key = True
        self.frames = self.packets = self.octets = 0
        self.last_timestamp = 0
        self._rtx_type: int | None = None

    def takes(self, codec: str) -> bool:
        """True if this viewer negotiated the codec."""
        return codec in self.formats

    def is_thinned(self, now_ms: float) -> bool:
        """True while this viewer gets keyframes only."""
        return self._link.is_thinned(now_ms)

    @property
    def captured_at_ms(self) -> int | None:
        """When the newest frame that was sent was captured."""
        return self._newest[0].captured_at_ms if self._newest is not None else None

    @property
    def awaits_layer(self) -> bool:
        """True until a keyframe of the chosen layer has arrived."""
        return self.layer is not None and self.layer != self._sent_layer

    def reported(self, fraction: float, rtt_ms: float | None, now_ms: float) -> bool:
        """Take a viewer's receiver report; True if it gets keyframes only from now on."""
        thinned = self._link.reported(fraction, rtt_ms, self.octets, now_ms)
        if thinned:
            self._drop_to_key()
        return thinned

    @property
    def is_too_slow(self) -> bool:
        """True if a lower layer must be chosen now."""
        return self._link.is_too_slow

    def choose_layer(self, layers: Sequence[Layer], now_ms: float) -> None:
        """Choose the layer that the link carries. It is sent from its next keyframe on, and the present one until then,
        unless that is what the link does not carry."""
        falls = self._link.is_too_slow
        self.layer = self._link.choose(layers, now_ms)
        if falls and self.awaits_layer:
            self._sent_layer = None
            self._drop_to_key()

    def _drop_to_key(self) -> None:
        self._queue.clear()
        self.waiting_key = True

    def live(self, frame: StreamFrame, now_ms: float) -> None:
        """Encrypt or queue a frame that just arrived, if it is of this viewer's layer. `flush` sends it."""
        if frame.layer != self._sent_layer:
            if self.layer is not None and not (frame.key and frame.layer == self.layer):
                return
            # The timestamps of two layers agree to some milliseconds only.
            before = self._queue[-1][1] if self._queue else self._newest_timestamp
            self._sent_layer, self._floor = frame.layer, max(self._floor, before)
        if self._peer.congested or len(self._queue) > QUEUE_MAX_FRAMES:
            self._drop_to_key()
        if self.is_thinned(now_ms) or self._slow:
            self.waiting_key = True
            if frame.key and not self._slow:
                self._send_slowly(frame)
            return
        if frame.key:
            self.waiting_key = False
        if self.waiting_key:
            return
        timestamp = frame.timestamp
        if timestamp <= self._floor:  # a replay used timestamps beyond this frame's
            timestamp = self._floor = self._floor + 1
        if self._queue:
            self._queue.append((frame, timestamp))
        else:
            self._seal(frame, timestamp)

    def replay(self, frames: Sequence[StreamFrame], now_ms: float) -> bool:
        """Send the cached GOP; False if one was sent within the last second, or none can be sent."""
        if not frames or now_ms - self._replayed_ms < REPLAY_AGAIN_MS or len(frames) > QUEUE_MAX_FRAMES // 2:
            return False
        if self.is_thinned(now_ms):
            return False
        self._replayed_ms = now_ms
        self._queue.clear()
        newest = frames[-1].timestamp
        count = len(frames)
        if self.frames:
            spacing = max(1, min(REPLAY_SPACING, 1200 // count))
            stamps = [newest + (index + 1) * spacing for index in range(count)]
        else:
            stamps = [newest - (count - 1 - index) * REPLAY_SPACING for index in range(count)]
        self._queue.extend(zip(frames, stamps, strict=True))
        self._floor = stamps[-1]
        self._sent_layer = frames[-1].layer
        self.waiting_key = False
        self._pump_now()
        return True

    def _pump_now(self) -> None:
        self._pump = None
        sent = 0
        while self._queue and sent < BURST_PACKETS:
            frame, timestamp = self._queue.popleft()
            self._seal(frame, timestamp)
            self.flush()
            sent += len(frame.payloads)
        if self._queue and not self._peer.closed:
            self._pump = asyncio.get_running_loop().call_later(BURST_EVERY_S, self._pump_now)

    def _send_slowly(self, frame: StreamFrame) -> None:
        """Send a keyframe at the rate that the viewer was seen to receive."""
        timestamp = max(frame.timestamp, self._floor + 1)
        self._floor = timestamp
        sent = self._number(frame, timestamp)
        if sent is not None:
            self._slow.extend(sent.packets())
        self._send_next_slow()

    def _send_next_slow(self) -> None:
        self._slow_timer = None
        if not self._slow or self._peer.closed:
            return
        data = self._slow.popleft()
        self._peer.send(data)
        pause_s = len(data) * 8 / (SLOW_SHARE * self._link.delivered_bps)
        self._slow_timer = asyncio.get_running_loop().call_later(pause_s, self._send_next_slow)

    def flush(self) -> None:
        """Send what `live` encrypted."""
        self._peer.send_sealed()

    def _seal(self, frame: StreamFrame, timestamp: int) -> None:
        sent = self._number(frame, timestamp)
        if sent is not None:
            sent.seal(self._peer)

    def _number(self, frame: StreamFrame, timestamp: int) -> _Sent | None:
        """Give the frame this viewer's numbers and keep it for retransmission; None for a codec not negotiated."""
        chosen = self.formats.get(frame.format.name)
        if chosen is None:
            return None
        payload_type, self._rtx_type = chosen
        stamp = (self._origin + timestamp) & 0xFFFFFFFF
        count = len(frame.payloads)
        shift = self._shift_of(frame)
        self._newest, self._newest_timestamp = (frame, shift), timestamp
        sent = _Sent(frame.payloads, shift, payload_type, stamp, self.ssrc, self._sequence)
        self._keep(sent)
        self._sequence = (self._sequence + count) & 0xFFFF
        self.frames += 1
        self.packets += count
        self.octets += frame.size
        self.last_timestamp = stamp
        return sent

    def _keep(self, sent: _Sent) -> None:
        """Remember a frame for retransmission, in the slot of each of its packets."""
        left, slot = len(sent.payloads), sent.sequence % HISTORY_PACKETS
        while left:
            count = min(left, HISTORY_PACKETS - slot)
            self._history[slot : slot + count] = [sent] * count
            left, slot = left - count, 0

    def _shift_of(self, frame: StreamFrame) -> Vp8Shift | None:
        """What makes the frame's running numbers follow those of the frame that was sent before it.

        Another layer, another publisher and a replay have others.
        """
        if self._newest is None or frame.format.name != "VP8":
            return None
        before, shift = self._newest
        is_same = (frame.layer, frame.publisher_epoch) == (before.layer, before.publisher_epoch)
        if not frame.key or (is_same and frame.sequence > before.sequence):
            return shift
        first = before.payloads[0]
        return continuing(first if shift is None else shift.apply(first), frame.payloads[0])

    def resend(self, sequences: Sequence[int], now_ms: float) -> None:
        """Answer a NACK from the history: each packet at most once a round trip, and RESEND_MAX times."""
        if now_ms - self._resend_window_ms >= 1000:
            self._resend_window_ms, self._resends = now_ms, 0
        for sequence in sequences:
            sent = self._history[sequence % HISTORY_PACKETS]
            is_kept = 0 < (self._sequence - sequence) & 0xFFFF <= HISTORY_PACKETS
            if sent is None or not is_kept or self._resends > RESEND_MAX_PER_S:
                continue
            index = (sequence - sent.sequence) & 0xFFFF
            known, times, last_ms = self._resent.get(sequence % HISTORY_PACKETS, (sequence, 0, 0.0))
            if known != sequence:
                times = 0
            if times >= RESEND_MAX or (times and now_ms - last_ms < self._link.rtt_ms):
                continue  # the last retransmission may still be on its way
            self._resent[sequence % HISTORY_PACKETS] = (sequence, times + 1, now_ms)
            self._resends += 1
            data = sent.packet(index)
            if self._rtx_type is not None:
                data = wrap_rtx(data, payload_type=self._rtx_type, sequence=self._rtx_sequence, ssrc=self.rtx_ssrc)
                self._rtx_sequence = (self._rtx_sequence + 1) & 0xFFFF
            self._peer.send(data)

    def stop(self) -> None:
        """Stop sending."""
        self._queue.clear()
        self._slow.clear()
        if self._slow_timer is not None:
            self._slow_timer.cancel()
        if self._pump is not None:
            self._pump.cancel()


@final
class AudioLeg:
    """The audio of one viewer: packets are forwarded at once, in their order and with their gaps."""

    def __init__(self, *, peer: RtcPeer, payload_type: int, ssrc: int, origin: int) -> None:
        self._peer = peer
        self._payload_type = payload_type
        self.ssrc = ssrc
        self._origin = origin & 0xFFFFFFFF
        self.packets = self.octets = 0
        self.last_timestamp = 0

    def live(self, packet: RtpPacket, sequence: int, timestamp: int) -> None:
        """Forward one packet, renumbered onto the input's timeline."""
        self.last_timestamp = (self._origin + timestamp) & 0xFFFFFFFF
        self.packets += 1
        self.octets += len(packet.payload)
        self._peer.send(
            build_rtp(
                packet.payload,
                marker=packet.marker,
                payload_type=self._payload_type,
                sequence=(self._origin + sequence) & 0xFFFF,
                timestamp=self.last_timestamp,
                ssrc=self.ssrc,
            )
        )


@final
class Viewer:
    """One WHEP viewer."""

    def __init__(
        self,
        resource: str,
        *,
        workspace_id: str,
        needs_key: Callable[["Viewer"], None],
        choose_layer: Callable[["Viewer"], None],
    ) -> None:
        """`workspace_id`: whose play URL it uses; empty if the URL is bound to none."""
        self.resource = resource
        self.workspace_id = workspace_id
        self.peer: RtcPeer | None = None
        self.video: VideoLeg | None = None
        self.audio: AudioLeg | None = None
        self._needs_key = needs_key
        self._choose_layer = choose_layer
        self._reports_sent: dict[int, float] = {}  # middle 32 bits of a report's NTP time -> when it was sent
        self._asked_ms = 0.0
        self._octets_reported = 0
        self.has_received = False
        self.receives = False
        """Whether it has reported, since this was last set to False, that video arrives."""

    def on_packet(self, data: bytes, rtcp: bool, now_ms: float) -> None:
        """Handle RTCP feedback; media from a viewer is ignored."""
        if rtcp and self.video is not None:
            for message in parse_rtcp(data):
                self._on_feedback(self.video, message, now_ms)

    def _on_feedback(self, video: VideoLeg, message: RtcpMessage, now_ms: float) -> None:
        if message.kind in (RTCP_SR, RTCP_RR):
            for fraction, lsr, dlsr in read_report_blocks(message, video.ssrc):
                self._on_report(video, fraction, lsr, dlsr, now_ms)
        elif message.kind == RTCP_RTPFB and message.count == FMT_NACK:
            video.resend(read_nack(message), now_ms)
        elif message.kind == RTCP_PSFB and message.count in (FMT_PLI, FMT_FIR) and not video.is_thinned(now_ms):
            self._needs_key(self)

    def _on_report(self, video: VideoLeg, fraction: float, lsr: int, dlsr: int, now_ms: float) -> None:
        # A report of nothing lost says nothing while nothing is sent.
        if video.octets > self._octets_reported and fraction < ALL_LOST:
            self.receives = True
        self._octets_reported = video.octets
        sent_ms = self._reports_sent.get(lsr)
        rtt_ms = now_ms - sent_ms - dlsr / 65.536 if sent_ms is not None else None
        if video.reported(fraction, rtt_ms, now_ms):
            log.info("viewer_thinned", loss=round(fraction, 2))
        if video.is_too_slow:
            self._choose_layer(self)

    def wants_key(self, now_ms: float) -> bool:
        """True if a viewer with keyframes only should get another one now."""
        if self.video is None or not self.video.is_thinned(now_ms) or now_ms - self._asked_ms < THIN_KEY_EVERY_MS:
            return False
        self._asked_ms = now_ms
        return True

    def report(self, now_ms: float, mono_ms: float, audio_lag_ms: float) -> None:
        """Send sender reports, by which the viewer synchronizes audio and video.

        Args:
            now_ms: Unix time in milliseconds.
            mono_ms: The loop's time in milliseconds.
            audio_lag_ms: How long ago the last audio packet was captured.
        """
        if self.peer is None:
            return
        self._reports_sent[ntp_from_ms(now_ms) >> 16 & 0xFFFFFFFF] = mono_ms
        if len(self._reports_sent) > REPORTS_KEPT:
            del self._reports_sent[next(iter(self._reports_sent))]
        captured_at_ms = self.video.captured_at_ms if self.video is not None else None
        video_lag_ms = now_ms - captured_at_ms if captured_at_ms is not None else 0.0
        legs = ((self.video, video_lag_ms, VIDEO_RATE), (self.audio, audio_lag_ms, AUDIO_RATE))
        for leg, lag_ms, rate in legs:
            if leg is not None and leg.packets:
                stamp = int(leg.last_timestamp + lag_ms * rate) & 0xFFFFFFFF
                self.peer.send(
                    build_sender_report(
                        ssrc=leg.ssrc,
                        now_ms=now_ms,
                        rtp_timestamp=stamp,
                        packets=leg.packets,
                        octets=leg.octets,
                        cname="sightline",
                    ),
                    rtcp=True,
                )

    def stop(self, reason: str) -> None:
        """Disconnect."""
        if self.video is not None:
            self.video.stop()
        if self.peer is not None:
            self.peer.close(reason)
