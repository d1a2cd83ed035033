"""The one map from what went wrong to what is answered: code, status, message, headers.

Whatever a handler raises ends here. Nothing of an unexpected exception reaches the answer.
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, final

import orjson

from sightline.domain.errors import (
    AuthzUnavailableError,
    OutcomeUnknownError,
    RefusedError,
    UnavailableError,
    VideoUnavailableError,
)
from sightline.domain.refusal import Code, Refusal
from sightline.domain.value import Value
from sightline.http.pipeline.envelope import failure
from sightline.http.server import Fault, Headers, RenderedFault
from sightline.ports.clock import Clock
from sightline.ports.ids import Ids

NOT_A_PAGE: Final = b"default-src 'none'; frame-ancestors 'none'"
"""Content-Security-Policy of responses that are not pages."""
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}\Z", re.ASCII)


@final
class ErrorSpec(Value):
    """The fixed part of a code."""

    status: int
    message: str


ERRORS: Final[Mapping[Code, ErrorSpec]] = MappingProxyType(
    {
        Code.INVALID_INPUT: ErrorSpec(400, "Invalid request payload"),
        Code.NOT_AUTHENTICATED: ErrorSpec(401, "Session expired or missing"),
        Code.REVOKED_API_KEY: ErrorSpec(401, "API key has been revoked"),
        Code.INSUFFICIENT_CREDIT: ErrorSpec(402, "Insufficient credit"),
        Code.PAYMENT_REQUIRED: ErrorSpec(402, "Payment required"),
        Code.NOT_AUTHORIZED: ErrorSpec(403, "Not authorized for this operation"),
        Code.NOT_OPERATOR: ErrorSpec(403, "Caller is not an operator"),
        Code.NOT_FOUND: ErrorSpec(404, "Resource not found"),
        Code.SESSION_NOT_FOUND: ErrorSpec(404, "Session not found"),
        Code.FRAME_NOT_AVAILABLE: ErrorSpec(404, "No frame is available yet"),
        Code.INVALID_STATE: ErrorSpec(409, "Operation not allowed in the current state"),
        Code.CONFLICT: ErrorSpec(409, "Conflicts with an existing resource"),
        Code.RATE_LIMITED: ErrorSpec(429, "Too many requests"),
        Code.INTERNAL_ERROR: ErrorSpec(500, "Internal error"),
        Code.AUTHZ_ERROR: ErrorSpec(503, "Authorization service unavailable"),
        Code.VIDEO_ERROR: ErrorSpec(503, "Video service unavailable"),
        Code.UNAVAILABLE: ErrorSpec(503, "Service unavailable"),
        Code.OUTCOME_UNKNOWN: ErrorSpec(504, "The outcome is not known; repeat with the same Idempotency-Key"),
    }
)


STATED: Final = frozenset(ERRORS) - {
    Code.REVOKED_API_KEY,
    Code.INSUFFICIENT_CREDIT,
    Code.PAYMENT_REQUIRED,
    Code.FRAME_NOT_AVAILABLE,
    Code.RATE_LIMITED,
    Code.INTERNAL_ERROR,
    Code.UNAVAILABLE,
    Code.OUTCOME_UNKNOWN,
}
"""Codes whose message the interface states. It is always sent as stated; what helps more is the `hint`."""


@final
class ApiError(Exception):
    """An answer that is an error. `status` may differ from the code's own (405, 413, 415).

    `message` says what is wrong and what to do. For codes whose message the interface states it becomes the hint.
    """

    def __init__(
        self,
        code: Code,
        detail: str | None = None,
        message: str | None = None,
        *,
        status: int | None = None,
        retry_after_s: int | None = None,
        headers: Headers | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        spec = ERRORS[code]
        super().__init__(f"{code} {detail}")
        self.code = code
        self.detail = detail
        is_stated = code in STATED
        self.message = spec.message if is_stated or message is None else message
        self.hint = message if is_stated and message != spec.message else None
        self.status = status or spec.status
        self.headers = list(headers or [])
        self.extra = extra or {}
        if self.status == 401:
            self.headers.append((b"www-authenticate", b"Bearer"))
        if retry_after_s is None and self.status in (429, 503):
            retry_after_s = 1
        if retry_after_s is not None:
            self.headers.append((b"retry-after", b"%d" % retry_after_s))

    def body(self, at_ms: int) -> bytes:
        """The error envelope."""
        return failure({"statusCode": self.status, **self.fields()}, at_ms)

    def oauth_body(self) -> bytes:
        """The error in the form of OAuth (RFC 6749, section 5.2)."""
        names = {500: "server_error", 429: "temporarily_unavailable", 503: "temporarily_unavailable"}
        said = f"{self.message} ({self.detail})" if self.detail is not None else self.message
        return orjson.dumps({"error": names.get(self.status, "invalid_request"), "error_description": said})

    def fields(self) -> dict[str, object]:
        """What the envelope says of the error, beside its status and timestamp."""
        detail = {} if self.detail is None else {"detail": self.detail}
        hint = {} if self.hint is None else {"hint": self.hint}
        return {"code": self.code, "message": self.message, **detail, **hint, **self.extra}


def refused(refusal: Refusal) -> ApiError:
    """The error that answers a refusal."""
    extra = {
        "state": refusal.state,
        "requiredScope": refusal.required_scope,
        "lastSequence": refusal.last_sequence,
        "remainingMicroUsdc": None if refusal.left_micro is None else str(refusal.left_micro),
    }
    return ApiError(
        refusal.code,
        refusal.detail,
        refusal.message,
        retry_after_s=refusal.retry_after_s,
        extra={name: value for name, value in extra.items() if value is not None},
    )


def to_api_error(error: BaseException, *, is_read: bool) -> ApiError | None:
    """Map an exception of a handler to an API error; None if it is not an expected one.

    An exception group (from a nursery) is mapped by its most specific member. A read with an unknown outcome had no
    effect, so it is reported as unavailable.
    """
    if isinstance(error, BaseExceptionGroup):
        mapped = [to_api_error(member, is_read=is_read) for member in error.exceptions]
        return next((each for each in mapped if each is not None), None) if all(mapped) else None
    match error:
        case ApiError():
            return error
        case RefusedError(refusal=refusal):
            return refused(refusal)
        case AuthzUnavailableError(retry_after_s=seconds):
            return ApiError(Code.AUTHZ_ERROR, retry_after_s=seconds)
        case VideoUnavailableError(retry_after_s=seconds):
            return ApiError(Code.VIDEO_ERROR, retry_after_s=seconds)
        case UnavailableError(retry_after_s=seconds):
            return ApiError(Code.UNAVAILABLE, retry_after_s=seconds)
        case OutcomeUnknownError():
            return ApiError(Code.UNAVAILABLE) if is_read else ApiError(Code.OUTCOME_UNKNOWN)
        case _:
            return None


def request_id_of(sent: str | None, ids: Ids) -> str:
    """The caller's own request id if it is well formed, else a new one."""
    return sent if sent is not None and _REQUEST_ID.match(sent) else ids.uuid()


