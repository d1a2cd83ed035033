"""The session cookie: a signed value that names a wallet session.

`v2.<kid>.<payload>.<mac>`: the MAC is HMAC-SHA-256 under the key named by `kid`, over everything before it. It is
compared in constant time before the payload is decoded. There is one algorithm and one version, so there is no
negotiation. `iat` is the time of the sign-in: selecting a workspace issues a new cookie that expires at the same time.
`sid` is the id of the row that records whether the sign-in is still open (`wallet_sessions`).

Keys can be rotated: the first one signs, all of them verify. Removing a key ends every sign-in whose cookie it signed.
"""

import base64
import hmac
import json
import re
from collections.abc import Sequence
from typing import Final, final

from sightline.domain.access import Role, WalletPrincipal
from sightline.domain.keyed_hash import keyed_hash
from sightline.domain.units import HOUR_MS, MINUTE_MS
from sightline.domain.value import Value, hiding

COOKIE_NAME: Final = "svc_session"
HOST_COOKIE_NAME: Final = "__Host-svc_session"
"""Name over https. Browsers accept it only with Secure, without Domain and with Path=/, so a sibling domain cannot
set it (RFC 6265bis section 4.1.3.2)."""
COOKIE_NAMES: Final = (HOST_COOKIE_NAME, COOKIE_NAME, "lx_session")
"""Accepted cookie names, the preferred one first."""
LIFETIME_MS: Final = 12 * HOUR_MS
_SKEW_MS: Final = MINUTE_MS
"""Accepted clock difference between two servers of one deployment."""
_LENGTH_MAX: Final = 1_024
_HEADER_LENGTH_MAX: Final = 16_384
_VERSION: Final = "v2"
_PURPOSE: Final = "session"
_SECRET_BYTES_MIN: Final = 32
_KID: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")
_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{40}")


@final
class CookieKey(Value):
    """A signing key and its public name (`kid`, 1..32 of `[A-Za-z0-9_-]`). `secret` has at least 32 bytes."""

    kid: str
    secret: bytes

    __repr__ = hiding("secret")

    def __post_init__(self) -> None:
        """Check name and length."""
        assert _KID.fullmatch(self.kid)
        assert len(self.secret) >= _SECRET_BYTES_MIN


def parse_cookie_keys(text: str) -> tuple[CookieKey, ...]:
    """Parse keys written as `kid:base64,kid:base64`, the signing one first.

    Raises:
        ValueError: The text is malformed, a secret is shorter than 32 bytes, or two keys have the same name.
            The message does not repeat the text.
    """
    keys = []
    for part in text.split(","):
        kid, _, encoded = part.strip().partition(":")
        try:
            secret = base64.b64decode(encoded, validate=True)
        except ValueError:
            secret = b""
        if not _KID.fullmatch(kid) or len(secret) < _SECRET_BYTES_MIN:
            raise ValueError(
                "a cookie key is KID:BASE64, with a KID of 1 to 32 of A-Z a-z 0-9 _ - and at least 32 random bytes: "
                'make one with `echo "k2:$(openssl rand -base64 32)"`'
            )
        keys.append(CookieKey(kid, secret))
    if len({key.kid for key in keys}) != len(keys):
        raise ValueError("two cookie keys have the same kid")
    return tuple(keys)


