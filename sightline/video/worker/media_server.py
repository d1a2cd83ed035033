"""The live inputs of one worker and their WHIP and WHEP requests, on the worker's asyncio loop."""

import asyncio
import gc
import socket
from collections.abc import Collection, Sequence
from typing import Final, final

import structlog
from msgspec import Struct

from sightline.domain.value import hiding
from sightline.ports.clock import Clock
from sightline.ports.ids import Ids
from sightline.ports.video import (
    ClipMissing,
    ClipMissingReason,
    ClipReply,
    FrameMissing,
    FrameMissingReason,
    FrameQuery,
    FrameReply,
    SignalReply,
    SignalRequest,
)
from sightline.video import signalling
from sightline.video.ipc.framing import Header
from sightline.video.media.decoder_budget import DecoderBudget
from sightline.video.media.egress import AudioLeg, VideoLeg, Viewer
from sightline.video.media.ingest import Ingest
from sightline.video.media.live_input import DELETED, Emit, LiveInput
from sightline.video.media.picture_threads import PictureThreads
from sightline.video.options import NetOptions, Options
from sightline.video.rtc.peer import Certificates, RtcPeer, transport_section
from sightline.video.rtc.sdp import (
    Description,
    LocalSection,
    LocalTransport,
    SdpError,
    Section,
    build,
    build_fragment,
    parse,
)
from sightline.video.rtc.tcp_frames import named_agent
from sightline.video.tokens import ref_of
from sightline.video.worker.negotiate import agree_play, agree_publish, answer_setup

GAP_TICK_S: Final = 0.012
SESSION_TICK_S: Final = 1.0
BUSY_RETRY_S: Final = 5
COLLECT_EVERY_PEERS: Final = 16
"""Closed peers until a garbage collection. The ICE, DTLS and TLS objects of a peer, about 46 kB, refer to each other.
Python's own full collection would come after hundreds of peers: it waits until the new objects are a quarter of those
that were there at the start."""
log = structlog.get_logger()


@final
class _Session(Struct, kw_only=True):
    """One WHIP or WHEP session."""

    peer: RtcPeer
    session_id: str
    kind: str
    client_ip: str
    token: str
    section: Section
    """The m-line of the client's offer that carries the transport."""
    ufrag: str
    """The client's present ice-ufrag: another one in a PATCH restarts ICE."""
    etag: str
    """Names the present ICE session."""

    __repr__ = hiding("token")