def default_headers(strict_transport_s: int | None) -> Headers:
    """Headers of every answer.

    Source: RFC 6797 (Strict-Transport-Security). Without includeSubDomains: this server decides for its own host only.
    """
    headers: Headers = [
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"x-frame-options", b"DENY"),
        (b"content-security-policy", NOT_A_PAGE),
    ]
    if strict_transport_s is not None:
        headers.append((b"strict-transport-security", b"max-age=%d" % strict_transport_s))
    return headers


def render_fault(clock: Clock, ids: Ids, strict_transport_s: int | None = None) -> Callable[[Fault], RenderedFault]:
    """How the server words what it refuses by itself."""
    defaults = default_headers(strict_transport_s)

    def render(fault: Fault) -> RenderedFault:
        error = _fault_error(fault)
        sent = fault.request_id.decode("latin-1") if fault.request_id is not None else None
        headers: Headers = [
            (b"content-type", b"application/json"),
            (b"cache-control", b"no-store"),
            (b"x-request-id", request_id_of(sent, ids).encode("ascii")),
            *defaults,
            *error.headers,
        ]
        return RenderedFault(headers, error.body(clock.now_ms()))

    return render


def _fault_error(fault: Fault) -> ApiError:
    if fault.status == 500:
        return ApiError(Code.INTERNAL_ERROR)
    if fault.status == 503:
        return ApiError(Code.UNAVAILABLE, fault.label)
    if fault.status == 403:
        return ApiError(Code.NOT_AUTHORIZED, fault.label)
    too_large = "The body is larger than this server accepts. Send less in one call."
    return ApiError(Code.INVALID_INPUT, fault.label, too_large if fault.status == 413 else None, status=fault.status)
