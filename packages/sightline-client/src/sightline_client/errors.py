"""Errors of the client. Each message ends with the next step.

SightlineError
├── ApiError                        the server refused the call; the call had no effect
│   ├── InvalidInputError           400 INVALID_INPUT
│   ├── NotAuthenticatedError       401 NOT_AUTHENTICATED
│   │   └── RevokedApiKeyError      401 REVOKED_API_KEY
│   ├── InsufficientCreditError     402 INSUFFICIENT_CREDIT
│   ├── NotAuthorizedError          403 NOT_AUTHORIZED
│   │   └── NotOperatorError        403 NOT_OPERATOR
│   ├── NotFoundError               404 NOT_FOUND
│   │   ├── SessionNotFoundError    404 SESSION_NOT_FOUND
│   │   └── FrameNotAvailableError  404 FRAME_NOT_AVAILABLE
│   ├── ConflictError               409 CONFLICT
│   ├── InvalidStateError           409 INVALID_STATE
│   ├── RateLimitedError            429 RATE_LIMITED
│   ├── InternalError               500 INTERNAL_ERROR
│   └── UnavailableError            503 UNAVAILABLE, AUTHZ_ERROR, VIDEO_ERROR
├── ClientClosedError               the client was closed before the call; nothing was sent
├── OutcomeUnknownError             504 OUTCOME_UNKNOWN or a lost connection: the call may have had its effect
├── NotReachedError                 no connection to the server; the call had no effect
├── InvalidResponseError            the answer is not that of a Sightline server
├── InvalidArgumentError            an argument cannot be used; nothing was sent. It is a ValueError too
│   └── InvalidIdError              an id has not the form of one
├── MaxChargeError                  the price exceeds max_charge; nothing was requested
├── NoOperatorError                 no operator was available in time; the session was cancelled
├── SessionOverError                the session is over: it never became LIVE, or has no more frames
├── EndNotConfirmedError            leaving a view could not confirm that its session ended
├── ViewNotEnteredError             the view has no session yet. It is a RuntimeError too
├── ReceiptError                    a receipt is not available yet, or a value of it is wrong
├── WebhookError                    a webhook is not from Sightline, was changed, or is too old
├── ChainError                      the JSON-RPC endpoint refused a call, or a transaction failed
└── MissingExtraError               an optional dependency is not installed
"""

import ssl
from collections.abc import Mapping
from decimal import Decimal
from typing import ClassVar, Final

from sightline_client.verification import Verification
from sightline_client.wording import ENDED

SUSPENDED: Final = "workspace:suspended"
"""Detail of the refusal of every call of a workspace that the administrators of the service have suspended."""
NEW_QUOTE = "Get a new quote: each is for one session, and valid for 120 s."
DEVICE_SCOPES: Final = "apiKey:deviceScopes"
NEXT_STEPS: Mapping[str, str] = {
    DEVICE_SCOPES: "`sightline keys mint NAME`, in the operator's workspace, mints a key with all that a device needs.",
    "pricing:quoteConsumed": NEW_QUOTE,
    "pricing:quoteExpired": NEW_QUOTE,
    "pricing:quoteMismatch": "Get a quote for what is requested, or request what the quote is for.",
    "auth:credential": "Check key= or SIGHTLINE_API_KEY: this server does not know it; `sightline login` mints a key.",
    "route:unknown": "Check url= or SIGHTLINE_URL: it is the address of the server without a path.",
    "session:consent": "Sign the terms again; `sightline mandate` shows the workspace's mandate, or sets another one.",
    "session:funds": "Deposit USDC; without escrow, give the settlement contract an allowance for it too.",
    "wallet:mandate": "`sightline mandate --per-session 1 --per-day 10` sets one.",
    "wallet:unpaid": "`sightline approve` gives the allowance. The charge is then paid by itself.",
    SUSPENDED: "",
    "clip:off": "Fetch frames instead.",
    "clip:signed": "Ask for the clip without signed.",
    "frame:signed": "Ask for frames without signed, or ask the host to set SIGHTLINE_FRAME_SIGNING=request.",
}
"""Next step of a detail, where that of its class does not fit."""
ABOVE_MAXIMUM: Final = "pricing:aboveMaximum"
CLIP_NOT_RECEIVED: Final = "clip:notReceived"
"""Detail of the refusal of a clip before the first video arrives."""


_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
"""What OpenSSL says of an answer in plain HTTP."""


class SightlineError(Exception):
    """Base of all errors that the client raises."""


