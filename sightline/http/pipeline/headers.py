"""Request headers as handlers read them."""

from collections.abc import Callable
from typing import Any, TypeVar, final

from sightline.http.server import Headers as RawHeaders

T = TypeVar("T")


@final
class Headers:
    """The first value of each header, by lower-case name; several Cookie lines are one (RFC 9113, 8.2.3)."""

    __slots__ = ("_asked", "_made", "_values")

    def __init__(self, raw: RawHeaders) -> None:
        values: dict[bytes, bytes] = {}
        for name, value in raw:
            if name not in values:
                values[name] = value
            elif name == b"cookie":
                values[name] += b"; " + value
        self._values = values
        self._asked: dict[str, str | None] = {}
        self._made: dict[object, Any] = {}

    def get(self, name: str, /) -> str | None:
        """The value, or None. Names are compared without regard to case."""
        try:
            return self._asked[name]
        except KeyError:
            value = self._values.get(name.lower().encode("latin-1"))
            text = self._asked[name] = None if value is None else value.decode("latin-1")
            return text

    def made_once(self, make: Callable[["Headers"], T], /) -> T:
        """What `make` makes of these headers. Made once: a client that stays sends the same ones again and again."""
        try:
            made: T = self._made[make]
        except KeyError:
            made = self._made[make] = make(self)
        return made

    def as_dict(self) -> dict[str, str]:
        """All of them, names in lower case."""
        return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self._values.items()}
