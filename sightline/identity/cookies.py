"""The wallet session as a cookie: a signed value and no state on the server.

`v1.<kid>.<payload>.<mac>`: the MAC is HMAC-SHA-256 under the key named by `kid`, over everything before it,
and is compared in constant time, as text, before a byte of the payload is looked at. There is one algorithm
and one version, so there is nothing to negotiate. `iat` is the instant of the *sign-in*: choosing a
workspace writes a new cookie that ends when the first one would have.

Keys rotate: the first signs, all verify. Removing a key ends every session it signed, which is the
emergency brake where there is no revocation list (ADR 0011).
"""

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, final

from sightline.domain.access import Role, WalletPrincipal
from sightline.domain.units import HOUR_MS, MINUTE_MS

COOKIE_NAME: Final = "svc_session"
COOKIE_NAMES: Final = (COOKIE_NAME, "lx_session")
"""Accepted names, the preferred one first."""
LIFETIME_MS: Final = 12 * HOUR_MS
_SKEW_MS: Final = MINUTE_MS
"""How far ahead of this clock another node of ours may have signed somebody in."""
_LENGTH_MAX: Final = 1_024
_HEADER_LENGTH_MAX: Final = 16_384
_VERSION: Final = "v1"
_PURPOSE: Final = "session"
_SECRET_BYTES_MIN: Final = 32
_KID: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")
_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{40}")


@final
@dataclass(frozen=True, slots=True)
class CookieKey:
    """A signing key and its public name (`kid`, 1..32 of `[A-Za-z0-9_-]`). `secret` has at least 32 bytes."""

    kid: str
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        """Refuse what would not be safe."""
        assert _KID.fullmatch(self.kid)
        assert len(self.secret) >= _SECRET_BYTES_MIN


def parse_cookie_keys(text: str) -> tuple[CookieKey, ...]:
    """Read keys written `kid:base64,kid:base64`, the signing one first.

    Raises:
        ValueError: It does not read so, a secret is shorter than 32 bytes, or a name comes twice.
    """
    keys = []
    for part in text.split(","):
        kid, _, encoded = part.strip().partition(":")
        secret = base64.b64decode(encoded, validate=True)
        if not _KID.fullmatch(kid) or len(secret) < _SECRET_BYTES_MIN:
            raise ValueError("a cookie key is kid:base64, with a kid of 1..32 of [A-Za-z0-9_-] and 32 bytes or more")
        keys.append(CookieKey(kid, secret))
    if len({key.kid for key in keys}) != len(keys):
        raise ValueError("two cookie keys have one name")
    return tuple(keys)


@final
class CookieCodec:
    """Writes and reads the value of the session cookie.

    Args:
        keys: At least one. The first signs, every one verifies.
        audience: Names this deployment; a cookie of another one is worthless here even under the same key.
        is_https: Whether clients reach the server by https, which makes the cookie `Secure`.
    """

    def __init__(self, keys: Sequence[CookieKey], *, audience: str, is_https: bool) -> None:
        assert keys
        self._signer = keys[0]
        self._keys = {key.kid: key for key in keys}
        self._audience = audience
        self._is_https = is_https
        assert len(self._keys) == len(keys), "two keys of one name"

    def encode(self, principal: WalletPrincipal) -> str:
        """Write the signed value."""
        payload: dict[str, str | int] = {
            "p": _PURPOSE,
            "aud": self._audience,
            "sub": principal.wallet_address,
            "iat": principal.signed_in_at_ms,
        }
        if principal.workspace_id is not None and principal.role is not None:
            payload |= {"ws": principal.workspace_id, "role": principal.role.value}
        body = _b64(json.dumps(payload, separators=(",", ":")).encode())
        signed = f"{_VERSION}.{self._signer.kid}.{body}"
        return f"{signed}.{_mac(self._signer, signed)}"

    def decode(self, value: str, *, now_ms: int) -> WalletPrincipal | None:
        """Read a value; None if it is forged, damaged, expired, of another deployment or another purpose."""
        if len(value) > _LENGTH_MAX or not value.isascii():
            return None
        signed, _, mac = value.rpartition(".")
        version, _, rest = signed.partition(".")
        kid, _, body = rest.partition(".")
        key = self._keys.get(kid)
        if key is None or version != _VERSION or not hmac.compare_digest(mac, _mac(key, signed)):
            return None
        # From here on the bytes are our own, perhaps of an older or another deployment with the same key.
        return self._principal(json.loads(_unb64(body)), now_ms)

    def set_cookie(self, value: str, *, signed_in_at_ms: int, now_ms: int) -> str:
        """The Set-Cookie header that stores a value for what is left of its lifetime."""
        # Rounded up: the browser may hold it a moment too long, the server judges by the signed instant anyway.
        left_s = max(0, -((now_ms - signed_in_at_ms - LIFETIME_MS) // 1_000))
        return self._header(COOKIE_NAME, value, left_s)

    def clear_cookies(self) -> tuple[str, ...]:
        """The Set-Cookie headers that make a browser forget the session, under either name."""
        return tuple(self._header(name, "", 0) for name in COOKIE_NAMES)

    def _header(self, name: str, value: str, max_age_s: int) -> str:
        # No Domain: host only. The name is fixed by the interface, so the __Host- prefix is not to be had.
        secure = "; Secure" if self._is_https else ""
        return f"{name}={value}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite=Lax{secure}"

    def _principal(self, payload: dict[str, str | int], now_ms: int) -> WalletPrincipal | None:
        address, signed_in_at_ms = payload.get("sub"), payload.get("iat")
        workspace_id, role = payload.get("ws"), payload.get("role", "")
        if payload.get("p") != _PURPOSE or payload.get("aud") != self._audience:
            return None
        if not isinstance(address, str) or not _ADDRESS.fullmatch(address) or not isinstance(signed_in_at_ms, int):
            return None
        if not signed_in_at_ms - _SKEW_MS <= now_ms < signed_in_at_ms + LIFETIME_MS:
            return None
        return WalletPrincipal(
            wallet_address=address,
            workspace_id=workspace_id if isinstance(workspace_id, str) else None,
            role=Role.__members__.get(str(role)) if workspace_id else None,
            signed_in_at_ms=signed_in_at_ms,
            expires_at_ms=signed_in_at_ms + LIFETIME_MS,
        )


def session_cookie(header: str | None) -> str | None:
    """Pick the session's value out of a Cookie header (RFC 6265 section 4.2), or None where there is none."""
    if not header or len(header) > _HEADER_LENGTH_MAX:
        return None
    found: dict[str, str] = {}
    for pair in header.split(";"):
        name, separator, value = pair.strip().partition("=")
        # The first of a name wins: browsers send the most specific one first.
        if separator and name in COOKIE_NAMES:
            found.setdefault(name, value.strip().strip('"'))
    return next((found[name] for name in COOKIE_NAMES if found.get(name)), None)


def _mac(key: CookieKey, signed: str) -> str:
    return _b64(hmac.digest(key.secret, b"wallet-session\x00" + signed.encode(), hashlib.sha256))


def _b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
