"""Ids and secrets from the operating system's random source, behind the Ids port."""

import secrets
import uuid
from typing import final


@final
class SystemIds:
    """Ids from the operating system's random source."""

    def uuid(self) -> str:
        """A random (version 4) UUID in lower-case text form."""
        return str(uuid.uuid4())

    def token_bytes(self, count: int) -> bytes:
        """`count` bytes fit for secrets."""
        return secrets.token_bytes(count)
