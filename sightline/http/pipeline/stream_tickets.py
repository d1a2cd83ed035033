"""Tickets for streams: a browser cannot send an API key with a WebSocket, an EventSource or an <img>.

A ticket stands for the Authorization header that it was issued to, for one path, once, for 30 seconds, on any server of
the database. URLs end in logs and histories, keys must not: what is stored is encrypted with the ticket, of which the
store knows only a hash.
"""

import base64
import hashlib
import hmac
from typing import Final, final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Code, Refusal
from sightline.domain.value import Value
from sightline.ports.clock import Clock
from sightline.ports.identity import IdentityStore
from sightline.ports.ids import Ids

LIFETIME_MS: Final = 30_000
TICKET_BYTES: Final = 32
BAD_TICKET: Final = Refusal(
    Code.NOT_AUTHENTICATED,
    "auth:ticket",
    "The ticket is unknown, used, expired or of another path; get a new one from POST /api/v1/stream-tickets",
)
_NONCE: Final = bytes(12)
"""Each key encrypts one message, so the nonce may be constant."""


@final
class IssuedTicket(Value):
    """A ticket for the caller."""

    text: str
    expires_at_ms: int


@final
class StreamTickets:
    """Issues and redeems tickets."""

    def __init__(self, store: IdentityStore, clock: Clock, ids: Ids) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids

    async def issue(self, path: str, authorization: str) -> IssuedTicket:
        """Issue a ticket for a path.

        Raises:
            StoreUnavailableError, OutcomeUnknownError: There is no ticket.
        """
        ticket, now_ms = self._ids.token_bytes(TICKET_BYTES), self._clock.now_ms()
        expires_at_ms = now_ms + LIFETIME_MS
        sealed = _cipher(ticket).encrypt(_NONCE, authorization.encode(), path.encode())
        await self._store.add_ticket(_digest(ticket), sealed, expires_at_ms=expires_at_ms, now_ms=now_ms)
        return IssuedTicket(base64.urlsafe_b64encode(ticket).rstrip(b"=").decode(), expires_at_ms)

    async def redeem(self, text: str, path: str) -> str:
        """Return the Authorization header of a ticket, which is then used.

        Raises:
            RefusedError: NOT_AUTHENTICATED `auth:ticket`. The ticket is used also if it is of another path.
            StoreUnavailableError, OutcomeUnknownError: The ticket may be used.
        """
        try:
            ticket = base64.b64decode(text + "=", altchars="-_", validate=True)
        except ValueError:
            ticket = b""
        if len(ticket) != TICKET_BYTES:
            raise RefusedError(BAD_TICKET)
        sealed = await self._store.take_ticket(_digest(ticket), now_ms=self._clock.now_ms())
        if sealed is None:
            raise RefusedError(BAD_TICKET)
        try:
            return _cipher(ticket).decrypt(_NONCE, sealed, path.encode()).decode()
        except InvalidTag as error:  # the path is another one
            raise RefusedError(BAD_TICKET) from error


def _digest(ticket: bytes) -> bytes:
    return hashlib.sha256(ticket).digest()


def _cipher(ticket: bytes) -> AESGCM:
    return AESGCM(hmac.digest(ticket, b"sightline stream ticket", hashlib.sha256))
