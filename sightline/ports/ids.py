"""Fresh identifiers and secrets as a need."""

from typing import Protocol


class Ids(Protocol):
    """Where new ids and random secrets come from."""

    def uuid(self) -> str:
        """A new UUID in lower-case text form."""
        ...

    def token_bytes(self, count: int) -> bytes:
        """`count` random bytes, fit for secrets."""
        ...
