"""Values in the form that the interface expects."""

import re
from datetime import UTC, datetime

from sightline_client.errors import InvalidIdError
from sightline_client.models import ApiKeyLimits

ID = re.compile(r"[A-Za-z0-9_-]{1,128}", re.ASCII)


def segment(value: str) -> str:
    """Return an id or address as one segment of a path.

    Raises:
        InvalidIdError: It is none. It could name another path, such as `../wallet`.
    """
    if not ID.fullmatch(value):
        raise InvalidIdError(value)
    return value


def given(**fields: object) -> dict[str, object]:
    """Leave out the fields that are None; instants become ISO 8601 in UTC with milliseconds."""
    return {name: _wire(value) for name, value in fields.items() if value is not None}


def _wire(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value


def wire_limits(limits: ApiKeyLimits) -> dict[str, str]:
    """Spending limits as decimal text; those that are None are left out."""
    amounts = {"perSessionMicroUsdc": limits.per_session_micro_usdc, "perDayMicroUsdc": limits.per_day_micro_usdc}
    return {name: str(amount) for name, amount in amounts.items() if amount is not None}
