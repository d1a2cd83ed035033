"""The loop that webhooks and pushes share: claims what is due, and sends each claim in a task of its own."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Generic, TypeVar, final

import trio

from sightline.system.loops import run_forever
from sightline.webhooks.http_client import WebhookClient

Job = TypeVar("Job")

IDLE_S: Final = 0.5
"""The database is asked this often when nothing happens."""


@final
class Sends(Generic[Job]):
    """Sends jobs at the same time, up to a maximum. Two on one database share the work, because each job is claimed.

    Args:
        send: Sends a job and records the result. Its errors are its own: one that it raises ends the loop.
        most: Jobs at the same time.
        idle_s: How long a round that found nothing waits, unless a job ends before.
    """

    def __init__(
        self, send: Callable[[Job], Awaitable[None]], client: WebhookClient, *, most: int, idle_s: float = IDLE_S
    ) -> None:
        self._send = send
        self._client = client
        self._most = most
        self._idle_s = idle_s
        self._in_flight = 0
        self._ended = trio.Event()
        self._nursery: trio.Nursery | None = None

    @property
    def free(self) -> int:
        """How many jobs can be started now."""
        return self._most - self._in_flight

    def start(self, jobs: Iterable[Job]) -> None:
        """Start sending claimed jobs; only inside of `run`."""
        assert self._nursery is not None
        for job in jobs:
            self._in_flight += 1
            self._nursery.start_soon(self._run_one, job)

    async def run(self, name: str, claim_and_start: Callable[[], Awaitable[bool]]) -> None:
        """Run rounds until cancelled; may be called again afterwards.

        Cancellation: requests in flight are cut off. Their claims expire, and they are sent again.

        Args:
            name: Of the loop, for the log.
            claim_and_start: One round; returns whether it found anything to do.
        """

        async def step() -> None:
            self._ended = trio.Event()
            if not await claim_and_start():
                with trio.move_on_after(self._idle_s):
                    await self._ended.wait()

        try:
            async with trio.open_nursery() as self._nursery:
                await run_forever(name, step, every_s=0)
        finally:
            self._nursery = None
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
                await self._client.close()

    async def _run_one(self, job: Job) -> None:
        try:
            await self._send(job)
        finally:
            self._in_flight -= 1
            self._ended.set()
