"""The internal listener: readiness, metrics, and the video provider's webhooks. Never shown to the outside."""

import hmac
import re
from hashlib import sha256
from typing import Final, final

import orjson
import structlog

from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Code, Refusal
from sightline.http.budgets import RateClass
from sightline.http.pipeline.call import Call, Raw, Reply
from sightline.http.pipeline.errors import ApiError
from sightline.http.pipeline.json_body import parse_json
from sightline.http.pipeline.routes import Route
from sightline.http.schemas.base import iso
from sightline.http.schemas.internal import VideoEventBody
from sightline.http.services import InternalServices
from sightline.ports.store import IdempotencyKey, IdempotencyRecord
from sightline.ports.video import MediaEvent, MediaKind

SIGNATURE_HEADER: Final = "x-svc-signature"
TIMESTAMP_HEADER: Final = "x-svc-timestamp"
"""Epoch seconds, as the signature covers them."""
WEBHOOK_PATH: Final = "/internal/webhooks/video"
_KINDS: Final = {
    "live_input.connected": MediaKind.CONNECTED,
    "live_input.disconnected": MediaKind.DISCONNECTED,
    "live_input.errored": MediaKind.DISCONNECTED,
}
_BAD_SIGNATURE: Final = Refusal(Code.NOT_AUTHENTICATED, "webhook:signature", "The signature does not hold")
_BAD_TIMESTAMP: Final = Refusal(Code.NOT_AUTHENTICATED, "webhook:timestamp", "The timestamp is too far from now")
_SECONDS: Final = re.compile(r"[0-9]{1,12}", re.ASCII)

log = structlog.get_logger()


def webhook_signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """HMAC-SHA-256 over `timestamp.body`, as hex."""
    return hmac.digest(secret, timestamp.encode("ascii") + b"." + body, sha256).hex()


@final
class InternalResources:
    """/readyz, /metrics, /internal/webhooks/video."""

    def __init__(self, services: InternalServices) -> None:
        self._services = services

    @Route("GET", "/readyz", "getReadiness", "internal", "Whether every check passes", rate=RateClass.NONE)
    async def ready(self, _call: Call) -> Reply | Raw:
        """200 when every check passes, else 503; both bodies hold every check with its figures."""
        found = await self._services.readiness()
        checks = {name: {"ok": check.is_ok, "detail": check.detail, **check.figures} for name, check in found.items()}
        failed = [f"{name}: {check.detail}" for name, check in found.items() if not check.is_ok]
        if not failed:
            return Reply({"ready": True, "checks": checks})
        error = ApiError(Code.UNAVAILABLE, "ready:checks", f"Not ready. {' '.join(failed)}", retry_after_s=1)
        body = orjson.loads(error.body(self._services.clock.now_ms())) | {"checks": checks}
        headers = (("content-type", "application/json"), ("retry-after", "1"))
        return Raw(status=error.status, headers=headers, body=orjson.dumps(body))

    @Route(
        "GET",
        "/metrics",
        "getMetrics",
        "internal",
        "Metrics for Prometheus",
        rate=RateClass.NONE,
        media_type="text/plain",
    )
    async def metrics(self, _call: Call) -> Raw:
        """The exposition format, version 0.0.4."""
        content_type = "text/plain; version=0.0.4; charset=utf-8"
        return Raw(headers=(("content-type", content_type),), body=self._services.render_metrics())

    @Route(
        "POST",
        WEBHOOK_PATH,
        "postVideoEvent",
        "internal",
        "An event of the video provider",
        rate=RateClass.NONE,
        raw_body=("application/json",),
        errors=(Code.NOT_AUTHENTICATED,),
        checks_origin=False,
        has_own_credential=True,
    )
    async def video_event(self, call: Call) -> Reply:
        """Apply an event once, as of its time. An unknown reference is not an error."""
        self._verify(call)
        event = VideoEventBody.parse(parse_json(call.raw_body))
        key = IdempotencyKey(
            workspace_id="video",
            method=call.method,
            path=WEBHOOK_PATH,
            key=event.event_id,
            body_hash=sha256(call.raw_body).hexdigest(),
        )
        if await self._services.store.find_idempotent(key) is not None:
            return Reply({"eventId": event.event_id, "applied": False})
        session_id = await self._session_of(event.video_backend_ref)
        now_ms = self._services.clock.now_ms()
        if session_id is not None:
            self._services.forward_media(
                MediaEvent(
                    ref=event.video_backend_ref,
                    session_id=session_id,
                    kind=_KINDS[event.type],
                    at_ms=min(event.occurred_at, now_ms),
                )
            )
        # Recorded after: to take a fact about an instant twice changes nothing, to lose one would.
        await self._services.store.record_idempotent(IdempotencyRecord(key=key, result={}, at_ms=now_ms))
        log.info(
            "video_event_taken",
            event_id=event.event_id,
            type=event.type,
            session_id=session_id,
            occurred_at=iso(event.occurred_at),
        )
        return Reply({"eventId": event.event_id, "applied": session_id is not None})

    def _verify(self, call: Call) -> None:
        timestamp = call.headers.get(TIMESTAMP_HEADER) or ""
        signature = (call.headers.get(SIGNATURE_HEADER) or "").removeprefix("v1=")
        secret = self._services.options.webhook_secret
        if not secret or not _SECONDS.fullmatch(timestamp) or not signature.isascii():
            raise RefusedError(_BAD_SIGNATURE)
        if not hmac.compare_digest(webhook_signature(secret, timestamp, call.raw_body), signature.lower()):
            raise RefusedError(_BAD_SIGNATURE)
        if abs(self._services.clock.now_ms() - int(timestamp) * 1_000) > self._services.options.webhook_skew_ms:
            raise RefusedError(_BAD_TIMESTAMP)

    async def _session_of(self, video_ref: str) -> str | None:
        unfinished = await self._services.store.unfinished_sessions()
        return next((session.id for session in unfinished if session.video_ref == video_ref), None)
