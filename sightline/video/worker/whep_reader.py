"""Reads an external engine by WHEP, so that its frames pass the same code as those of our own publishers."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, final
from urllib.parse import urljoin, urlsplit

import httpx
import structlog

from sightline.domain.value import replace
from sightline.video.ipc.framing import Header
from sightline.video.media.ingest import Ingest
from sightline.video.media.live_input import LiveInput
from sightline.video.options import Options
from sightline.video.rtc.peer import Certificates, RtcPeer, transport_section
from sightline.video.rtc.sdp import Codec, LocalSection, SdpError, build, parse
from sightline.video.rtc.twcc import EXTENSION_URI
from sightline.video.worker.negotiate import FEEDBACK, TRANSPORT_CC, VIDEO_NAMES, ingest_plan

RETRY_S: Final = (0.5, 1.0, 2.0)
"""Retry while no publisher is connected or the engine restarts. Short, because the first frame waits for it."""
HTTP_TIMEOUT_S: Final = 8.0
log = structlog.get_logger()


def offered_sections() -> list[LocalSection]:
    """The sections we offer: H.264 in all profiles, VP8, Opus. Not VP9 or AV1, which the forwarder cannot parse.

    PCMU is offered but not used: MediaMTX adds a silent PCMU track to a stream without audio, and refuses an offer
    whose audio m-line lacks it.
    """
    video: list[Codec] = []
    feedback = [*FEEDBACK, TRANSPORT_CC]
    names = [("H264", profile) for profile in ("42e01f", "42001f", "4d001f", "64001f")] + [("VP8", "")]
    for index, (name, profile) in enumerate(names):
        number = 96 + 2 * index
        fmtp = (
            {"profile-level-id": profile, "packetization-mode": "1", "level-asymmetry-allowed": "1"} if profile else {}
        )
        video.append(Codec(payload_type=number, name=name, clock_rate=90_000, parameters=fmtp, feedback=feedback))
        video.append(Codec(payload_type=number + 1, name="RTX", clock_rate=90_000, parameters={"apt": str(number)}))
    audio = [
        Codec(payload_type=111, name="OPUS", clock_rate=48_000, channels=2),
        Codec(payload_type=0, name="PCMU", clock_rate=8_000),
    ]
    return [
        LocalSection(kind="video", mid="0", direction="recvonly", codecs=video, extensions={EXTENSION_URI: 3}),
        LocalSection(kind="audio", mid="1", direction="recvonly", codecs=audio),
    ]


@final
class WhepReader:
    """Keeps one input connected to a WHEP endpoint until cancelled.

    Args:
        source: {url, headers} of the endpoint.
        on_gap: Called when packets are missing, so that retransmission is requested in time.
    """

    def __init__(
        self,
        live: LiveInput,
        source: Header,
        options: Options,
        *,
        certificates: Certificates,
        random32: Callable[[], int],
        mono_ms: Callable[[], float],
        on_gap: Callable[[], None],
    ) -> None:
        self._live = live
        self._url = str(source["url"])
        self._headers = {str(name): str(value) for name, value in source.get("headers", {}).items()}
        self._options = options
        self._certificates = certificates
        self._random32 = random32
        self._mono_ms = mono_ms
        self._on_gap = on_gap

    async def run(self) -> None:
        """Read, and reconnect whenever the connection ends."""
        failures = 0
        async with httpx.AsyncClient(timeout=HTTP_TIMEOUT_S, follow_redirects=True) as http:
            while True:
                try:
                    await self._read_once(http)
                    failures = 0
                except (httpx.HTTPError, SdpError, OSError) as error:
                    if failures == 0:
                        log.warning("media_reader_failed", session_id=self._live.session_id, error=str(error)[:200])
                await asyncio.sleep(RETRY_S[min(failures, len(RETRY_S) - 1)])
                failures += 1

    async def _read_once(self, http: httpx.AsyncClient) -> None:
        """One WHEP session, from the offer to its end."""
        closed = asyncio.Event()
        ingest: Ingest | None = None

        def on_packet(data: bytes, rtcp: bool, arrived_ms: float) -> None:
            if ingest is not None:
                ingest.on_packet(data, rtcp, arrived_ms, late_ms=self._mono_ms() - arrived_ms)
                if ingest.has_gap:
                    self._on_gap()

        def on_connected() -> None:
            if ingest is not None:
                self._live.publisher_connected("reader", ingest)

        def on_closed(reason: str) -> None:
            if ingest is not None:
                self._live.publisher_closed(ingest, reason)
            closed.set()

        peer = RtcPeer(
            net=replace(self._options.net, private_candidates=True),  # the engine is configured, not a stranger
            certificates=self._certificates,
            prefer=urlsplit(self._url).hostname or "",
            controlling=True,
            publishes=True,
            on_packet=on_packet,
            on_connected=on_connected,
            on_closed=on_closed,
        )
        resource: str | None = None
        try:
            local = await peer.gather("actpass")
            offer = build(offered_sections(), local, session_number=self._random32())
            headers = {**self._headers, "Content-Type": "application/sdp"}
            reply = await http.post(self._url, content=offer, headers=headers)
            if reply.status_code in (404, 409):
                return  # no publisher is connected yet
            if reply.status_code not in (200, 201):
                raise OSError(f"the engine answered {reply.status_code}: {reply.text[:100]}")
            if "location" in reply.headers:  # go2rtc sends no Location: its sessions end with their media
                resource = urljoin(str(reply.url), reply.headers["location"])
            answer = parse(reply.content)
            video = next((one for one in answer.sections if one.kind == "video" and one.port), None)
            if video is None:
                raise SdpError("the engine sends no video")
            chosen = [codec for codec in video.codecs if codec.name in VIDEO_NAMES]
            opus = [c for one in answer.sections if one.kind == "audio" and one.port for c in one.codecs]
            ingest = Ingest(
                ingest_plan(video, chosen, next((codec for codec in opus if codec.name == "OPUS"), None)),
                ssrc=self._random32(),
                bitrate_max_bps=self._options.publish_bitrate_max_bps,
                on_frame=self._live.on_frame,
                on_audio=self._live.on_audio,
            )
            ingest.peer = peer
            role = "server" if transport_section(answer).setup == "active" else "client"
            await peer.connect(answer, role=role, handshake_ms=self._options.handshake_ms)
            await closed.wait()
        finally:
            peer.close("reader stops")
            if resource is not None:
                with contextlib.suppress(httpx.HTTPError):
                    await http.delete(resource, headers=self._headers)