@final
class CookieCodec:
    """Encodes and decodes the value of the session cookie.

    Args:
        keys: At least one. The first signs, every one verifies.
        audience: Names this deployment. A cookie of another deployment is refused even under the same key.
        is_https: Whether clients use https. The cookie is then `Secure` and its name starts with __Host-.
    """

    def __init__(self, keys: Sequence[CookieKey], *, audience: str, is_https: bool) -> None:
        assert keys
        self._signer = keys[0]
        self._keys = {key.kid: key for key in keys}
        self._audience = audience
        self._is_https = is_https
        assert len(self._keys) == len(keys), "two keys of one name"

    def encode(self, principal: WalletPrincipal) -> str:
        """Encode and sign the value."""
        payload: dict[str, str | int] = {
            "p": _PURPOSE,
            "aud": self._audience,
            "sub": principal.wallet_address,
            "sid": principal.session_id,
            "iat": principal.signed_in_at_ms,
        }
        if principal.workspace_id is not None and principal.role is not None:
            payload |= {"ws": principal.workspace_id, "role": principal.role.value}
        body = _b64(json.dumps(payload, separators=(",", ":")).encode())
        signed = f"{_VERSION}.{self._signer.kid}.{body}"
        return f"{signed}.{_mac(self._signer, signed)}"

    def decode(self, value: str, *, now_ms: int) -> WalletPrincipal | None:
        """Decode a value. None if it is forged, damaged, expired, or of another deployment, purpose or version."""
        if len(value) > _LENGTH_MAX or not value.isascii():
            return None
        signed, _, mac = value.rpartition(".")
        version, _, rest = signed.partition(".")
        kid, _, body = rest.partition(".")
        key = self._keys.get(kid)
        if key is None or version != _VERSION or not hmac.compare_digest(mac, _mac(key, signed)):
            return None
        # The MAC is valid, so this server or another deployment with the same key wrote the payload.
        return self._principal(json.loads(_unb64(body)), now_ms)

    def set_cookie(self, value: str, *, signed_in_at_ms: int, now_ms: int) -> str:
        """The Set-Cookie header that stores a value for the rest of its lifetime."""
        # Rounded up: a browser may keep the cookie up to a second too long, but the server checks the signed time.
        left_s = max(0, -((now_ms - signed_in_at_ms - LIFETIME_MS) // 1_000))
        return self._header(HOST_COOKIE_NAME if self._is_https else COOKIE_NAME, value, left_s)

    def clear_cookies(self) -> tuple[str, ...]:
        """The Set-Cookie headers that delete the cookie under each of its names."""
        names = COOKIE_NAMES if self._is_https else COOKIE_NAMES[1:]
        return tuple(self._header(name, "", 0) for name in names)

    def _header(self, name: str, value: str, max_age_s: int) -> str:
        # Without Domain the cookie is sent to this host only.
        secure = "; Secure" if self._is_https else ""
        return f"{name}={value}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite=Lax{secure}"

    def _principal(self, payload: dict[str, str | int], now_ms: int) -> WalletPrincipal | None:
        address, signed_in_at_ms = payload.get("sub"), payload.get("iat")
        session_id, workspace_id, role = payload.get("sid"), payload.get("ws"), payload.get("role", "")
        if payload.get("p") != _PURPOSE or payload.get("aud") != self._audience:
            return None
        if not isinstance(address, str) or not _ADDRESS.fullmatch(address) or not isinstance(signed_in_at_ms, int):
            return None
        if not isinstance(session_id, str):
            return None
        if not signed_in_at_ms - _SKEW_MS <= now_ms < signed_in_at_ms + LIFETIME_MS:
            return None
        return WalletPrincipal(
            session_id=session_id,
            wallet_address=address,
            workspace_id=workspace_id if isinstance(workspace_id, str) else None,
            role=Role.__members__.get(str(role)) if workspace_id else None,
            signed_in_at_ms=signed_in_at_ms,
            expires_at_ms=signed_in_at_ms + LIFETIME_MS,
        )


def session_cookie(header: str | None) -> str | None:
    """Return the value of the session cookie in a Cookie header (RFC 6265 section 4.2), or None."""
    if not header or len(header) > _HEADER_LENGTH_MAX:
        return None
    found: dict[str, str] = {}
    for pair in header.split(";"):
        name, separator, value = pair.strip().partition("=")
        # Among cookies of the same name, browsers send the one with the longest path first.
        if separator and name in COOKIE_NAMES:
            found.setdefault(name, value.strip().strip('"'))
    return next((found[name] for name in COOKIE_NAMES if found.get(name)), None)


def _mac(key: CookieKey, signed: str) -> str:
    return _b64(keyed_hash(key.secret, b"wallet-session\x00" + signed.encode()))


def _b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
