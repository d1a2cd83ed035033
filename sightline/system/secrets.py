"""The server's own secrets: generated once and stored in a file of mode 0600, by default in the data directory."""

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Final, final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from sightline.domain.value import Value, hiding
from sightline.ports.ids import Ids
from sightline.system.files import write_durably

FILE_NAME: Final = "secrets.json"
SECRET_BYTES: Final = 32


@final
class Secrets(Value, kw_only=True):
    """Random keys of 32 bytes each."""

    key_pepper: bytes
    """Key of the API keys' hash. Changing it invalidates every API key and webhook signing secret."""
    cookie_key: bytes
    """Signs session cookies."""
    token_key: bytes
    """Signs consistency tokens."""
    video_secret: bytes
    """Publish and play URLs are derived from this key."""
    webhook_secret: bytes
    """Signs inbound video events."""

    __repr__ = hiding("key_pepper", "cookie_key", "token_key", "video_secret", "webhook_secret")

    @property
    def customer_webhook_key(self) -> bytes:
        """Root of the signing secrets of customers' webhook endpoints.

        Derived from the pepper, so that existing data directories have it. Not from `webhook_secret`, which video
        providers know.
        """
        return hmac.digest(self.key_pepper, b"sightline customer webhooks", hashlib.sha256)

    @property
    def servers_key(self) -> bytes:
        """Root of the keys by which the servers of the service prove to each other who they are.

        Derived from the key of consistency tokens, which never leaves the servers; video providers know others.
        """
        info = b"sightline between servers"
        return HKDF(algorithm=SHA256(), length=SECRET_BYTES, salt=None, info=info).derive(self.token_key)

    @property
    def push_seed(self) -> bytes:
        """48 bytes that name the private key of Web Push; derived like `servers_key`.

        Browsers accept messages of the key that they subscribed with: other secrets end every subscription.
        """
        return HKDF(algorithm=SHA256(), length=48, salt=None, info=b"sightline web push").derive(self.token_key)

    @property
    def fingerprint(self) -> str:
        """A fingerprint of the secrets, from which they cannot be computed."""
        parts = (self.key_pepper, self.cookie_key, self.token_key, self.video_secret, self.webhook_secret)
        return hashlib.sha256(b"sightline fingerprint of secrets" + b"".join(parts)).hexdigest()

    @property
    def internal_token(self) -> str:
        """Bearer token of the operators' calls to the internal listener, where no setting names another one."""
        digest = hmac.digest(self.token_key, b"sightline internal listener", hashlib.sha256)
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")

    @property
    def mcp_state_key(self) -> bytes:
        """Encrypts the state of questions that an agent's host asks its user; derived like `customer_webhook_key`."""
        return hmac.digest(self.cookie_key, b"sightline mcp questions", hashlib.sha256)


def stored_secrets(path: Path) -> Secrets | None:
    """Read the secrets of an existing server; None if there is no file, or this account may not read it."""
    try:
        return _read(path)
    except (FileNotFoundError, PermissionError):
        return None


def load_secrets(path: Path, ids: Ids) -> Secrets:
    """Read the secrets, or generate them on the first start.

    Raises:
        ValueError: The file exists but a secret is missing or has another length. It is not replaced: new secrets
            would invalidate every API key, sign-in and media URL.
    """
    names = Secrets.__struct_fields__
    if not path.exists():
        made = {name: base64.b64encode(ids.token_bytes(SECRET_BYTES)).decode() for name in names}
        write_durably(path, json.dumps(made, indent=2).encode())
    return _read(path)


def _read(path: Path) -> Secrets:
    names = Secrets.__struct_fields__
    stored = json.loads(path.read_text())
    missing = [name for name in names if name not in stored]
    if missing:
        raise ValueError(f"{path} lacks {', '.join(missing)}")
    secrets = Secrets(**{name: base64.b64decode(stored[name], validate=True) for name in names})
    short = [name for name in names if len(getattr(secrets, name)) != SECRET_BYTES]
    if short:
        raise ValueError(f"{path} must have {SECRET_BYTES} bytes for {', '.join(short)}")
    return secrets