@final
class MediaServer:
    """The live inputs and peers of one worker.

    Args:
        emit: Takes each media event.
    """

    def __init__(self, options: Options, *, clock: Clock, ids: Ids, emit: Emit) -> None:
        self._options = options
        # asyncio.get_running_loop asks the kernel for the process id at each call, before Python 3.12.
        self._loop_time = asyncio.get_running_loop().time
        self._clock = clock
        self._ids = ids
        self._emit = emit
        self._inputs: dict[str, LiveInput] = {}
        self._certificates = Certificates(clock)
        self._threads = PictureThreads(mono_ms=self._mono_ms)
        self._budget = DecoderBudget(options.decoders_max_bytes)
        self._sessions: dict[str, _Session] = {}  # by resource
        self._closing: set[RtcPeer] = set()
        self._closed_peers = 0
        """Since the last garbage collection."""
        self._closed_decoded = self._closed_encoded = 0  # counts of inputs that are closed
        self._readers: dict[str, asyncio.Task[None]] = {}
        self._gap_timer: asyncio.TimerHandle | None = None

    @property
    def net(self) -> NetOptions:
        """Addresses and ports of media sockets."""
        return self._options.net

    def _mono_ms(self) -> float:
        return self._loop_time() * 1000

    def _random32(self) -> int:
        return int.from_bytes(self._ids.token_bytes(4), "big") or 1

    # -- inputs

    def open(self, session_id: str, *, read: Header | None = None) -> None:
        """Open an input, and read it from an external engine if `read` names one. Idempotent."""
        if session_id in self._inputs:
            return
        live = self._inputs[session_id] = LiveInput(
            session_id,
            self._options,
            threads=self._threads,
            budget=self._budget,
            clip_max_bytes=self._clip_max_bytes,
            emit=self._emit,
            wall_ms=self._clock.now_ms,
            mono_ms=self._mono_ms,
        )
        if read is not None:
            from sightline.video.worker.whep_reader import WhepReader  # its HTTP client takes a tenth of the imports

            reader = WhepReader(
                live,
                read,
                self._options,
                certificates=self._certificates,
                random32=self._random32,
                mono_ms=self._mono_ms,
                on_gap=self._watch_gaps,
            )
            self._readers[session_id] = asyncio.create_task(reader.run())

    def close(self, session_id: str, reason: str = "session over") -> None:
        """Disconnect an input's peers and remove it. Idempotent."""
        reader = self._readers.pop(session_id, None)
        if reader is not None:
            reader.cancel()
        live = self._inputs.pop(session_id, None)
        if live is not None:
            for session in list(self._sessions.values()):
                if session.session_id == session_id:
                    session.peer.close(reason)
            live.close(reason)
            self._closed_decoded += live.tap.decoded
            self._closed_encoded += live.tap.encoded

    async def frame(self, session_id: str, query: FrameQuery) -> FrameReply:
        """The newest frame of an input."""
        live = self._inputs.get(session_id)
        if live is None:
            return FrameMissing(reason=FrameMissingReason.NOT_DECODED)
        return await live.tap.frame(query)

    async def clip(self, session_id: str, seconds: int) -> ClipReply:
        """The last seconds of an input."""
        live = self._inputs.get(session_id)
        if live is None:
            return ClipMissing(reason=ClipMissingReason.NOT_RECEIVED)
        return await live.clips.clip(seconds)

    def _clip_max_bytes(self) -> int:
        return min(self._options.clip_max_bytes, self._options.clips_max_bytes // max(1, len(self._inputs)))

    # -- signalling

    def take_connection(self, sock: socket.socket, packet: bytes) -> bool:
        """Give a client's TCP connection to the peer that its first packet names; False if there is none."""
        ufrag = named_agent(packet)
        peer = next((each.peer for each in self._sessions.values() if each.peer.ufrag == ufrag), None)
        return peer is not None and peer.take_connection(sock, packet)

    async def signal(self, session_id: str, request: SignalRequest, workspace_id: str = "") -> SignalReply:
        """Answer one POST, PATCH or DELETE. Raises no error for invalid client input.

        Args:
            workspace_id: Whose play URL an offer to play uses; empty if the URL is bound to none.
        """
        live = self._inputs.get(session_id)
        if live is None:
            return signalling.problem(404, "No such live input")
        if request.resource is not None:
            return await self._signal_resource(session_id, request, request.resource)
        if (full := self._limit_reached(session_id, request)) is not None:
            return signalling.problem(503, "Too many peers", full, headers=[("Retry-After", str(BUSY_RETRY_S))])
        if request.kind == "whep" and not live.is_live:
            return signalling.idle()
        try:
            if request.kind == "whip":
                return await self._publish(live, request)
            return await self._play(live, request, workspace_id)
        except SdpError as error:
            return signalling.problem(422, "The offer cannot be accepted", str(error))
        except OSError as error:
            log.error("media_sockets_exhausted", error=str(error))
            return signalling.problem(503, "No UDP port is free", headers=[("Retry-After", str(BUSY_RETRY_S))])

    def _limit_reached(self, session_id: str, request: SignalRequest) -> str | None:
        """Which limit an offer would exceed, in words; None if it may be answered.

        A peer counts from its offer on: offers that never connect must not take the places of other inputs.
        """
        options = self._options
        if request.kind == "whip":
            return "this worker has no place for another peer" if len(self._sessions) >= options.peers_max else None
        if len(self._sessions) >= options.peers_max - options.publisher_places:
            return "this worker has no place for another viewer"
        viewers = [one for one in self._sessions.values() if one.kind == "whep"]
        of_input = [one for one in viewers if one.session_id == session_id]
        if len(of_input) >= options.viewers_max:
            return f"this live input has {len(of_input)} viewers"
        if sum(not one.peer.connected for one in of_input) >= options.connecting_max:
            return "too many viewers of this live input are still connecting"
        connecting = sum(not one.peer.connected and one.client_ip == request.client_ip for one in viewers)
        if request.client_ip and connecting >= options.connecting_per_address_max:
            return "too many viewers from this address are still connecting"
        return None

    def viewer_tokens(self) -> list[str]:
        """The tokens with which viewers are connected or connecting, each once."""
        return list(dict.fromkeys(one.token for one in self._sessions.values() if one.kind == "whep"))

    def end_viewers(self, tokens: Collection[str]) -> int:
        """Disconnect the viewers of these tokens; returns their number."""
        ended = [one for one in self._sessions.values() if one.kind == "whep" and one.token in tokens]
        for one in ended:
            one.peer.close("access withdrawn")
        return len(ended)

    async def _signal_resource(self, session_id: str, request: SignalRequest, resource: str) -> SignalReply:
        known = self._sessions.get(resource)
        if known is None or known.session_id != session_id or known.kind != request.kind:
            return signalling.problem(404, "No such session", "it has ended, or another publisher took over")
        peer = known.peer
        if request.method.upper() == "DELETE":
            peer.close(DELETED)
            await peer.wait_closed()
            return SignalReply(status=200, headers=signalling.CORS)
        fragment = signalling.read_fragment(request.body)
        restarts = fragment.ufrag is not None and fragment.ufrag != known.ufrag
        if (refusal := signalling.precondition(request, known.etag, required=restarts)) is not None:
            return refusal
        if restarts:
            return await self._restart_ice(known, fragment)
        for line in fragment.candidates:
            await peer.add_candidate(line)
        return SignalReply(status=204, headers=signalling.CORS)

    async def _restart_ice(self, known: _Session, fragment: signalling.Fragment) -> SignalReply:
        """Restart ICE of a session. DTLS and media go on, and the publisher or viewer stays the same."""
        if fragment.ufrag is None or fragment.password is None or not fragment.has_credentials:
            title = "Not a usable SDP fragment"
            return signalling.problem(400, title, "an ICE restart needs a new ice-ufrag and ice-pwd (RFC 8839)")
        known.ufrag, known.etag = fragment.ufrag, self._ids.uuid()
        transport = await known.peer.restart_ice(
            ufrag=fragment.ufrag, password=fragment.password, candidates=fragment.candidates
        )
        log.info("ice_restarted", session_id=known.session_id, kind=known.kind)
        return signalling.restarted(build_fragment(known.section.mid, known.section.kind, transport), etag=known.etag)

    async def _publish(self, live: LiveInput, request: SignalRequest) -> SignalReply:
        offer = _parsed(request)
        if isinstance(offer, SignalReply):
            return offer
        agreement = agree_publish(offer, bitrate_max_bps=self._options.publish_bitrate_max_bps)
        resource = self._ids.uuid()
        ingest = Ingest(
            agreement.plan,
            ssrc=self._random32(),
            bitrate_max_bps=self._options.publish_bitrate_max_bps,
            on_frame=live.on_frame,
            on_audio=live.on_audio,
        )

        def on_packet(data: bytes, rtcp: bool, arrived_ms: float) -> None:
            ingest.on_packet(data, rtcp, arrived_ms, late_ms=self._mono_ms() - arrived_ms)
            if ingest.has_gap:
                self._watch_gaps()

        def on_closed(reason: str) -> None:
            self._forget(resource)
            live.publisher_closed(ingest, reason)

        peer = RtcPeer(
            net=self._options.net,
            certificates=self._certificates,
            prefer=_host(request.base_url),
            controlling=offer.ice_lite,
            publishes=True,
            on_packet=on_packet,
            on_connected=lambda: live.publisher_connected(resource, ingest),
            on_closed=on_closed,
        )
        setup, role = answer_setup(transport_section(offer))
        transport = await peer.gather(setup)
        ingest.peer = peer
        if live.pending is not None:
            live.pending[1].stop("replaced by a newer offer")
        live.pending = (resource, ingest)
        await self._connect(resource, peer, live, request, offer, role)
        return self._created(live, request, resource, offer, agreement.sections, transport)

    async def _play(self, live: LiveInput, request: SignalRequest, workspace_id: str) -> SignalReply:
        offer = _parsed(request)
        if isinstance(offer, SignalReply):
            return offer
        ssrcs = (self._random32(), self._random32(), self._random32())
        agreement = agree_play(offer, live=live.live_codec, profile=live.live_profile, stream="sightline", ssrcs=ssrcs)
        resource = self._ids.uuid()
        viewer = Viewer(
            resource, workspace_id=workspace_id, needs_key=live.viewer_needs_key, choose_layer=live.choose_layer
        )

        def on_closed(reason: str) -> None:
            self._forget(resource)
            live.viewer_closed(viewer)
            log.info("viewer_gone", session_id=live.session_id, reason=reason)

        def on_connected() -> None:
            live.viewers[resource] = viewer
            live.viewer_connected(viewer)
            log.info("viewer_connected", session_id=live.session_id, viewers=len(live.viewers))

        peer = RtcPeer(
            net=self._options.net,
            certificates=self._certificates,
            prefer=_host(request.base_url),
            controlling=offer.ice_lite,
            publishes=False,
            on_packet=viewer.on_packet,
            on_connected=on_connected,
            on_closed=on_closed,
        )
        setup, role = answer_setup(transport_section(offer))
        transport = await peer.gather(setup)
        viewer.peer = peer
        viewer.video = VideoLeg(
            peer=peer, formats=agreement.video, ssrc=ssrcs[0], rtx_ssrc=ssrcs[1], origin=self._random32()
        )
        if agreement.audio is not None:
            viewer.audio = AudioLeg(peer=peer, payload_type=agreement.audio, ssrc=ssrcs[2], origin=self._random32())
        await self._connect(resource, peer, live, request, offer, role)
        return self._created(live, request, resource, offer, agreement.sections, transport)

    async def _connect(
        self, resource: str, peer: RtcPeer, live: LiveInput, request: SignalRequest, offer: Description, role: str
    ) -> None:
        """Begin the handshakes of a new session."""
        section = transport_section(offer)
        self._sessions[resource] = _Session(
            peer=peer,
            session_id=live.session_id,
            kind=request.kind,
            client_ip=request.client_ip,
            token=request.token,
            section=section,
            ufrag=section.ufrag,
            etag=resource,
        )
        await peer.connect(offer, role=role, handshake_ms=self._options.handshake_ms)

    def _created(
        self,
        live: LiveInput,
        request: SignalRequest,
        resource: str,
        offer: Description,
        sections: Sequence[LocalSection],
        transport: LocalTransport,
    ) -> SignalReply:
        options = self._options
        answer = build(sections, transport, session_number=self._random32(), bundled=bool(offer.bundle))
        servers = signalling.with_turn_credentials(
            options.ice_servers,
            secret=options.turn_secret,
            ttl_s=options.turn_ttl_s,
            now_ms=self._clock.now_ms(),
            user=ref_of(live.session_id),
        )
        location = f"{request.base_url}/{request.kind}/{request.token}/{resource}"
        return signalling.created(answer, location=location, etag=resource, servers=servers)

    def _forget(self, resource: str) -> None:
        known = self._sessions.pop(resource, None)
        if known is not None:
            self._closing.add(known.peer)

    # -- time

    def _watch_gaps(self) -> None:
        if self._gap_timer is None:
            self._gap_timer = asyncio.get_running_loop().call_later(GAP_TICK_S, self._tick_gaps)

    def _tick_gaps(self) -> None:
        self._gap_timer = None
        now_ms = self._mono_ms()
        again = False
        for live in self._inputs.values():
            for entry in (live.publisher, live.pending):
                if entry is not None and entry[1].has_gap:
                    entry[1].tick(now_ms)
                    again = again or entry[1].has_gap
        if again:
            self._gap_timer = asyncio.get_running_loop().call_later(GAP_TICK_S, self._tick_gaps)

    async def run(self) -> None:
        """Tick once a second until cancelled."""
        while True:
            await asyncio.sleep(SESSION_TICK_S)
            for live in list(self._inputs.values()):
                live.tick()
            await self._finish_closing()
            if self._closed_peers >= COLLECT_EVERY_PEERS:
                self._closed_peers = 0
                gc.collect()

    async def _finish_closing(self) -> None:
        """Wait until the sockets of closed peers are closed."""
        for peer in list(self._closing):
            await peer.wait_closed()
            self._closing.discard(peer)
            self._closed_peers += 1

    async def stop(self) -> None:
        """Close all inputs and wait until their sockets are closed."""
        for session_id in list(self._inputs):
            self.close(session_id, "server stops")
        await self._finish_closing()
        self._threads.stop()

    def stats(self) -> dict[str, int]:
        """Counts for logs and metrics."""
        lives = list(self._inputs.values())
        return {
            "inputs": len(lives),
            "publishers": sum(live.is_live for live in lives),
            "viewers": sum(len(live.viewers) for live in lives),
            "peers": len(self._sessions),
            "closing": len(self._closing),
            "decoders_released": self._budget.released,
            "decoders": sum(live.tap.awake for live in lives),
            "decoded": self._closed_decoded + sum(live.tap.decoded for live in lives),
            "encoded": self._closed_encoded + sum(live.tap.encoded for live in lives),
        }


def _host(base_url: str) -> str:
    authority = base_url.partition("://")[2]
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return authority.partition(":")[0]


def _parsed(request: SignalRequest) -> Description | SignalReply:
    """The offer, or the answer 400 if it cannot be parsed."""
    try:
        return parse(request.body)
    except SdpError as error:
        return signalling.problem(400, "Not a usable session description", str(error))
