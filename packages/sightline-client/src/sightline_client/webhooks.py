"""Messages that Sightline sends to webhook endpoints: verification and signing. Pure, but for the clock's default.

Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeAlias

from pydantic import ValidationError

from sightline_client.errors import InvalidArgumentError, WebhookError
from sightline_client.models import Session, Settlement, WalletEvent, Workspace
from sightline_client.runtime import unix_s

Value: TypeAlias = Session | Settlement | WalletEvent | Workspace

SECRET_PREFIX: Final = "whsec_"  # noqa: S105  a public prefix
TOLERANCE_S: Final = 300.0
MODELS: Final[Mapping[str, type[Value]]] = {
    "session": Session,
    "settlement": Settlement,
    "wallet": WalletEvent,
    "workspace": Workspace,
}
"""Model of the data, by the first part of the type."""


@dataclass(frozen=True, slots=True)
class WebhookEvent:
    """One verified message.

    Attributes:
        id: Equal in every attempt, resend and replay. Ignore an id that you have handled.
        type: For example `session.live`.
        timestamp: When it happened.
        value: The object as it was stored with the event; None for a ping, or a type of a newer server.
        data: The same as JSON, with `sequence`: ignore an event below the last one that you have for that object.
    """

    id: str
    type: str
    timestamp: datetime
    value: Value | None
    data: dict[str, Any] = field(repr=False)


def verify(
    body: bytes | str,
    headers: Mapping[str, str],
    secret: str,
    *,
    tolerance_s: float = TOLERANCE_S,
    now_s: float | None = None,
) -> WebhookEvent:
    """Check the signature and the age of a message, and return its event.

    Args:
        body: The body exactly as it was received: JSON that was parsed and written again has another signature.
        headers: The headers of the request; names in any case.
        secret: The endpoint's secret, `whsec_...`. Whitespace around it, as of a file, is left out.
        tolerance_s: How many seconds the message's time may differ from the clock of this machine.
        now_s: Unix time in seconds; default: the clock.

    Raises:
        WebhookError: The message is not from Sightline, was changed, or is too old. Answer 401.
        InvalidArgumentError: The secret is malformed.
    """
    raw = body.encode() if isinstance(body, str) else body
    found = {name.lower(): value for name, value in headers.items()}
    try:
        message_id, timestamp = found["webhook-id"], found["webhook-timestamp"]
        signatures, sent_s = found["webhook-signature"].split(), int(timestamp)
    except (KeyError, ValueError):
        raise WebhookError(
            "the headers webhook-id, webhook-timestamp and webhook-signature are missing or malformed"
        ) from None
    if abs((unix_s() if now_s is None else now_s) - sent_s) > tolerance_s:
        raise WebhookError(f"its time differs by more than {tolerance_s:g} s from the clock of this machine")
    expected = _signature(message_id, timestamp, raw, secret).encode()
    if not any(hmac.compare_digest(expected, each.encode()) for each in signatures):
        raise WebhookError("no signature matches. Pass the raw body, and the secret of this endpoint")
    return _event(message_id, raw)


def _signature(message_id: str, timestamp: str, body: bytes, secret: str) -> str:
    try:
        key = base64.b64decode(secret.strip().removeprefix(SECRET_PREFIX), validate=True)
    except ValueError:
        raise InvalidArgumentError(
            "The secret of the webhook is not one: it is whsec_ and base64 text. Check WEBHOOK_SECRET, or "
            "what is passed."
        ) from None
    mac = hmac.digest(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256)
    return "v1," + base64.b64encode(mac).decode()


def signed_headers(message_id: str, body: bytes, secret: str, *, now_s: float | None = None) -> dict[str, str]:
    """Return the headers of a signed message, as the server sends them. For tests of a receiver.

    Raises:
        InvalidArgumentError: The secret is malformed.
    """
    timestamp = str(int(unix_s() if now_s is None else now_s))
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": _signature(message_id, timestamp, body, secret),
    }


def _event(message_id: str, raw: bytes) -> WebhookEvent:
    try:
        message = json.loads(raw)
        kind, data = str(message["type"]), dict(message["data"])
        model = MODELS.get(kind.partition(".")[0])
        value = None if model is None else model.model_validate(data)
        return WebhookEvent(message_id, kind, datetime.fromisoformat(message["timestamp"]), value, data)
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise WebhookError("its body is not an event of Sightline") from error
