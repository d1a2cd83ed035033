"""Signatures by Standard Webhooks: HMAC-SHA256 over `id.timestamp.body`.

Signing secrets are derived and not stored, like the tokens of media URLs: a copy of the database does not contain them.

Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import base64
import hashlib
import hmac
import uuid
from typing import Final, final

from sightline.domain.webhooks import ROTATION_MS
from sightline.ports.webhooks import WebhookEndpoint, WebhookMessage

SECRET_PREFIX: Final = "whsec_"  # noqa: S105  a public prefix


@final
class WebhookSigner:
    """Derives the secrets of endpoints and signs messages with them."""

    def __init__(self, root: bytes) -> None:
        """Derive from a root key of at least 32 bytes."""
        assert len(root) >= 32
        self._root = root

    def secret_text(self, endpoint: WebhookEndpoint) -> str:
        """The endpoint's current secret in the form that its owner gets."""
        return SECRET_PREFIX + base64.b64encode(self._secret(endpoint.id, endpoint.generation)).decode()

    def headers(self, endpoint: WebhookEndpoint, message: WebhookMessage, now_ms: int) -> dict[str, str]:
        """The headers of an attempt at `now_ms`: a signature of each secret that is valid then, newest first.

        A secret is valid until `ROTATION_MS` after the rotation that replaced it.
        """
        generations = [endpoint.generation]
        for age, rotated_at_ms in enumerate(endpoint.rotations_ms, start=1):
            if now_ms < rotated_at_ms + ROTATION_MS:
                generations.append(endpoint.generation - age)
        timestamp = str(now_ms // 1_000)
        signed = f"{message.id}.{timestamp}.{message.body}".encode()
        return {
            "webhook-id": message.id,
            "webhook-timestamp": timestamp,
            "webhook-signature": " ".join(self._signature(endpoint.id, number, signed) for number in generations),
        }

    def _signature(self, endpoint_id: str, generation: int, signed: bytes) -> str:
        mac = hmac.digest(self._secret(endpoint_id, generation), signed, hashlib.sha256)
        return "v1," + base64.b64encode(mac).decode()

    def _secret(self, endpoint_id: str, generation: int) -> bytes:
        purpose = b"sightline webhook\0" + uuid.UUID(endpoint_id).bytes + generation.to_bytes(4)
        return hmac.digest(self._root, purpose, hashlib.sha256)
