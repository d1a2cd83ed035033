"""Write logs as one JSON line per event on stderr, and remove secrets from every field."""

import logging
import re
import sys
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any, Final, TextIO

import orjson
import structlog
from structlog.processors import format_exc_info
from structlog.types import EventDict, WrappedLogger

from sightline.system.clock import utc_now

REDACTED: Final = "[redacted]"

SECRET_FIELDS: Final = frozenset(
    {
        "authorization",
        "cookie",
        "set_cookie",
        "signature",
        "plaintext",
        "whip_url",
        "whipurl",
        "secret",
        "password",
        "private_key",
        "raw",
        "token",
    }
)

SECRET_TEXT: Final = re.compile(
    r"svc_(?:test|live)_[0-9a-f]{6}_[0-9A-Za-z]{20,}"  # API keys
    r"|(?:svc|lx)_session=[^;\s\"]+"  # cookies
    r"|/whip/(?!\{)[^/\s\"?]+"  # publish URLs, not the route /whip/{token}
    r"|0x[0-9a-fA-F]{130,}"  # signatures and raw transactions
    r"|\beyJ[\w-]{8,}\.[\w-]+\.[\w-]+"  # JSON web tokens
)


SECRET_SIGNS: Final = ("svc_", "_session=", "/whip/", "0x", "eyJ")
"""Every match of the pattern contains one of these. Searching for these first takes a tenth of the time."""


def redact_text(text: str) -> str:
    """Replace every secret in a text."""
    for sign in SECRET_SIGNS:
        if sign in text:
            return SECRET_TEXT.sub(REDACTED, text)
    return text


def _redacted(value: Any) -> Any:
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, bytes):
        return redact_text(value.decode(errors="replace"))
    if isinstance(value, Mapping):
        return {key: _field(str(key), item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_redacted(item) for item in value]
    return value


def _field(name: str, value: Any) -> Any:
    return REDACTED if name.lower() in SECRET_FIELDS and value is not None else _redacted(value)


def redact(event: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the secrets of an event, found by field name or by the form of the text."""
    return {name: _field(name, value) for name, value in event.items()}


_PLAIN: Final = frozenset({str, int, float, bool, type(None), datetime})


def render_line(logger: WrappedLogger, method: str, event: EventDict) -> str:
    """structlog processor: add level and time, remove secrets, and render the line.

    One processor, because each call writes a line and a chain of five costs 4 us more. Plain values are checked by
    field name only; `_to_json` searches the whole line for secrets once.
    """
    event["level"] = method
    event["timestamp"] = utc_now()
    if "exc_info" in event:
        event = format_exc_info(logger, method, event)
    if _PLAIN.issuperset(map(type, event.values())) and _are_harmless(tuple(event)):
        return _to_json(event)
    return _to_json(redact(event))


@cache
def _are_harmless(names: tuple[str, ...]) -> bool:
    """Return whether no field name is that of a secret. Cached: the program has few combinations of field names."""
    return all(name.islower() and name not in SECRET_FIELDS for name in names)


_OPTIONS: Final = orjson.OPT_NON_STR_KEYS | orjson.OPT_UTC_Z


def _to_json(event: Mapping[str, Any]) -> str:
    return redact_text(orjson.dumps(event, default=repr, option=_OPTIONS).decode())


def configure_logs(level: str = "info", stream: TextIO | None = None) -> None:
    """Send structlog and the standard library's warnings to one stream (default: stderr) as JSON lines."""
    out = stream or sys.stderr
    structlog.configure(
        processors=[render_line],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(out),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(_StandardFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)


class _StandardFormatter(logging.Formatter):
    """Formats records of the standard library's loggers as JSON lines too."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "event": record.getMessage(),
            "logger": record.name,
            "level": record.levelname.lower(),
            "timestamp": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return _to_json(redact(fields))
