"""Port of new identifiers and secrets."""

from typing import Protocol


class Ids(Protocol):
    """Generates ids and random secrets."""

    def uuid(self) -> str:
        """Return a new UUID in lower-case text form."""
        ...

    def token_bytes(self, count: int) -> bytes:
        """Return `count` random bytes, suitable for secrets."""
        ...
