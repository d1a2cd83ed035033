"""Tokens in publish and play URLs. They are derived and not stored, so a restart gives the same URLs.

The play URL of a caller names its credential, so that access can be checked when the URL is used and while it is
watched (ADR 0182). It is the same at each call of this credential.
"""

import base64
import binascii
import hashlib
import hmac
import uuid
from functools import lru_cache
from typing import Final, final

from sightline.domain.access import Holder

MAC_BYTES: Final = 20
"""160 bits: cannot be guessed, and the token stays at 48 characters."""
_ID_BYTES: Final = 16
_BOUND_BYTES: Final = 3 * _ID_BYTES + 1
"""Session, kind of the credential, credential, workspace."""
REF_PREFIX: Final = "live_"


@final
class TokenMint:
    """Makes and checks tokens. A token is ids followed by a MAC over (purpose, ids); the first id is the session's."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) < 16:
            raise ValueError("the video secret needs at least 16 bytes")
        self._secret = secret

    def token(self, kind: str, session_id: str) -> str:
        """The token of a session for "whip" or "whep".

        Raises:
            ValueError: The session id is not a UUID.
        """
        return self._signed(kind, uuid.UUID(session_id).bytes)

    def viewer_token(self, session_id: str, holder: Holder) -> str:
        """The token of a session for "whep", bound to a credential."""
        ids = [uuid.UUID(each).bytes for each in (session_id, holder.credential_id, holder.workspace_id)]
        return self._signed("whep", ids[0] + bytes([holder.is_key]) + ids[1] + ids[2])

    def session_of(self, kind: str, token: str) -> str | None:
        """The session of a token, compared in constant time; None if the token is not valid."""
        raw = self._verified(kind, token)
        return None if raw is None else str(uuid.UUID(bytes=raw[:_ID_BYTES]))

    def holder_of(self, token: str) -> Holder | None:
        """The credential that a token for "whep" is bound to; None if it is not valid, or not bound."""
        raw = self._verified("whep", token)
        if raw is None or len(raw) != _BOUND_BYTES:
            return None
        credential, workspace = raw[_ID_BYTES + 1 : -_ID_BYTES], raw[-_ID_BYTES:]
        return Holder(
            is_key=bool(raw[_ID_BYTES]),
            credential_id=str(uuid.UUID(bytes=credential)),
            workspace_id=str(uuid.UUID(bytes=workspace)),
        )

    def _signed(self, kind: str, raw: bytes) -> str:
        return base64.urlsafe_b64encode(raw + self._mac(kind, raw)).rstrip(b"=").decode()

    def _verified(self, kind: str, token: str) -> bytes | None:
        try:
            data = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        except (binascii.Error, ValueError):
            return None
        raw, mac = data[:-MAC_BYTES], data[-MAC_BYTES:]
        if len(raw) not in (_ID_BYTES, _BOUND_BYTES) or not hmac.compare_digest(mac, self._mac(kind, raw)):
            return None
        return raw

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
