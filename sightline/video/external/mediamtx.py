"""MediaMTX: one wildcard path, authorization by its HTTP callback, presence by polling its API.

No path is created per session: changing MediaMTX's path configuration disconnects publishers, and paths created by its
API are not saved. Each session publishes to a path named by its ref, and MediaMTX asks for permission by its callback
(`hook`). docs/ops/video.md has the settings to copy.
"""

from collections.abc import Mapping
from typing import Any, Final, final
from urllib.parse import parse_qs, quote

import httpx
import orjson
import structlog
import trio

from sightline.domain.access import Holder
from sightline.domain.errors import UnavailableError, VideoUnavailableError
from sightline.domain.value import Value, hiding
from sightline.ports.clock import Clock
from sightline.ports.video import VideoInput, WatchAccess
from sightline.video.external.calls import call_engine, object_of
from sightline.video.external.engine import EngineInput, PresenceReport
from sightline.video.tokens import TokenMint, ref_of, session_of_ref

TIMEOUT_S: Final = 5.0
ENGINE: Final = "MediaMTX"
PAGES_MAX: Final = 100
log = structlog.get_logger()


@final
class MediaMtxOptions(Value, kw_only=True):
    """Addresses and secret of a MediaMTX server."""

    media_url: str
    """Its WebRTC listener as clients reach it, such as http://media.example:8889, without a trailing slash."""
    api_url: str
    """Its API as this server reaches it, such as http://127.0.0.1:9997."""
    secret: bytes
    """The tokens in publish and play URLs derive from it."""
    poll_ms: int = 1_500
    """Interval of polling its API for publishers."""
    recheck_ms: int = 15_000
    """Interval at which the access of its readers is checked again."""
    page_rows: int = 10_000
    """Rows per page of its API. One page should be enough: a list that changes between two pages can miss a row."""

    __repr__ = hiding("secret")


@final
class MediaMtx:
    """Implements `Engine` on a MediaMTX server."""

    name = "mediamtx"

    def __init__(self, options: MediaMtxOptions, *, clock: Clock, access: WatchAccess | None = None) -> None:
        """`access` decides who may watch; without it every valid token may."""
        self._access = access
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
                await self._kick(row)

    def whep_url_for(self, whep_url: str, holder: Holder) -> str:
        """The play URL with a token that names the credential."""
        base, _, token = whep_url.rpartition("=")
        session_id = self._mint.session_of("whep", token)
        return whep_url if session_id is None else f"{base}={self._mint.viewer_token(session_id, holder)}"

    async def hook(self, headers: Mapping[str, str], body: bytes, report: PresenceReport) -> int:
        """Answer the auth callback: may this client publish to, or read, this path?

        Args:
            body: The JSON of the callback: action, path, query, token, and more.

        Returns:
            200 (MediaMTX takes any 20x as permission), 403 for a valid token of an input that is not open on this
            server or whose holder may not watch, 503 if that cannot be read, else 401.
        """
        del headers, report
        token = self._token_of_callback(body)
        if token is None:
            return 401
        if self._mint.session_of("whip", token) in self._open:
            return 200
        if self._mint.session_of("whep", token) not in self._open:
            return 403
        try:
            return 200 if await self._may_watch(token) else 403
        except UnavailableError:
            return 503

    def _token_of_callback(self, body: bytes) -> str | None:
        """The token of a callback, if it is valid for what it asks."""
        try:
            asked = orjson.loads(body)
        except orjson.JSONDecodeError:
            return None
        if not isinstance(asked, dict):
            return None
        kind = {"publish": "whip", "read": "whep"}.get(str(asked.get("action")))
        session_id = session_of_ref(str(asked.get("path", "")))
        if kind is None or session_id is None:
            return None
        given = _token_of(asked) or str(asked.get("token", ""))
        return given if self._mint.session_of(kind, given) == session_id else None

    async def _may_watch(self, token: str) -> bool:
        """Whether the holder of a valid token may watch. One without holder is that of our own reader."""
        holder = self._mint.holder_of(token)
        return holder is None or self._access is None or await self._access.is_allowed(holder)

    async def end_withdrawn_viewers(self) -> None:
        """Check the readers that MediaMTX lists, again and again, and kick those whose access was withdrawn."""
        while self._access is not None:
            await self._access.next_check(self._options.recheck_ms)
            try:
                for row in await self._list("webrtcsessions"):
                    await self._kick_if_withdrawn(row)
            except UnavailableError as error:
                log.warning("viewers_not_checked", error=str(error))

    async def _kick_if_withdrawn(self, row: dict[str, Any]) -> None:
        is_ours = session_of_ref(str(row.get("path", ""))) in self._open
        if is_ours and row.get("state") == "read" and not await self._may_watch(_token_of(row)):
            await self._kick(row)
            log.info("viewers_ended", count=1)

    async def _kick(self, row: dict[str, Any]) -> None:
        await self._ask("POST", f"/v3/webrtcsessions/kick/{quote(str(row.get('id')), safe='')}")

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
        status, content = await self._ask("GET", f"/v3/paths/get/{ref}", may_miss=True)
        return status == httpx.codes.OK and bool(object_of(ENGINE, content).get("ready"))

    async def _list(self, kind: str) -> list[dict[str, Any]]:
        """All rows of a kind, page after page."""
        rows: list[dict[str, Any]] = []
        page, pages = 0, 1
        while page < min(pages, PAGES_MAX):
            listing = await self._get(f"/v3/{kind}/list?itemsPerPage={self._options.page_rows}&page={page}")
            items, pages = listing.get("items", []), listing.get("pageCount", 1)
            if not isinstance(items, list) or not isinstance(pages, int):
                raise VideoUnavailableError(f"{ENGINE} answered a list of another form than documented")
            rows += [row for row in items if isinstance(row, dict)]
            page += 1
        return rows

    async def _get(self, path: str) -> dict[str, Any]:
        _, content = await self._ask("GET", path)
        return object_of(ENGINE, content)

    async def _ask(self, method: str, path: str, *, may_miss: bool = False) -> tuple[int, bytes]:
        status, content = await call_engine(ENGINE, method, self._options.api_url + path, timeout_s=TIMEOUT_S)
        if status >= 400 and not (status == 404 and (may_miss or method == "POST")):
            raise VideoUnavailableError(f"{ENGINE} answered {status}")
        return status, content


def _token_of(row: Mapping[str, Any]) -> str:
    """The token in the query of a client."""
    return parse_qs(str(row.get("query", ""))).get("token", [""])[0]
