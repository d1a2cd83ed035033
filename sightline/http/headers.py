"""Request headers as handlers read them."""

from functools import cache
from typing import final

from sightline.http.server import Headers as RawHeaders


@final
class Headers:
    """The first value of each header, by lower-case name; several Cookie lines are one (RFC 9113, 8.2.3)."""

    __slots__ = ("_values",)

    def __init__(self, raw: RawHeaders) -> None:
        values: dict[bytes, bytes] = {}
        for name, value in raw:
            if name not in values:
                values[name] = value
            elif name == b"cookie":
                values[name] += b"; " + value
        self._values = values

    def get(self, name: str, /) -> str | None:
        """The value, or None. Names are compared without regard to case."""
        value = self._values.get(_wire_name(name))
        return None if value is None else value.decode("latin-1")

    def as_dict(self) -> dict[str, str]:
        """All of them, names in lower case."""
        return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self._values.items()}


@cache
def _wire_name(name: str) -> bytes:
    """As the server gives it. Names are asked for by the program alone, so there are few."""
    return name.lower().encode("latin-1")
