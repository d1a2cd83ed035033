"""Request headers as handlers read them."""

from typing import final

from sightline.http.server import Headers as RawHeaders


@final
class Headers:
    """The first value of each header, by lower-case name; several Cookie lines are one (RFC 9113, 8.2.3)."""

    __slots__ = ("_asked", "_values")

    def __init__(self, raw: RawHeaders) -> None:
        values: dict[bytes, bytes] = {}
        for name, value in raw:
            if name not in values:
                values[name] = value
            elif name == b"cookie":
                values[name] += b"; " + value
        self._values = values
        self._asked: dict[str, str | None] = {}

    def get(self, name: str, /) -> str | None:
        """Return the value, or None. Names are compared without regard to case."""
        try:
            return self._asked[name]
        except KeyError:
            value = self._values.get(name.lower().encode("latin-1"))
            text = self._asked[name] = None if value is None else value.decode("latin-1")
            return text

    def as_dict(self) -> dict[str, str]:
        """All headers, names in lower case."""
        return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self._values.items()}
