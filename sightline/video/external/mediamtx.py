"""MediaMTX: one wildcard path, authorization by its HTTP callback, presence by polling its API.

No path is created per session: changing MediaMTX's path configuration disconnects publishers, and paths created by its
API are not saved. Each session publishes to a path named by its ref, and MediaMTX asks for permission by its callback
(`authorize`). docs/ops/video.md has the settings to copy.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, final
from urllib.parse import parse_qs

import httpx
import orjson
import structlog
import trio

from sightline.domain.errors import VideoUnavailableError
from sightline.ports.clock import Clock
from sightline.ports.video import VideoInput
from sightline.video.external.engine import EngineInput, PresenceReport
from sightline.video.tokens import TokenMint, ref_of, session_of_ref

TIMEOUT_S: Final = 5.0
log = structlog.get_logger()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MediaMtxOptions:
    """Addresses and secret of a MediaMTX server."""

    media_url: str
    """Its WebRTC listener as clients reach it, such as http://media.example:8889, without a trailing slash."""
    api_url: str
    """Its API as this server reaches it, such as http://127.0.0.1:9997."""
    secret: bytes = field(repr=False)
    """The tokens in publish and play URLs derive from it."""
    poll_ms: int = 1_500
    """Interval of polling its API for publishers."""
    page_rows: int = 10_000
    """Rows per page of its API. One page should be enough: a list that changes between two pages can miss a row."""


@final
class MediaMtx:
    """Implements `Engine` on a MediaMTX server."""

    name = "mediamtx"

    def __init__(self, options: MediaMtxOptions, *, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._mint = TokenMint(options.secret)
        self._open: set[str] = set()

    def describe(self, session_id: str) -> VideoInput:
        """The input of a session; pure."""
        ref = ref_of(session_id)
        base = f"{self._options.media_url}/{ref}"
        return VideoInput(
            ref=ref,
            whip_url=f"{base}/whip?token={self._mint.token('whip', session_id)}",
            whep_url=f"{base}/whep?token={self._mint.token('whep', session_id)}",
        )

    def session_of(self, ref: str) -> str | None:
        """The session that a ref names."""
        return session_of_ref(ref)

    async def open(self, session_id: str) -> EngineInput:
        """Allow the session's path, after checking that MediaMTX answers."""
        described = self.describe(session_id)
        await self._get("/v3/paths/list?itemsPerPage=1")
        self._open.add(session_id)
        return EngineInput(input=described, read_url=described.whep_url)

    async def close(self, session_id: str) -> None:
        """Forbid the path and disconnect its sessions."""
        self._open.discard(session_id)
        ref = ref_of(session_id)
        for row in await self._list("webrtcsessions"):
            if row.get("path") == ref:
                await self._ask("POST", f"/v3/webrtcsessions/kick/{row['id']}")

    def authorize(self, body: bytes) -> bool:
        """Answer MediaMTX's HTTP auth callback: may this client publish to, or read, this path?

        Args:
            body: The JSON of the callback: action, path, query, token, and more.
        """
        try:
            asked = orjson.loads(body)
        except orjson.JSONDecodeError:
            return False
        if not isinstance(asked, dict):
            return False
        kind = {"publish": "whip", "read": "whep"}.get(str(asked.get("action")))
        session_id = session_of_ref(str(asked.get("path", "")))
        if kind is None or session_id is None or session_id not in self._open:
            return False
        given = parse_qs(str(asked.get("query", ""))).get("token", [str(asked.get("token", ""))])[0]
        return hmac.compare_digest(given.encode(), self._mint.token(kind, session_id).encode())

    def hook(self, headers: Mapping[str, str], body: bytes, report: PresenceReport) -> int:
        """Answer the auth callback. MediaMTX takes any 20x as permission."""
        del headers, report
        return 200 if self.authorize(body) else 401

    async def watch(self, report: PresenceReport) -> None:
        """Poll the paths: a path that is ready has a publisher."""
        answers = True
        was_ready: set[str] = set()
        while True:
            try:
                ready = {row.get("name") for row in await self._list("paths") if row.get("ready")}
                for session_id in list(self._open):
                    ref = ref_of(session_id)
                    # A path that is removed between two pages moves the others: one of them may be on neither page.
                    is_ready = ref in ready or (ref in was_ready and await self._is_ready(ref))
                    (was_ready.add if is_ready else was_ready.discard)(ref)
                    report(session_id, is_ready, self._clock.now_ms())
                was_ready &= {ref_of(session_id) for session_id in self._open}
                answers = True
            except VideoUnavailableError as error:
                if answers:  # log once per outage, not at every poll
                    log.warning("mediamtx_poll_failed", error=str(error))
                answers = False
            await trio.sleep(self._options.poll_ms / 1000)

    async def _is_ready(self, ref: str) -> bool:
        """Whether one path has a publisher."""
        reply = await self._ask("GET", f"/v3/paths/get/{ref}", may_miss=True)
        return reply.status_code == httpx.codes.OK and bool(reply.json().get("ready"))

    async def _list(self, kind: str) -> list[dict[str, Any]]:
        """All rows of a kind, page after page."""
        rows: list[dict[str, Any]] = []
        page, pages = 0, 1
        while page < pages:
            listing = await self._get(f"/v3/{kind}/list?itemsPerPage={self._options.page_rows}&page={page}")
            rows += listing.get("items", [])
            page, pages = page + 1, int(listing.get("pageCount", 1))
        return rows

    async def _get(self, path: str) -> dict[str, Any]:
        reply = await self._ask("GET", path)
        listing = reply.json()
        return listing if isinstance(listing, dict) else {}

    async def _ask(self, method: str, path: str, *, may_miss: bool = False) -> httpx.Response:
        try:
            async with httpx.AsyncClient(timeout=TIMEOUT_S) as http:
                reply = await http.request(method, self._options.api_url + path)
        except httpx.HTTPError as error:
            raise VideoUnavailableError(f"MediaMTX does not answer: {type(error).__name__}") from error
        if reply.status_code >= 400 and not (reply.status_code == 404 and (may_miss or method == "POST")):
            raise VideoUnavailableError(f"MediaMTX answered {reply.status_code}")
        return reply
