"""The watch of what waits and the loop that sends, on virtual time."""

from dataclasses import dataclass, field

import trio
from trio.testing import MockClock

from sightline.domain.errors import StoreUnavailableError
from sightline.ports.webhooks import Unsent
from sightline.webhooks.sends import Sends, UnsentWatch


@dataclass
class Queues:
    """Two queues of jobs, each a number of seconds that sending takes; notes when it was asked."""

    webhooks: list[float] = field(default_factory=list)
    pushes: list[float] = field(default_factory=list)
    asked_at_s: list[float] = field(default_factory=list)
    claims: int = 0
    is_down: bool = False

    async def unsent(self) -> Unsent:
        self.asked_at_s.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        if self.is_down:
            raise StoreUnavailableError("down")
        return Unsent(webhooks=bool(self.webhooks), pushes=bool(self.pushes))


class Client:
    """Stands for the network."""

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()


class Sender:
    """Sends the jobs of one queue."""

    def __init__(self, queues: Queues, jobs: list[float], *, most: int = 8) -> None:
        self._queues, self._jobs = queues, jobs
        self.sends = Sends(self._send, Client(), most=most)  # type: ignore[arg-type]  # stands for the client
        self.began_at_s: list[float] = []

    async def run(self) -> None:
        await self.sends.run("test", self._round)

    async def _round(self) -> bool:
        self._queues.claims += 1
        await trio.lowlevel.checkpoint()
        jobs = [self._jobs.pop(0) for _ in range(min(self.sends.free, len(self._jobs)))]
        self.sends.start(jobs)
        return bool(jobs)

    async def _send(self, takes_s: float) -> None:
        self.began_at_s.append(trio.current_time())
        await trio.sleep(takes_s)


async def test_an_idle_service_asks_twice_a_second_and_claims_nothing(autojump_clock: MockClock) -> None:
    queues = Queues()
    webhooks, pushes = Sender(queues, queues.webhooks), Sender(queues, queues.pushes)
    watch = UnsentWatch(queues, webhooks=webhooks.sends.wake, pushes=pushes.sends.wake)
    with trio.move_on_after(9.75):
        async with trio.open_nursery() as nursery:
            for run in (webhooks.run, pushes.run, watch.run):
                nursery.start_soon(run)
    assert queues.asked_at_s == [step / 2 for step in range(20)]
    assert queues.claims == 2, "each looks once at its start"


async def test_what_another_server_queued_is_sent_within_half_a_second(autojump_clock: MockClock) -> None:
    queues = Queues()
    webhooks, pushes = Sender(queues, queues.webhooks), Sender(queues, queues.pushes)
    watch = UnsentWatch(queues, webhooks=webhooks.sends.wake, pushes=pushes.sends.wake)
    async with trio.open_nursery() as nursery:
        for run in (webhooks.run, pushes.run, watch.run):
            nursery.start_soon(run)
        await trio.sleep(1.25)
        queues.webhooks.append(1)
        await trio.sleep(1)
        queues.pushes.append(1)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert (webhooks.began_at_s, pushes.began_at_s) == ([1.5], [2.5])


async def test_a_job_that_ends_makes_place_for_the_next_at_once(autojump_clock: MockClock) -> None:
    queues = Queues(webhooks=[0.1, 0.1, 0.1])
    sender = Sender(queues, queues.webhooks, most=1)
    with trio.move_on_after(1):
        await sender.run()
    assert [round(at_s, 3) for at_s in sender.began_at_s] == [0, 0.1, 0.2]


async def test_a_watch_whose_store_was_away_wakes_the_sender_again(autojump_clock: MockClock) -> None:
    queues = Queues(is_down=True)
    pushes = Sender(queues, queues.pushes)
    watch = UnsentWatch(queues, webhooks=lambda: None, pushes=pushes.sends.wake)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pushes.run)
        nursery.start_soon(watch.run)
        await trio.sleep(60)
        queues.is_down = False
        queues.pushes.append(1)
        await trio.sleep(31)
        assert len(pushes.began_at_s) == 1
        nursery.cancel_scope.cancel()
