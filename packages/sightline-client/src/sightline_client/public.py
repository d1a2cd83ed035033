"""The public names, which `import sightline_client` offers."""

from sightline_client._async.chain import AsyncChain
from sightline_client._async.client import DEFAULT_URL, AsyncSightline
from sightline_client._async.events import AsyncEvents
from sightline_client._async.frames import AsyncFrames
from sightline_client._async.receipt import AsyncReceipt
from sightline_client._async.view import AsyncView
from sightline_client._sync.chain import Chain
from sightline_client._sync.client import Sightline
from sightline_client._sync.events import Events
from sightline_client._sync.frames import Frames
from sightline_client._sync.receipt import Receipt
from sightline_client._sync.view import View
from sightline_client.clip import Clip
from sightline_client.errors import (
    ApiError,
    ChainError,
    ClientClosedError,
    ConflictError,
    EndNotConfirmedError,
    FrameNotAvailableError,
    InsufficientCreditError,
    InternalError,
    InvalidArgumentError,
    InvalidIdError,
    InvalidInputError,
    InvalidResponseError,
    InvalidStateError,
    MaxChargeError,
    MissingExtraError,
    NoOperatorError,
    NotAuthenticatedError,
    NotAuthorizedError,
    NotFoundError,
    NotOperatorError,
    NotReachedError,
    OutcomeUnknownError,
    RateLimitedError,
    ReceiptError,
    RevokedApiKeyError,
    SessionNotFoundError,
    SessionOverError,
    SightlineError,
    UnavailableError,
    ViewNotEnteredError,
    WebhookError,
)
from sightline_client.event import Event
from sightline_client.frame import Frame, FrameLocation
from sightline_client.money import MicroUsdc, usdc
from sightline_client.retry import NO_RETRY, RetryPolicy
from sightline_client.verification import Failure, ReceiptCheck, SkipReason, TrustedDeployment, Verification
from sightline_client.webhooks import WebhookEvent

__all__ = [
    "DEFAULT_URL",
    "NO_RETRY",
    "ApiError",
    "AsyncChain",
    "AsyncEvents",
    "AsyncFrames",
    "AsyncReceipt",
    "AsyncSightline",
    "AsyncView",
    "Chain",
    "ChainError",
    "ClientClosedError",
    "Clip",
    "ConflictError",
    "EndNotConfirmedError",
    "Event",
    "Events",
    "Failure",
    "Frame",
    "FrameLocation",
    "FrameNotAvailableError",
    "Frames",
    "InsufficientCreditError",
    "InternalError",
    "InvalidArgumentError",
    "InvalidIdError",
    "InvalidInputError",
    "InvalidResponseError",
    "InvalidStateError",
    "MaxChargeError",
    "MicroUsdc",
    "MissingExtraError",
    "NoOperatorError",
    "NotAuthenticatedError",
    "NotAuthorizedError",
    "NotFoundError",
    "NotOperatorError",
    "NotReachedError",
    "OutcomeUnknownError",
    "RateLimitedError",
    "Receipt",
    "ReceiptCheck",
    "ReceiptError",
    "RetryPolicy",
    "RevokedApiKeyError",
    "SessionNotFoundError",
    "SessionOverError",
    "Sightline",
    "SightlineError",
    "SkipReason",
    "TrustedDeployment",
    "UnavailableError",
    "Verification",
    "View",
    "ViewNotEnteredError",
    "WebhookError",
    "WebhookEvent",
    "usdc",
]
