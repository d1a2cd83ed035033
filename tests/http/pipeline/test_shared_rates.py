"""Several servers limit one caller together."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import trio
import trio.testing

from sightline.cluster.bus.memory import MemoryNetwork
from sightline.cluster.peers.peers import Peers
from sightline.cluster.rates import RemoteRates
from sightline.cluster.routes import Routes
from sightline.http.budgets import Budget, RateClass, RateLimits
from sightline.http.pipeline.errors import ApiError
from sightline.http.pipeline.rate_limit import RateLimiter

BUDGET = Budget(per_s=10, burst=20)
SERVERS = 3


@asynccontextmanager
async def limiters() -> AsyncIterator[tuple[list[RateLimiter], list[Peers]]]:
    """The limiters of servers that reach each other, with equal budgets."""
    network, names = MemoryNetwork(), [f"server {number}" for number in range(SERVERS)]
    made: list[RateLimiter] = []
    peers: list[Peers] = []
    async with trio.open_nursery() as nursery:
        for name in names:
            routes = Routes(name)
            routes.read(dict.fromkeys(names, ()))
            peers.append(Peers(network.join(name), routes))
            sharing = RemoteRates(peers[-1])
            made.append(RateLimiter(RateLimits(budgets={RateClass.DEFAULT: BUDGET}), sharing))
            await nursery.start(peers[-1].run)
            nursery.start_soon(sharing.run)
        yield made, peers
        nursery.cancel_scope.cancel()


async def taken(servers: list[RateLimiter], *, per_s: float, seconds: float) -> int:
    """How many requests of one caller pass that sends to all servers in turn."""
    passed = 0
    for number in range(int(per_s * seconds)):
        with suppress(ApiError):
            servers[number % len(servers)].take(RateClass.DEFAULT, "caller", trio.current_time())
            passed += 1
        await trio.sleep(1 / per_s)
    return passed


async def test_a_caller_of_all_servers_gets_the_rate_of_one(autojump_clock: trio.testing.MockClock) -> None:
    async with limiters() as (servers, _):
        passed = await taken(servers, per_s=60, seconds=60)
        # The rate of one bucket for a minute; each server gives a burst once, and what passes before the news arrive.
        assert 0.9 * 600 <= passed <= 600 + SERVERS * BUDGET.burst + 20


async def test_a_caller_within_the_rate_is_never_refused_and_causes_no_messages(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with limiters() as (servers, peers):
        assert await taken(servers, per_s=9, seconds=60) == 540
        assert sum(each.counts.frames_received for each in peers) == 0


async def test_what_is_taken_at_one_server_is_missing_at_the_others(autojump_clock: trio.testing.MockClock) -> None:
    async with limiters() as (servers, _):
        for _ in range(BUDGET.burst):
            servers[0].take(RateClass.DEFAULT, "caller", trio.current_time())
        await trio.sleep(0.15)
        passed = 0
        with suppress(ApiError):
            while True:
                servers[1].take(RateClass.DEFAULT, "caller", trio.current_time())
                passed += 1
        assert passed < BUDGET.burst / 2
        servers[1].take(RateClass.DEFAULT, "another caller", trio.current_time())
