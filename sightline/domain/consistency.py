"""Consistency tokens: opaque to callers, signed, and valid only for the store that issued them.

A token carries the revision of the authorization graph a caller has seen. It looks like
`p1.<payload>.<mac>`, where the first part names the kind of graph. The identity of the store goes into the
MAC alone, so that a token of another store, or of the same store rebuilt, reads as foreign.
"""

import base64
import binascii
import hmac
from typing import Final, final

from sightline.domain.keyed_hash import keyed_hash
from sightline.domain.value import Value, hiding

TOKEN_LENGTH_MAX: Final = 1024
_MAC_BYTES: Final = 16


@final
class ConsistencyTokens(Value, kw_only=True):
    """Makes and reads the tokens of one store.

    `backend` is two characters, `store_id` any text that names the store.
    """

    backend: str
    store_id: str
    key: bytes

    __repr__ = hiding("key")

    def encode(self, payload: str) -> str:
        """Wrap a revision in a token."""
        return f"{self.backend}.{_b64(payload.encode())}.{self._mac(payload.encode())}"

    def decode(self, token: str) -> str | None:
        """Unwrap a token of this store; None if it is foreign or malformed."""
        if len(token) > TOKEN_LENGTH_MAX or not token.isascii():
            return None
        backend, _, rest = token.partition(".")
        body, _, mac = rest.partition(".")
        try:
            payload = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
        except binascii.Error:
            return None
        if backend != self.backend or not hmac.compare_digest(mac, self._mac(payload)):
            return None
        return payload.decode()

    def _mac(self, payload: bytes) -> str:
        framed = b"\x00".join((b"consistency", self.backend.encode(), self.store_id.encode(), payload))
        return _b64(keyed_hash(self.key, framed)[:_MAC_BYTES])


def _b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
