"""Tokens in publish and play URLs. They are derived and not stored, so a restart gives the same URLs."""

import base64
import binascii
import hashlib
import hmac
import uuid
from functools import lru_cache
from typing import Final, final

MAC_BYTES: Final = 20
"""160 bits: cannot be guessed, and the token stays at 48 characters."""
REF_PREFIX: Final = "live_"


@final
class TokenMint:
    """Makes and checks tokens. A token is the session's id followed by a MAC over (purpose, id)."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) < 16:
            raise ValueError("the video secret needs at least 16 bytes")
        self._secret = secret

    def token(self, kind: str, session_id: str) -> str:
        """The token of a session for "whip" or "whep".

        Raises:
            ValueError: The session id is not a UUID.
        """
        raw = uuid.UUID(session_id).bytes
        return base64.urlsafe_b64encode(raw + self._mac(kind, raw)).rstrip(b"=").decode()

    def session_of(self, kind: str, token: str) -> str | None:
        """The session of a token, compared in constant time; None if the token is not valid."""
        try:
            data = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        except (binascii.Error, ValueError):
            return None
        if len(data) != 16 + MAC_BYTES or not hmac.compare_digest(data[16:], self._mac(kind, data[:16])):
            return None
        return str(uuid.UUID(bytes=data[:16]))

    def _mac(self, kind: str, raw: bytes) -> bytes:
        return hmac.digest(self._secret, b"sightline video " + kind.encode() + b"\0" + raw, hashlib.sha256)[:MAC_BYTES]


def ref_of(session_id: str) -> str:
    """The public name of a session's input."""
    return REF_PREFIX + uuid.UUID(session_id).hex


@lru_cache(maxsize=4_096)
def session_of_ref(ref: str) -> str | None:
    """The session whose input a ref names; None for a ref of another backend."""
    try:
        return str(uuid.UUID(hex=ref.removeprefix(REF_PREFIX))) if ref.startswith(REF_PREFIX) else None
    except ValueError:
        return None
