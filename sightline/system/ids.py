"""Ids and secrets from the operating system's random source, behind the Ids port."""

import os
import secrets
from typing import Final, final

_VERSION_AND_VARIANT: Final = ~(0xF000 << 64 | 0xC000 << 48)
_VERSION_4: Final = 0x4000 << 64 | 0x8000 << 48


@final
class SystemIds:
    """Ids from the operating system's random source."""

    def uuid(self) -> str:
        """A random (version 4) UUID in lower-case text form."""
        # Every call of the API takes one: this is a quarter of what uuid.uuid4 and its text cost.
        text = f"{int.from_bytes(os.urandom(16)) & _VERSION_AND_VARIANT | _VERSION_4:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def token_bytes(self, count: int) -> bytes:
        """`count` bytes fit for secrets."""
        return secrets.token_bytes(count)
