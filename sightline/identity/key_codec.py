"""The text form of API keys: `svc_<environment>_<6 hex of the workspace id>_<43 base62 characters>`.

The last part is 32 random bytes, most significant first, left-padded: 62**43 > 2**256, so 43 characters are enough, and
one pattern (`KEY_PATTERN`) serves secret scanners and log redaction. Only an HMAC-SHA-256 digest is stored. 256 random
bits need no slow hash, and without the pepper a leaked table cannot be used to test whether a candidate key is valid.
"""

import re
from typing import Final, final

from sightline.domain.access import Environment
from sightline.domain.keyed_hash import keyed_hash
from sightline.domain.value import Value, hiding

SECRET_BYTES: Final = 32
_ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_BASE: Final = len(_ALPHABET)
_RANDOM_LENGTH: Final = 43
_OWNER_LENGTH: Final = 6
_PREFIX_LENGTH: Final = len("svc_test_") + _OWNER_LENGTH
KEY_PATTERN: Final = re.compile(r"svc_(?:test|live)_[0-9a-f]{6}_[0-9A-Za-z]{43}")


def compose_key(environment: Environment, workspace_id: str, secret: bytes) -> str:
    """Compose a key from 32 random bytes. `workspace_id` is a lower-case UUID."""
    assert len(secret) == SECRET_BYTES
    owner = workspace_id.replace("-", "")[:_OWNER_LENGTH]
    return f"svc_{environment.value.lower()}_{owner}_{_to_base62(secret)}"


def is_well_formed(text: str) -> bool:
    """Return whether the text has the form of a key. Malformed texts are refused without reading the store."""
    if KEY_PATTERN.fullmatch(text) is None:
        return False
    return text[-_RANDOM_LENGTH:] <= _LARGEST  # the alphabet is in the order of its codes


def shown_prefix(key: str) -> str:
    """Return the part of a key that is not secret: everything before the random part."""
    return key[:_PREFIX_LENGTH]


@final
class KeyHasher(Value):
    """Computes digests of keys with the server's pepper, which must be as secret and durable as the key table."""

    pepper: bytes

    __repr__ = hiding("pepper")

    def digest(self, key: str) -> bytes:
        """Return the 32-byte digest under which a key is stored."""
        return keyed_hash(self.pepper, b"api-key\x00" + key.encode())

    def derive(self, *names: str) -> bytes:
        """Return 32 bytes that follow from these names, and that nobody without the pepper can compute."""
        return keyed_hash(self.pepper, b"derived\x00" + "\x00".join(names).encode())


def _to_base62(raw: bytes) -> str:
    number = int.from_bytes(raw, "big")
    digits = []
    for _ in range(_RANDOM_LENGTH):
        number, digit = divmod(number, _BASE)
        digits.append(_ALPHABET[digit])
    assert number == 0
    return "".join(reversed(digits))


_LARGEST: Final = _to_base62(b"\xff" * SECRET_BYTES)
