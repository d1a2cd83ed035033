"""Cloudflare Stream live inputs: created and deleted by its API, presence by its signed notifications.

A live input's publish URL is a secret: only the operator receives it, and it is never logged. After a restart inputs
are found by the name that Sightline gave them, so nothing is stored here.
"""

import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, final
from urllib.parse import quote

import orjson
import structlog

from sightline.domain.access import Holder
from sightline.domain.errors import VideoUnavailableError
from sightline.domain.value import Value, hiding
from sightline.ports.video import VideoInput
from sightline.video.external.calls import call_engine, object_of
from sightline.video.external.engine import EngineInput, PresenceReport
from sightline.video.tokens import ref_of

TIMEOUT_S: Final = 10.0
ENGINE: Final = "Cloudflare"
API_URL: Final = "https://api.cloudflare.com/client/v4"
PRESENCE: Final = {
    "live_input.connected": True,
    "live_input.disconnected": False,
    "live_input.errored": False,
}
log = structlog.get_logger()


@final
class CloudflareOptions(Value, kw_only=True):
    """An account's access to Stream."""

    account_id: str
    api_token: str
    """Needs the Stream edit permission."""
    webhook_secret: str = ""
    """The secret of the notification destination, sent back in cf-webhook-auth."""
    api_url: str = API_URL

    __repr__ = hiding("api_token", "webhook_secret")


@final
class Notification(Value, kw_only=True):
    """What a notification says about one of our inputs."""

    session_id: str
    uid: str
    connected: bool
    at_ms: int


@final
class Cloudflare:
    """Implements `Engine` on Cloudflare Stream."""

    name = "cloudflare"

    def __init__(self, options: CloudflareOptions) -> None:
        self._options = options
        self._inputs: dict[str, tuple[str, VideoInput]] = {}  # session id -> (uid, input)
        self._told_ms: dict[str, int] = {}  # uid -> time of its newest notification

    def describe(self, session_id: str) -> VideoInput | None:
        """Known once `open` has asked the API."""
        known = self._inputs.get(session_id)
        return known[1] if known is not None else None

    def session_of(self, ref: str) -> str | None:
        """The session of an open input."""
        return next((session for session, (_, one) in self._inputs.items() if one.ref == ref), None)

    async def open(self, session_id: str) -> EngineInput:
        """Find the live input of the session by its name, or create it."""
        if session_id not in self._inputs:
            name = ref_of(session_id)
            try:
                self._inputs[session_id] = await self._find_or_make(name)
            except (KeyError, TypeError, AttributeError) as error:
                raise VideoUnavailableError(
                    f"{ENGINE} answered a live input of another form than documented"
                ) from error
        described = self._inputs[session_id][1]
        return EngineInput(input=described, read_url=described.whep_url)

    async def _find_or_make(self, name: str) -> tuple[str, VideoInput]:
        listing = await self._ask("GET", "/live_inputs")
        rows = listing.get("liveInputs", []) if isinstance(listing, dict) else listing
        uid = next((row["uid"] for row in rows if row.get("meta", {}).get("name") == name), None)
        if uid is None:
            made = await self._ask("POST", "/live_inputs", {"meta": {"name": name}, "recording": {"mode": "off"}})
        else:
            made = await self._ask("GET", f"/live_inputs/{quote(str(uid), safe='')}")
        whip_url, whep_url = str(made["webRTC"]["url"]), str(made["webRTCPlayback"]["url"])
        return str(made["uid"]), VideoInput(ref=name, whip_url=whip_url, whep_url=whep_url)

    async def close(self, session_id: str) -> None:
        """Delete the live input, which disconnects all peers."""
        known = self._inputs.pop(session_id, None)
        if known is not None:
            self._told_ms.pop(known[0], None)
            try:
                await self._ask("DELETE", f"/live_inputs/{quote(known[0], safe='')}")
            except VideoUnavailableError:
                self._inputs[session_id] = known
                raise

    async def watch(self, report: PresenceReport) -> None:
        """Do nothing: presence comes by notification and from the reader."""
        del report

    def whep_url_for(self, whep_url: str, holder: Holder) -> str:
        """The URL as it is: Cloudflare's play URLs admit everybody who knows them."""
        del holder
        return whep_url

    async def end_withdrawn_viewers(self) -> None:
        """Do nothing: the API has no viewers."""

    async def hook(self, headers: Mapping[str, str], body: bytes, report: PresenceReport) -> int:
        """Handle a notification. A valid one without relevant content is accepted too."""
        if not self._is_signed(headers):
            return 401
        told = self.read_notification(headers, body)
        if told is not None and told.at_ms > self._told_ms.get(told.uid, 0):
            # An older one was delivered late or again: it says nothing about the present.
            self._told_ms[told.uid] = told.at_ms
            report(told.session_id, told.connected, told.at_ms)
        return 200

    def _is_signed(self, headers: Mapping[str, str]) -> bool:
        given, expected = headers.get("cf-webhook-auth", ""), self._options.webhook_secret
        return bool(expected) and hmac.compare_digest(given.encode(), expected.encode())

    def read_notification(self, headers: Mapping[str, str], body: bytes) -> Notification | None:
        """Verify and parse a notification; None for one that is forged, unknown or not relevant.

        Args:
            headers: With lower-case names.
        """
        if not self._is_signed(headers):
            return None
        try:
            data = orjson.loads(body)["data"]
            connected = PRESENCE[data["event_type"]]
            at = datetime.fromisoformat(data["updated_at"])
            at_ms = int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
            uid = data["input_id"]
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, OverflowError):
            return None
        session_id = next((session for session, (known, _) in self._inputs.items() if known == uid), None)
        if session_id is None:
            return None
        return Notification(session_id=session_id, uid=uid, connected=connected, at_ms=at_ms)

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        url = f"{self._options.api_url}/accounts/{self._options.account_id}/stream{path}"
        headers = {"Authorization": f"Bearer {self._options.api_token}"}
        status, content = await call_engine(ENGINE, method, url, timeout_s=TIMEOUT_S, headers=headers, body=body)
        if method == "DELETE" and status in (200, 204, 404):
            return None
        if status == 429 or status >= 500:
            raise VideoUnavailableError(f"{ENGINE} answered {status}", retry_after_s=5)
        answer = object_of(ENGINE, content)
        if answer.get("success") is not True:
            errors = answer.get("errors")
            codes = [str(error.get("code")) for error in errors or () if isinstance(error, dict)]
            raise VideoUnavailableError(f"{ENGINE} refused: {', '.join(codes) or status}")
        return answer.get("result")
