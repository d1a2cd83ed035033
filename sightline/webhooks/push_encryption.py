"""Encrypts messages for browsers (RFC 8291) and signs the requests to their push services (RFC 8292, VAPID)."""

import base64
import json
from typing import Final, final
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

POINT_BYTES: Final = 65
"""An uncompressed point of P-256."""
AUTH_BYTES: Final = 16
SALT_BYTES: Final = 16
SCALAR_BYTES: Final = 48
"""Random bytes of a private key: 128 bits more than the order of P-256, so that all keys are about equally likely."""
RECORD_BYTES: Final = 4_096
_PLAINTEXT_MAX: Final = RECORD_BYTES - 17 - SALT_BYTES - 5 - POINT_BYTES
"""Push services take bodies of 4,096 bytes: header, one record, its delimiter and its tag."""
_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
TOKEN_SECONDS: Final = 12 * 3_600
"""Life of a VAPID token; push services refuse more than 24 hours."""


def text_of(value: bytes) -> str:
    """Encode as base64url without padding."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def key_from(seed: bytes) -> ec.EllipticCurvePrivateKey:
    """The private key of P-256 that `SCALAR_BYTES` random bytes name (FIPS 186-5, A.2.1)."""
    assert len(seed) == SCALAR_BYTES
    return ec.derive_private_key(int.from_bytes(seed) % (_ORDER - 1) + 1, ec.SECP256R1())


def point_of(key: ec.EllipticCurvePublicKey) -> bytes:
    """The public key as an uncompressed point."""
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def is_point(value: bytes) -> bool:
    """Whether the bytes are an uncompressed point of P-256."""
    if len(value) != POINT_BYTES:
        return False
    try:
        ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), value)
    except ValueError:
        return False
    return True


def encrypt(
    plaintext: bytes, *, browser_key: bytes, auth: bytes, sender: ec.EllipticCurvePrivateKey, salt: bytes
) -> bytes:
    """Encrypt a message for one browser: the body of the request, in the content coding aes128gcm.

    Args:
        plaintext: At most 3,993 bytes.
        browser_key: `p256dh` of the subscription.
        auth: `auth` of the subscription.
        sender: A key pair that is used for this message only.
        salt: 16 random bytes.

    Source: RFC 8291, section 3.4, and RFC 8188, section 2.
    """
    assert len(plaintext) <= _PLAINTEXT_MAX
    own = point_of(sender.public_key())
    shared = sender.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), browser_key))
    secret = _hkdf(shared, salt=auth, info=b"WebPush: info\0" + browser_key + own, length=32)
    key = _hkdf(secret, salt=salt, info=b"Content-Encoding: aes128gcm\0", length=16)
    nonce = _hkdf(secret, salt=salt, info=b"Content-Encoding: nonce\0", length=12)
    header = salt + RECORD_BYTES.to_bytes(4) + bytes([len(own)]) + own
    # 2 ends the last record.
    return header + AESGCM(key).encrypt(nonce, plaintext + b"\2", None)


def _hkdf(secret: bytes, *, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=salt, info=info).derive(secret)


@final
class Vapid:
    """Says to push services who sends (RFC 8292)."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, contact: str | None = None) -> None:
        """`contact` is a mailto: or https: URL at which the operator of a push service reaches us."""
        self._key = key
        self._contact = contact
        self.public_key = text_of(point_of(key.public_key()))
        """What browsers call `applicationServerKey`: they accept messages of this key only."""

    def authorization(self, endpoint: str, now_ms: int) -> str:
        """The header Authorization of a request to an endpoint."""
        parts = urlsplit(endpoint)
        claims: dict[str, object] = {
            "aud": f"{parts.scheme}://{parts.netloc}",
            "exp": now_ms // 1_000 + TOKEN_SECONDS,
        }
        if self._contact is not None:
            claims["sub"] = self._contact
        signed = f"{_json({'typ': 'JWT', 'alg': 'ES256'})}.{_json(claims)}"
        r, s = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(SHA256())))
        return f"vapid t={signed}.{text_of(r.to_bytes(32) + s.to_bytes(32))}, k={self.public_key}"


def _json(value: dict[str, object] | dict[str, str]) -> str:
    return text_of(json.dumps(value, separators=(",", ":")).encode())
