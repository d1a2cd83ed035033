"""What webhooks and pushes share: the look for what waits, and the loop that claims and sends it.

Both are looked for in one query, because an idle server does little else.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Generic, NoReturn, TypeVar, final

import trio

from sightline.ports.webhooks import SendQueues
from sightline.system.loops import run_forever
from sightline.webhooks.http_client import WebhookClient

Job = TypeVar("Job")

LOOK_EVERY_S: Final = 0.5


@final
class UnsentWatch:
    """Asks the database again and again whether anything waits, and wakes those who send it.

    Args:
        webhooks: Called when an event or a delivery waits.
        pushes: Called when a push waits.
    """

    def __init__(
        self,
        queues: SendQueues,
        *,
        webhooks: Callable[[], None],
        pushes: Callable[[], None],
        every_s: float = LOOK_EVERY_S,
    ) -> None:
        self._queues = queues
        self._webhooks = webhooks
        self._pushes = pushes
        self._every_s = every_s

    async def run(self) -> NoReturn:
        """Look until cancelled; may be called again afterwards."""
        await run_forever("unsent", self._look, every_s=self._every_s)

    async def _look(self) -> None:
        unsent = await self._queues.unsent()
        if unsent.webhooks:
            self._webhooks()
        if unsent.pushes:
            self._pushes()


@final
class Sends(Generic[Job]):
    """Sends jobs at the same time, up to a maximum. Two on one database share the work, because each job is claimed.

    Args:
        send: Sends a job and records the result. Its errors are its own: one that it raises ends the loop.
        most: Jobs at the same time.
    """

    def __init__(self, send: Callable[[Job], Awaitable[None]], client: WebhookClient, *, most: int) -> None:
        self._send = send
        self._client = client
        self._most = most
        self._in_flight = 0
        self._woken = trio.Event()
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

    def wake(self) -> None:
        """Run the next round now; without this there is one when a job ends."""
        self._woken.set()

    async def run(self, name: str, claim_and_start: Callable[[], Awaitable[bool]]) -> None:
        """Run rounds until cancelled; may be called again afterwards.

        Cancellation: requests in flight are cut off. Their claims expire, and they are sent again.

        Args:
            name: Of the loop, for the log.
            claim_and_start: One round; returns whether it found anything to do.
        """

        async def step() -> None:
            self._woken = trio.Event()
            if not await claim_and_start():
                await self._woken.wait()

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
            self.wake()
