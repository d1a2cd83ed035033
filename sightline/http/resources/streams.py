"""Streams: how many a workspace may hold open, and the tickets with which browsers open them.

Each open stream keeps a connection, a task and a place among the watchers.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, final

from sightline.domain.access import Operation
from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Code, Refusal
from sightline.http.pipeline.call import Call, Reply
from sightline.http.pipeline.routes import Route
from sightline.http.schemas.base import iso
from sightline.http.schemas.events import StreamTicket, StreamTicketBody
from sightline.http.services import Services

RETRY_AFTER_S: Final = 5


@final
class StreamSlots:
    """Counts open streams per workspace."""

    def __init__(self, per_workspace_max: int) -> None:
        self._max = per_workspace_max
        self._open: Counter[str] = Counter()

    def require_free(self, workspace_id: str) -> None:
        """Ask before the answer begins, while it can still be an error.

        Raises:
            RefusedError: RATE_LIMITED `streams:limit`.
        """
        if not self.is_free(workspace_id):
            message = f"The workspace holds {self._max} streams open"
            raise RefusedError(Refusal(Code.RATE_LIMITED, "streams:limit", message, retry_after_s=RETRY_AFTER_S))

    def is_free(self, workspace_id: str) -> bool:
        """Whether the workspace may open another one."""
        return self._open[workspace_id] < self._max

    @contextmanager
    def held(self, workspace_id: str) -> Iterator[None]:
        """Hold a slot for as long as the stream lasts."""
        self._open[workspace_id] += 1
        try:
            yield
        finally:
            self._open[workspace_id] -= 1
            if not self._open[workspace_id]:
                del self._open[workspace_id]


@final
class StreamTicketResources:
    """/stream-tickets."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @Route(
        "POST",
        "/api/v1/stream-tickets",
        "createStreamTicket",
        "live updates",
        "Get a ticket with which a browser opens one stream",
        description="A browser cannot send an API key with an EventSource, a WebSocket or an `<img>`. Add the ticket "
        "to the stream's URL as `?ticket=`, once, within 30 seconds. The stream has the rights of the key.",
        operation=Operation.ISSUE_STREAM_TICKET,
        body=StreamTicketBody,
        output=StreamTicket,
    )
    async def create(self, call: Call) -> Reply:
        """Issue a ticket that stands for the call's own credential."""
        body: StreamTicketBody = call.body
        authorization = call.headers.get("authorization")
        assert authorization is not None, "only API keys may make this call"
        ticket = await self._services.tickets.issue(body.path, authorization)
        return Reply({"ticket": ticket.text, "expiresAt": iso(ticket.expires_at_ms)})
