"""Logs: one JSON line per event on stderr, secrets taken out whatever field they hide in."""

import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, TextIO

import orjson
import structlog

from sightline.system.clock import SystemClock

REDACTED: Final = "[redacted]"
_CLOCK: Final = SystemClock()

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
    r"|/whip/[^/\s\"?]+"  # publish URLs
    r"|0x[0-9a-fA-F]{130,}"  # signatures and raw transactions
    r"|\beyJ[\w-]{8,}\.[\w-]+\.[\w-]+"  # JSON web tokens
)


SECRET_SIGNS: Final = ("svc_", "_session=", "/whip/", "0x", "eyJ")
"""One of them is in every text that the pattern finds; to look for them first takes a tenth of the time."""


def redact_text(text: str) -> str:
    """Take every secret out of a text."""
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
    """An event without secrets: by the field's name, and by what the text looks like."""
    return {name: _field(name, value) for name, value in event.items()}


def render_line(level: str, event: MutableMapping[str, Any]) -> str:
    """The event as a line of JSON without secrets.

    Plain fields are looked at by name alone; what their text looks like is looked for once, in the whole line. A
    pattern's end (a quote, white space, a semicolon) ends it there too.
    """
    event["level"] = level
    event["timestamp"] = datetime.fromtimestamp(_CLOCK.now_ms() / 1_000, UTC)
    if "exc_info" in event:
        event = structlog.processors.format_exc_info(None, level, event)
    if not (_PLAIN.issuperset(map(type, event.values())) and _are_harmless(tuple(event))):
        event = redact(event)
    return redact_text(_render(event))


_PLAIN: Final = frozenset({str, int, float, bool, type(None), datetime})


@cache
def _are_harmless(names: tuple[str, ...]) -> bool:
    """Whether no field is a secret by its name. The program has only so many events, each with its fields."""
    return all(name.islower() and name not in SECRET_FIELDS for name in names)


_OPTIONS: Final = orjson.OPT_NON_STR_KEYS | orjson.OPT_UTC_Z


def _render(event: Mapping[str, Any]) -> str:
    return orjson.dumps(event, default=repr, option=_OPTIONS).decode()


def configure_logs(level: str = "info", stream: TextIO | None = None) -> None:
    """Send structlog and the standard library's warnings to one stream (default: stderr) as JSON lines."""
    out = stream or sys.stderr
    structlog.configure(
        processors=[],  # one step makes the line: a chain of them costs each call as much again
        wrapper_class=_line_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(out),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(_StandardFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)


def _line_logger(level: int) -> type[structlog.typing.BindableLogger]:
    base: Any = structlog.make_filtering_bound_logger(level)

    class LineLogger(base):  # type: ignore[misc]  # the class is made at run time
        def _proxy_to_logger(self, method_name: str, event: str | None = None, **fields: Any) -> Any:
            return getattr(self._logger, method_name)(
                render_line(method_name, {"event": event, **self._context, **fields})
            )

    return LineLogger


class _StandardFormatter(logging.Formatter):
    """The standard library's records in the same form."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "event": record.getMessage(),
            "logger": record.name,
            "level": record.levelname.lower(),
            "timestamp": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return _render(redact(fields))
