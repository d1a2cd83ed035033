"""Tickets for streams: a browser cannot send an API key with a WebSocket, an EventSource or an <img>.

A ticket stands for the Authorization header that it was issued to, for one path, once, for 30 seconds. URLs end in logs
and histories, keys must not. Tickets are in the memory of the server that issued them.
"""

import base64
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, final

from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Code, Refusal
from sightline.ports.clock import Clock
from sightline.ports.ids import Ids

LIFETIME_MS: Final = 30_000
TICKETS_MAX: Final = 50_000
"""Tickets that are kept. The oldest are dropped; the rate limit of one workspace allows 1,600 in their lifetime."""
BAD_TICKET: Final = Refusal(
    Code.NOT_AUTHENTICATED,
    "auth:ticket",
    "The ticket is unknown, used, expired or of another path; get a new one from POST /api/v1/stream-tickets",
)


@final
@dataclass(frozen=True, slots=True)
class StreamTicket:
    """A ticket. `authorization` is the header that it stands for."""

    path: str
    expires_at_ms: int
    authorization: str = field(repr=False)


@final
class StreamTickets:
    """Issues and redeems tickets."""

    def __init__(self, clock: Clock, ids: Ids) -> None:
        self._clock = clock
        self._ids = ids
        self._tickets: OrderedDict[str, StreamTicket] = OrderedDict()

    def issue(self, path: str, authorization: str) -> tuple[str, StreamTicket]:
        """Issue a ticket for a path. Returns its text too."""
        now_ms = self._clock.now_ms()
        while self._tickets:
            oldest = next(iter(self._tickets.values()))
            if oldest.expires_at_ms > now_ms and len(self._tickets) < TICKETS_MAX:
                break
            self._tickets.popitem(last=False)
        text = base64.urlsafe_b64encode(self._ids.token_bytes(32)).rstrip(b"=").decode("ascii")
        ticket = self._tickets[text] = StreamTicket(path, now_ms + LIFETIME_MS, authorization)
        return text, ticket

    def redeem(self, text: str, path: str) -> str:
        """Return the Authorization header of a ticket, which is then used.

        Raises:
            RefusedError: NOT_AUTHENTICATED `auth:ticket`. The ticket is used also if it is of another path.
        """
        ticket = self._tickets.pop(text, None)
        if ticket is None or ticket.path != path or ticket.expires_at_ms <= self._clock.now_ms():
            raise RefusedError(BAD_TICKET)
        return ticket.authorization
