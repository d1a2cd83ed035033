"""Compose the text that a wallet signs (EIP-4361).

The client names an address and gets a text; it sends back the nonce and a signature. The signature is verified over the
stored text, so no text from a client is ever parsed. The client controls only the address in it, and must hold the key
of that address.
"""

from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final, final

from sightline.domain.value import Value
from sightline.ports.identity import Purpose

NONCE_BYTES: Final = 16
_STATEMENTS: Final = MappingProxyType(
    {
        Purpose.LOGIN: "Sign in to Sightline.",
        Purpose.CREATE_WORKSPACE: "Create a Sightline workspace owned by this wallet.",
    }
)


@final
class ChallengeText(Value, kw_only=True):
    """The fields of the text. `address` is in EIP-55 form; `domain` and `uri` are those that the browser shows.

    Source: EIP-4361, sections "Message Format" and "Informal Message Template".
    """

    domain: str
    uri: str
    address: str
    purpose: Purpose
    chain_id: int
    nonce: str
    issued_at_ms: int
    expires_at_ms: int

    def __str__(self) -> str:
        """Return the text; it does not end with a line feed."""
        return "\n".join(
            (
                f"{self.domain} wants you to sign in with your Ethereum account:",
                self.address,
                "",
                _STATEMENTS[self.purpose],
                "",
                f"URI: {self.uri}",
                "Version: 1",
                f"Chain ID: {self.chain_id}",
                f"Nonce: {self.nonce}",
                f"Issued At: {_iso(self.issued_at_ms)}",
                f"Expiration Time: {_iso(self.expires_at_ms)}",
            )
        )


def _iso(at_ms: int) -> str:
    moment = datetime.fromtimestamp(at_ms // 1_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at_ms % 1_000:03d}Z"