class ApiError(SightlineError):
    """The server refused the call.

    Attributes:
        status: HTTP status.
        code: Error code of the interface, for example `INVALID_STATE`.
        message: Text of the code.
        hint: What is wrong in this call, and what to do, if the server said more than the message. It may change.
        detail: Stable label `area:what`, if the server gave one.
        request_id: Id of the call in the server's log.
        retry_after_s: Seconds after which the call may be repeated, if the server named them.
        state: Current state of the session, with INVALID_STATE.
        required_scope: Scope that the API key lacks, with NOT_AUTHORIZED.
        last_sequence: Last accepted sequence, if the sequence of a heartbeat is too low.
    """

    next_step: ClassVar[str] = ""

    def __init__(self, status: int, body: Mapping[str, object], headers: Mapping[str, str] | None = None) -> None:
        headers = headers or {}
        self.status = status
        self.code = str(body.get("code", "UNKNOWN"))
        self.message = str(body.get("message", ""))
        self.hint = _text(body.get("hint"))
        self.detail = _text(body.get("detail"))
        self.state = _text(body.get("state"))
        self.required_scope = _text(body.get("requiredScope"))
        last = body.get("lastSequence")
        self.last_sequence = last if isinstance(last, int) else None
        self.request_id = headers.get("x-request-id")
        after = headers.get("retry-after", "")
        self.retry_after_s = int(after) if after.isascii() and after.isdigit() else None
        where = f" ({self.detail})" if self.detail else ""
        said = _sentence(self.hint or self.message)  # the message is that of all refusals with this code
        super().__init__(f"{status} {self.code}{where}: {said} {self._step()}".rstrip())

    def _step(self) -> str:
        if self.required_scope is not None:
            return _step_to_scope(self.required_scope)
        return NEXT_STEPS.get(self.detail or "", self.next_step)


_KEYS_WITH: Final = {
    "pricing:read": "Keys of consumers have it; those of operators film.",
    "sessions:create": "Keys of consumers have it; those of operators film.",
    "sessions:operate": "Keys of operators have it; those of consumers watch.",
}
"""Scopes that the workspaces of one role have."""


def _step_to_scope(required: str) -> str:
    """Say how to get a key with a scope. Alternatives are separated by ` or `: the first one is enough."""
    scope = required.partition(" or ")[0]
    mint = f"`sightline keys mint NAME --scope {scope}` mints one."
    if scope in _KEYS_WITH:
        return f"Use an API key with the scope {required}. {_KEYS_WITH[scope]} In a workspace of theirs, {mint}"
    return f"Use an API key with the scope {required}: {mint}"


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


class InvalidInputError(ApiError):
    """A path, query or body field is invalid."""

    next_step = "Correct the field that is named."


class NotAuthenticatedError(ApiError):
    """The credential is missing, unknown or expired."""

    next_step = "Pass key= or set SIGHTLINE_API_KEY; `sightline login` mints a key."


class RevokedApiKeyError(NotAuthenticatedError):
    """The API key was revoked."""

    next_step = "Mint a new key with `sightline login`."


class InsufficientCreditError(ApiError):
    """Balance, allowance or limits of the wallet do not cover the hold, or a spending limit of the key is reached."""

    next_step = (
        "Deposit USDC, approve the settlement contract, raise the limit of the key or of the wallet, "
        "or request fewer seconds."
    )

    def _step(self) -> str:
        if self.detail == "session:mandate":
            return "`sightline mandate` shows the limits. With the wallet it sets others, whose day has not been used."
        if self.detail == "session:consent":
            return (
                "To sign, pass the wallet of the key's workspace as payer=LocalWallet.from_key(...) to view(); for a "
                "command, set SIGHTLINE_WALLET_KEY to its private key. `sightline mandate --per-session 1 --per-day "
                "10` gives the workspace a mandate, under which its API keys buy without the wallet."
            )
        if self.detail == "apiKey:spendLimit":
            return "Use a key with higher limits, or request fewer seconds."
        return super()._step()


class NotAuthorizedError(ApiError):
    """The credential may not make this call."""

    next_step = "Use a credential whose workspace and role may make this call."


class NotOperatorError(NotAuthorizedError):
    """The call is for a workspace with the role SUPPLIER."""

    next_step = "Use a key of the operator's workspace."


class NotFoundError(ApiError):
    """The path or the resource does not exist."""


class SessionNotFoundError(NotFoundError):
    """The session does not exist, or the workspace is not party to it."""

    next_step = "Check the id, and that the key belongs to a workspace that is party to the session."


class FrameNotAvailableError(NotFoundError):
    """No frame is decoded yet, or the newest one is too old."""

    def _step(self) -> str:
        return "" if self.retry_after_s is None else f"Try again in {self.retry_after_s} s."


class InvalidStateError(ApiError):
    """The current state (`state`) does not allow the call."""

    next_step = "Read the session; its state decides which calls are allowed."

    def _step(self) -> str:
        is_of_session = self.detail is not None and self.detail.startswith("session:")
        if is_of_session and self.state in ("ENDED", "CANCELLED", "EXPIRED"):
            return "The session is over: request another one."
        return super()._step()


