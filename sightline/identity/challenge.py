"""The text a wallet signs: EIP-4361, composed here to the last byte and kept, so that nothing ever parses
one.

The client names an address and gets a text; it sends back the nonce and a signature; what is verified is
the text we kept. No field of it is under the client's control but the address, which it must hold the key
of.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final, final

from sightline.ports.identity import Purpose

NONCE_BYTES: Final = 16
_STATEMENTS: Final = MappingProxyType(
    {
        Purpose.LOGIN: "Sign in to Sightline.",
        Purpose.CREATE_WORKSPACE: "Create a Sightline workspace owned by this wallet.",
    }
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ChallengeText:
    """What goes into the text. `address` is in EIP-55 form; `domain` and `uri` are those the browser shows.

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
        """Write the text; it has no line feed at its end."""
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
