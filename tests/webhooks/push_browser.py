"""A browser's side of Web Push: its key pair, the decryption of RFC 8291, and a push service's check of VAPID."""

import base64
import json
from typing import Any

from cryptography.hazmat.primitives import hmac
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


def bytes_of(text: str) -> bytes:
    """Decode base64url without padding."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _mac(key: bytes, *parts: bytes) -> bytes:
    made = hmac.HMAC(key, SHA256())
    made.update(b"".join(parts))
    return made.finalize()


class PushBrowser:
    """The keys of one subscription, and what the browser does with a message."""

    def __init__(self, key: ec.EllipticCurvePrivateKey | None = None, auth: bytes = b"sixteen bytes...") -> None:
        self._key = key or ec.generate_private_key(ec.SECP256R1())
        self._auth = auth
        self._point = self._key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)

    @property
    def keys(self) -> dict[str, str]:
        """As `PushSubscription.toJSON()` has them."""
        return {
            "p256dh": base64.urlsafe_b64encode(self._point).rstrip(b"=").decode(),
            "auth": base64.urlsafe_b64encode(self._auth).rstrip(b"=").decode(),
        }

    def decrypt(self, body: bytes) -> bytes:
        """Decrypt a message of one record, step by step as RFC 8291, section 3.4, writes it with HMAC."""
        salt, size, sender = body[:16], int.from_bytes(body[16:20]), body[21 : 21 + body[20]]
        record = body[21 + body[20] :]
        assert len(record) <= size
        other = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sender)
        combined = _mac(self._auth, self._key.exchange(ec.ECDH(), other))
        secret = _mac(combined, b"WebPush: info\0", self._point, sender, b"\1")
        root = _mac(salt, secret)
        key = _mac(root, b"Content-Encoding: aes128gcm\0\1")[:16]
        nonce = _mac(root, b"Content-Encoding: nonce\0\1")[:12]
        padded = AESGCM(key).decrypt(nonce, record, None).rstrip(b"\0")
        assert padded[-1:] == b"\2"
        return padded[:-1]


def claims_of(authorization: str, public_key: str) -> dict[str, Any]:
    """Verify the header of VAPID with the key that the browser subscribed with, and return its claims."""
    scheme, _, rest = authorization.partition(" ")
    given = dict(part.strip().split("=", 1) for part in rest.split(","))
    assert (scheme, given["k"]) == ("vapid", public_key)
    signed, _, signature = given["t"].rpartition(".")
    header, claims = (json.loads(bytes_of(part)) for part in signed.split("."))
    assert header == {"typ": "JWT", "alg": "ES256"}
    r, s = bytes_of(signature)[:32], bytes_of(signature)[32:]
    key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), bytes_of(public_key))
    key.verify(encode_dss_signature(int.from_bytes(r), int.from_bytes(s)), signed.encode(), ec.ECDSA(SHA256()))
    verified: dict[str, Any] = claims
    return verified
