"""Values in the form that the interface expects."""

import re
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from sightline_client.errors import InvalidArgumentError, InvalidIdError
from sightline_client.models import ApiKeyLimits
from sightline_client.runtime import SECONDS_MAX

PAGES = ("api/v1", "console", "docs", "manual", "mcp", "openapi.json")
"""Paths of a server that are not its own URL."""
KEY = re.compile(r"svc_(test|live)_[0-9a-f]{6}_[0-9A-Za-z]{43}", re.ASCII)
"""An API key. The access tokens of OAuth, the keys of views and those of share links have the same form."""
ID = re.compile(r"[A-Za-z0-9_-]{1,128}", re.ASCII)
SESSION_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)


def session_segment(value: str) -> str:
    """Return the id of a session as one segment of a path.

    Raises:
        InvalidIdError: It has not the form of one.
    """
    if not SESSION_ID.fullmatch(value):
        raise InvalidIdError(value, "a session id")
    return value


def segment(value: str) -> str:
    """Return an id or address as one segment of a path.

    Raises:
        InvalidIdError: It is none. It could name another path, such as `../wallet`.
    """
    if not ID.fullmatch(value):
        raise InvalidIdError(value)
    return value


def server_url(value: str) -> str:
    """Return the URL of a server without whitespace around it and without a slash at its end.

    Raises:
        InvalidArgumentError: It is no http or https URL with a host, or has a query or fragment.
    """
    url = value.strip()
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and parts.hostname is not None and parts.port != 0
        is_page = any(parts.path.strip("/").endswith(end) for end in PAGES)
    except ValueError:
        is_usable = is_page = False
    if not is_usable or any(character.isspace() or character in "?#" for character in url):
        shown = url.rpartition("@")[2]  # in front of @ may be a password
        raise InvalidArgumentError(
            f"{shown!r} is not the URL of a server. Check url= or SIGHTLINE_URL: write it with http:// or https:// and "
            "the host, such as https://video.example.com."
        )
    if is_page:
        raise InvalidArgumentError(
            f"{url.rpartition('@')[2]!r} is a page of a server. Check url= or SIGHTLINE_URL: leave out the path, as in "
            "https://video.example.com."
        )
    return url.rstrip("/")


def usable_key(value: str | None) -> str | None:
    """Return an API key without the whitespace around it, which a key read from a file has; None for an empty one.

    Raises:
        InvalidArgumentError: It has not the form of a key. The message does not show it.
    """
    if value is not None and not isinstance(value, str):
        raise InvalidArgumentError(f"The API key is {type(value).__name__} and not text. Pass key= as a str.")
    key = (value or "").strip()
    if key.startswith(('"', "'")):
        raise InvalidArgumentError(
            "The API key is in quotes. Check key= or SIGHTLINE_API_KEY: pass it as it was printed, without them."
        )
    if not all("!" <= character <= "~" for character in key):
        raise InvalidArgumentError(
            "The API key contains a space, a control character or a character that is not ASCII. "
            "Check key= or SIGHTLINE_API_KEY: pass one key as it was printed, svc_..."
        )
    if key and not KEY.fullmatch(key):
        raise InvalidArgumentError(
            "The API key is not one, or only a part of one: a key is svc_test_, 6 characters, _ and 43 characters. "
            "Check key= or SIGHTLINE_API_KEY, or make a new key with `sightline login`."
        )
    return key or None


def session_seconds(value: Any) -> Any:
    """Return a duration that a session can be asked for with.

    Raises:
        InvalidArgumentError: It is no number, below 1, or above 14,400.
    """
    if not isinstance(value, int | float) or not value >= 1:
        raise InvalidArgumentError(f"seconds={value!r} is not a duration. Pass a whole number of seconds, at least 1.")
    if value > SECONDS_MAX:
        raise InvalidArgumentError(
            f"seconds={value!r} is above {SECONDS_MAX}, the longest duration. Pass at most that."
        )
    return value


def given(**fields: object) -> dict[str, object]:
    """Leave out the fields that are None; instants become ISO 8601 in UTC with milliseconds."""
    return {name: _wire(value) for name, value in fields.items() if value is not None}


def _wire(value: object) -> object:
    return iso(value) if isinstance(value, datetime) else value


def iso(instant: datetime) -> str:
    """Return an instant as ISO 8601 in UTC with milliseconds."""
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def wire_limits(limits: ApiKeyLimits) -> dict[str, str]:
    """Spending limits as decimal text; those that are None are left out."""
    amounts = {"perSessionMicroUsdc": limits.per_session_micro_usdc, "perDayMicroUsdc": limits.per_day_micro_usdc}
    return {name: str(amount) for name, amount in amounts.items() if amount is not None}