class ConflictError(ApiError):
    """The call conflicts with another one, or with a name in use."""


class RateLimitedError(ApiError):
    """Too many calls. The client has already retried."""

    def _step(self) -> str:
        return "Make fewer calls." if self.retry_after_s is None else f"Try again in {self.retry_after_s} s."


class InternalError(ApiError):
    """An error of the server."""

    next_step = "Report it with request_id."


class UnavailableError(ApiError):
    """A dependency of the server, or an operator, is not available. The client has already retried."""

    next_step = "Try again later."


class OutcomeUnknownError(SightlineError):
    """The call may have had its effect: its answer was lost.

    Attributes:
        idempotency_key: Repeat the call with this key to get its answer without a second effect; None if it has none.
        is_repeatable: Whether repeating the call has no second effect.
    """

    def __init__(self, method: str, path: str, idempotency_key: str | None, reason: str) -> None:
        self.idempotency_key = idempotency_key
        self.is_repeatable = idempotency_key is not None or method == "GET"
        if method == "GET":
            super().__init__(f"{method} {path} was not answered ({reason}). Check that the server runs, and ask again.")
            return
        step = "" if idempotency_key is None else f" Repeat it with idempotency_key={idempotency_key!r}."
        super().__init__(f"The answer of {method} {path} was lost ({reason}); its outcome is unknown.{step}")


def is_suspension(error: BaseException) -> bool:
    """Return whether a call was refused because its workspace is suspended. A suspension also ends its sessions."""
    return isinstance(error, ApiError) and error.detail == SUSPENDED


