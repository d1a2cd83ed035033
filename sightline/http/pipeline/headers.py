"""Request headers as handlers read them."""

from typing import Self, final

from sightline.http.server import Headers as RawHeaders


@final
class Headers:
    """The first value of each header, by lower-case name; several Cookie lines are one (RFC 9113, 8.2.3)."""

    __slots__ = ("_values",)

    def __init__(self, raw: RawHeaders) -> None:
        values: dict[str, str] = {}
        for raw_name, raw_value in raw:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
            if name not in values:
                values[name] = value
            elif name == "cookie":
                values[name] += "; " + value
        self._values = values

    def get(self, name: str, /) -> str | None:
        """Return the value, or None. Names are compared without regard to case."""
        return self._values.get(name.lower())

    def having(self, name: str, value: str, /) -> Self:
        """Return a copy with another value of one header; `name` in lower case."""
        changed = {**self._values, name: value}
        return type(self)([(key.encode("latin-1"), text.encode("latin-1")) for key, text in changed.items()])

    def as_dict(self) -> dict[str, str]:
        """All headers, names in lower case."""
        return dict(self._values)
