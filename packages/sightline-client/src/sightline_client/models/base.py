"""Base of the models: camelCase on the wire, unknown fields kept, unknown enumeration values accepted."""

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer
from pydantic.alias_generators import to_camel

from sightline_client.money import MicroUsdc

Money = MicroUsdc


def _as_sent(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


Time = Annotated[datetime, PlainSerializer(_as_sent, when_used="json")]
"""An instant with time zone. In JSON it has the form of the HTTP interface: UTC, milliseconds."""
Secret = Annotated[str, Field(repr=False)]
"""Text that gives access. It is left out of repr()."""


class Model(BaseModel):
    """A value that the server returned.

    Fields that this version does not know are kept in `model_extra`. Nullable fields that an older server does not send
    are None.
    """

    model_config = ConfigDict(frozen=True, extra="allow", alias_generator=to_camel, populate_by_name=True)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        # Unknown fields are left out: one could be a secret of a newer server.
        known = type(self).model_fields
        return [(name, value) for name, value in super().__repr_args__() if name in known]


class OpenEnum(StrEnum):
    """An enumeration that accepts new values of a newer server: they compare equal to their text."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        member = str.__new__(cls, value)
        member._name_ = value
        member._value_ = value
        return member


class Role(OpenEnum):
    """What a workspace does."""

    CONSUMER = "CONSUMER"
    SUPPLIER = "SUPPLIER"


class MemberStatus(OpenEnum):
    """Whether a wallet is a member already."""

    ACTIVE = "ACTIVE"
    INVITED = "INVITED"


class MemberRole(OpenEnum):
    """Role of a wallet in a workspace."""

    OWNER = "OWNER"
    ADMIN = "ADMIN"
    VIEWER = "VIEWER"


class Availability(OpenEnum):
    """Whether an operator gets sessions."""

    ONLINE = "ONLINE"
    OFFLINE = "OFFLINE"
    BUSY = "BUSY"


class DeviceKind(OpenEnum):
    """Kind of an operator's device."""

    PHONE = "PHONE"
    LAPTOP = "LAPTOP"
    DRONE = "DRONE"
    PTZ = "PTZ"
    FIXED = "FIXED"
    OTHER = "OTHER"


class Scope(OpenEnum):
    """What an API key may do."""

    SESSIONS_READ = "sessions:read"
    SESSIONS_CREATE = "sessions:create"
    SESSIONS_OPERATE = "sessions:operate"
    PRICING_READ = "pricing:read"
    WALLET_READ = "wallet:read"
    OPERATORS_WRITE = "operators:write"
    COVERAGE_WRITE = "coverage:write"
    WEBHOOKS_WRITE = "webhooks:write"


class Environment(OpenEnum):
    """Whether a key spends test money."""

    TEST = "TEST"
    LIVE = "LIVE"


class SessionState(OpenEnum):
    """State of a session."""

    REQUESTED = "REQUESTED"
    ASSIGNED = "ASSIGNED"
    LIVE = "LIVE"
    ENDED = "ENDED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"

    @property
    def is_over(self) -> bool:
        """Whether the session cannot change any more."""
        return self not in ("REQUESTED", "ASSIGNED", "LIVE")


class EndReason(OpenEnum):
    """Why a session is over."""

    CONSUMER_ENDED = "CONSUMER_ENDED"
    OPERATOR_ENDED = "OPERATOR_ENDED"
    MAX_DURATION = "MAX_DURATION"
    LOCATION_STALE = "LOCATION_STALE"
    GEOFENCE_EXIT = "GEOFENCE_EXIT"
    MEDIA_LOST = "MEDIA_LOST"
    FUNDS_LOST = "FUNDS_LOST"
    CONSUMER_LOST = "CONSUMER_LOST"
    PLATFORM_ENDED = "PLATFORM_ENDED"
    CONSUMER_CANCELLED = "CONSUMER_CANCELLED"
    OPERATOR_CANCELLED = "OPERATOR_CANCELLED"
    WAIT_TIMEOUT = "WAIT_TIMEOUT"
    START_TIMEOUT = "START_TIMEOUT"


class EventKind(OpenEnum):
    """Kind of a recorded event of a session."""

    CREATED = "CREATED"
    ASSIGNED = "ASSIGNED"
    REOPENED = "REOPENED"
    STARTED = "STARTED"
    PAUSED = "PAUSED"
    RESUMED = "RESUMED"
    EXTENDED = "EXTENDED"
    MESSAGE = "MESSAGE"
    MEDIA_LOST = "MEDIA_LOST"
    ENDED = "ENDED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"
    SETTLED = "SETTLED"


class RefusedFor(OpenEnum):
    """Why the contract or the token refused a payment."""

    ALLOWANCE = "ALLOWANCE"
    BALANCE = "BALANCE"
    SESSION_LIMIT = "SESSION_LIMIT"
    DAY_LIMIT = "DAY_LIMIT"
    OTHER = "OTHER"


class FrameSigning(OpenEnum):
    """When frames and clips have content credentials."""

    OFF = "off"
    REQUEST = "request"
    ALWAYS = "always"


class CredentialKind(OpenEnum):
    """What a call was made with."""

    WALLET = "WALLET"
    API_KEY = "API_KEY"


class MeterState(OpenEnum):
    """Whether seconds are counted."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class PauseReason(OpenEnum):
    """Why the meter is paused."""

    LOCATION_STALE = "LOCATION_STALE"
    GEOFENCE_EXIT = "GEOFENCE_EXIT"
    MEDIA_LOST = "MEDIA_LOST"


class FundsState(OpenEnum):
    """Where the amount of a session in escrow is."""

    RESERVED = "RESERVED"
    HELD = "HELD"
    RELEASED = "RELEASED"
    SETTLED = "SETTLED"


class SettlementState(OpenEnum):
    """State of a payment."""

    NOT_READY = "NOT_READY"
    PENDING = "PENDING"
    CONFIRMED = "CONFIRMED"


class WalletEventKind(OpenEnum):
    """Kind of a movement on the chain."""

    DEPOSIT = "DEPOSIT"
    WITHDRAWAL = "WITHDRAWAL"
    APPROVAL = "APPROVAL"
    SETTLEMENT = "SETTLEMENT"
    TRANSFER_IN = "TRANSFER_IN"
    TRANSFER_OUT = "TRANSFER_OUT"