def reason_of(error: BaseException) -> str:
    """Say why a connection failed. A failure of TLS is told by what OpenSSL says, which libraries leave out."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    return str(cause or error) or type(error).__name__


def first_sentence(error: BaseException) -> str:
    """What went wrong, without the steps that follow; the name of the class if an error says nothing."""
    return str(error).partition(". ")[0].rstrip(".") or type(error).__name__


class NotReachedError(SightlineError):
    """No connection to the server could be made. The call had no effect.

    Attributes:
        reason: Why the connection failed.
        is_final: Whether another attempt would fail in the same way.
    """

    def __init__(self, url: str, reason: str, *, is_default: bool = False) -> None:
        self.reason = reason
        self.is_final = url.startswith("https://") and any(sign in reason for sign in _NO_TLS)
        step = "Check url= or SIGHTLINE_URL, and that the server runs."
        if self.is_final:
            reason, step = "it does not speak TLS", f"Check url= or SIGHTLINE_URL: write http://{url[8:]}."
        if is_default:
            step = "This is the default, because SIGHTLINE_URL is not set. Set it to the server's address."
        super().__init__(f"Cannot reach {url}: {reason}. {step}")


class InvalidResponseError(SightlineError):
    """The answer is not that of a Sightline server."""

    def __init__(self, url: str, status: int) -> None:
        super().__init__(f"{url} answered {status} with a body that is not Sightline's. Check url= or SIGHTLINE_URL.")


class InvalidArgumentError(SightlineError, ValueError):
    """An argument of the client cannot be used. Nothing was sent."""


class ClientClosedError(SightlineError):
    """The client was closed before the call. Nothing was sent."""

    def __init__(self) -> None:
        super().__init__(
            "The client is closed. Make the call inside the block of the client; a view's receipt() belongs after the "
            "view's block and inside that of its client."
        )


class InvalidIdError(InvalidArgumentError):
    """An id of a call has not the form of one. Nothing was sent."""

    def __init__(self, value: str, kind: str = "an id") -> None:
        super().__init__(f"{value[:80]!r} is not {kind}. Pass the id as the server returned it.")


_MISTAKEN_FOR_USDC: Final = 100
"""Up to here an amount of micro-USDC, which pays for no second, is probably meant in USDC."""


class MaxChargeError(SightlineError):
    """The price of the requested seconds exceeds `max_charge`. Nothing was requested.

    Attributes:
        affordable_s: Seconds that max_charge pays for at the quoted rate.
    """

    def __init__(self, price: int, max_charge: int, affordable_s: int, *, is_plain: bool = False) -> None:
        """`is_plain`: max_charge is a number that does not say its unit."""
        self.affordable_s = affordable_s
        remedy = f"Request at most {affordable_s} s, or raise max_charge." if affordable_s else "Raise max_charge."
        if is_plain and 0 < max_charge <= _MISTAKEN_FOR_USDC:
            remedy = f'max_charge counts micro-USDC: for {max_charge} USDC pass max_charge=usdc("{max_charge}").'
        shown = [f"{Decimal(amount) / 1_000_000} USDC" for amount in (price, max_charge)]
        super().__init__(f"The price is {shown[0]}, above max_charge {shown[1]}. {remedy}")


class NoOperatorError(SightlineError):
    """No operator was available in time. The session was cancelled; nothing was charged.

    Attributes:
        own_session_id: The caller's running session that has the only operator of the place, as the quote said.
    """

    def __init__(self, lat: float, lng: float, waited_s: float, own_session_id: str | None = None) -> None:
        self.own_session_id = own_session_id
        when = f"within {waited_s:g} s" if waited_s > 0 else "now"
        step = (
            "Choose a place where the quote has available_operators (`sightline quote`), or wait longer "
            "(operator_wait_s)."
            if own_session_id is None
            else f"The only one there is in your session {own_session_id}: end that first (`sightline end "
            f"{own_session_id}`)."
        )
        super().__init__(
            f"No operator was available at {lat}, {lng} {when}. The request was withdrawn and costs nothing. {step}"
        )


class SessionOverError(SightlineError):
    """The session ended before it became LIVE, or by another's doing, or a frame was asked for after its end.

    Attributes:
        session_id: The session.
        state: Final state of the session.
        end_reason: Why it ended.
    """

    def __init__(self, session_id: str, state: str, end_reason: str | None, *, was_live: bool = False) -> None:
        self.session_id = session_id
        self.state = state
        self.end_reason = end_reason
        why = ENDED.get(str(end_reason), "it is over")
        step = (
            f"and has no more frames: {why}. Request another view, and fetch its frames inside of its block."
            if was_live
            else "and never became LIVE. Request it again."
        )
        super().__init__(f"Session {session_id} is {state} ({end_reason}) {step}")


class EndNotConfirmedError(SightlineError):
    """The client could not confirm that a session ended. It may still be charged, at most up to its hold.

    Attributes:
        session_id: The session; None if the answer of its creation was lost too.
        idempotency_key: Key of the creation, if the client has it.
    """

    def __init__(self, session_id: str | None, idempotency_key: str | None, reason: str) -> None:
        self.session_id = session_id
        self.idempotency_key = idempotency_key
        step = (
            f"Call sessions.end({session_id!r}), or run `sightline end {session_id}`, until it answers."
            if session_id is not None
            else f"Repeat sessions.create with idempotency_key={idempotency_key!r}, then end the session."
        )
        super().__init__(f"The end of the session could not be confirmed ({reason}). {step}")


class ViewNotEnteredError(SightlineError, RuntimeError):
    """A view has no session before its block is entered."""

    def __init__(self) -> None:
        super().__init__("The view has no session yet. Enter it first: `with sl.view(...) as view`.")


class ReceiptError(SightlineError):
    """A receipt is not available yet, or a value of it is wrong.

    Attributes:
        failures: The values that are wrong; empty if the receipt is not available yet.
        refused_for: What the wallet lacks for the payment, which was refused: ALLOWANCE, BALANCE, SESSION_LIMIT or
            DAY_LIMIT. None if the payment was not refused for that.
    """

    def __init__(
        self, message: str, verification: Verification | None = None, *, refused_for: str | None = None
    ) -> None:
        self.failures = () if verification is None else verification.failures
        self.refused_for = refused_for
        super().__init__(message)


class WebhookError(SightlineError):
    """A message is not from Sightline, was changed, or is too old. Answer it with 401."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The webhook is refused: {reason}.")


class ChainError(SightlineError):
    """The JSON-RPC endpoint refused a call, or a transaction failed."""


class MissingExtraError(SightlineError):
    """An optional dependency is not installed."""

    def __init__(self, extra: str) -> None:
        super().__init__(f"This needs an optional dependency. Run: pip install 'sightline-client[{extra}]'")


ERRORS: Mapping[str, type[ApiError]] = {
    "INVALID_INPUT": InvalidInputError,
    "NOT_AUTHENTICATED": NotAuthenticatedError,
    "REVOKED_API_KEY": RevokedApiKeyError,
    "INSUFFICIENT_CREDIT": InsufficientCreditError,
    "NOT_AUTHORIZED": NotAuthorizedError,
    "NOT_OPERATOR": NotOperatorError,
    "NOT_FOUND": NotFoundError,
    "SESSION_NOT_FOUND": SessionNotFoundError,
    "FRAME_NOT_AVAILABLE": FrameNotAvailableError,
    "INVALID_STATE": InvalidStateError,
    "CONFLICT": ConflictError,
    "RATE_LIMITED": RateLimitedError,
    "INTERNAL_ERROR": InternalError,
    "AUTHZ_ERROR": UnavailableError,
    "VIDEO_ERROR": UnavailableError,
    "UNAVAILABLE": UnavailableError,
}
"""Class of each error code except OUTCOME_UNKNOWN. An unknown code is an ApiError."""
