"""A market in virtual time, with and without attackers.

`python -m tests.actors.market.simulation [--hours N] [--seed N]`

50 honest operators and 200 honest consumers, whose wallets pay, use the service as their apps do. 100 free wallets
attack as operators: they are ONLINE, send heartbeats, acknowledge what they are given, never start, and accept every
open request. 100 free wallets attack as consumers: they request and dispatch as often as they may. Printed for both
runs: the honest requests that were filled, the time from the request to the picture, and the rate that was paid.
"""

import argparse
import itertools
import random
import statistics
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio
import trio.testing

from sightline.actors.deps import ActorLimits
from sightline.actors.types import SessionListing
from sightline.domain.errors import OutcomeUnknownError, RefusedError, UnavailableError
from sightline.domain.operator.machine import Patch
from sightline.domain.operator.model import Availability, WorkspaceRole
from sightline.domain.session.messages import Party
from sightline.domain.session.model import SessionState
from sightline.ports.ledger import BlockApplication, BlockRef, WalletReading
from sightline.ports.store import SessionView
from tests.actors.world import LAT, LNG, World

HONEST_OPERATORS, HONEST_CONSUMERS, ATTACKERS = 50, 200, 100
BETWEEN_REQUESTS_S = 900
FILM_S = 45
RETRY_S = 5
WARM_UP_S = 3_600
RICH = 10**12


@dataclass
class Outcome:
    """What honest consumers got within the measured time."""

    requests: int = 0
    waits_s: list[float] = field(default_factory=list)
    rates: list[int] = field(default_factory=list)

    @property
    def filled(self) -> float:
        return len(self.waits_s) / max(1, self.requests)

    @property
    def wait_s(self) -> float:
        return statistics.mean(self.waits_s)

    @property
    def rate(self) -> float:
        return statistics.mean(self.rates)


class Market:
    """One run: the service, its honest users, and perhaps the attackers."""

    def __init__(self, seed: int, *, measured_s: float, attackers: int) -> None:
        self.world = World(ActorLimits(funds_policy="enforced"))
        self.seed, self.measured_s, self.attackers = seed, measured_s, attackers
        self.outcome = Outcome()
        self._wallets = 0

    def rng(self, name: str) -> random.Random:
        return random.Random(f"{self.seed}/{name}")

    def wallet(self) -> str:
        self._wallets += 1
        return f"0x{self._wallets:040x}"

    async def run(self) -> Outcome:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.world.run)
            wallets = [self.wallet() for _ in range(HONEST_CONSUMERS)]
            await self._fund(wallets)
            nursery.start_soon(self._keep_checked)
            for number in range(HONEST_OPERATORS):
                nursery.start_soon(self._operate, self.wallet(), self.rng(f"operator {number}"), self._film)
            for number, wallet in enumerate(wallets):
                nursery.start_soon(self._consume, wallet, self.rng(f"consumer {number}"))
            await trio.sleep(WARM_UP_S)
            for number in range(self.attackers):
                nursery.start_soon(self._operate, self.wallet(), self.rng(f"attacker {number}"), self._hold_and_accept)
                nursery.start_soon(self._waste, self.wallet(), self.rng(f"waster {number}"))
            await trio.sleep(self.measured_s)
            nursery.cancel_scope.cancel()
        return self.outcome

    async def _fund(self, wallets: list[str]) -> None:
        block = BlockRef(number=1, block_hash="0xb1", parent_hash="0xb0")
        readings = tuple(
            WalletReading(address=wallet, balance_micro=RICH, allowance_micro=RICH, block_number=1)
            for wallet in wallets
        )
        application = BlockApplication(
            headers=(block,), events=(), readings=readings, settled=(), head=block, confirmed_block=1, previous=None
        )
        await self.world.ledger.apply_blocks(application, now_ms=self.world.clock.now_ms())

    async def _keep_checked(self) -> None:
        while True:
            await self.world.ledger.mark_checked(now_ms=self.world.clock.now_ms())
            await trio.sleep(10)

    # Operators.

    async def _operate(
        self, wallet: str, rng: random.Random, work: Callable[[str, random.Random], Awaitable[None]]
    ) -> None:
        """Be ONLINE with a heartbeat every 20 s, and do the work of this kind of operator."""
        world = self.world
        operator = await world.workspace(WorkspaceRole.SUPPLIER, wallet=wallet)
        online = Patch(availability=Availability.ONLINE, coverage_lat=LAT, coverage_lng=LNG, coverage_radius_m=20_000.0)
        sequence = 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work, operator, rng)
            while True:
                async with quietly():
                    if await world.availability(operator) is Availability.OFFLINE:
                        await world.broker.patch_workspace(operator, world.caller(operator), online)
                async with quietly():
                    sequence += 1
                    await world.heartbeat(operator, 1_000_000 * sequence)
                await trio.sleep(20)

    async def _film(self, operator: str, rng: random.Random) -> None:
        """Start each assignment after some seconds, and film until the consumer hangs up."""
        world = self.world
        async with world.broker.updates.watch_workspace(operator) as updates:
            async for update in updates:
                if update.kind == "assignment" and update.value.state is SessionState.ASSIGNED:
                    await trio.sleep(rng.uniform(5, 25))
                    async with quietly():
                        await world.broker.start(update.value.terms.id, world.caller(operator))
                        await self._send_video(update.value.terms.id, operator)

    async def _send_video(self, session: str, operator: str) -> None:
        world, count = self.world, 0
        while (await world.view(session, operator)).state is SessionState.LIVE:
            count += 1
            workspace = (await world.broker.reads.read_workspace(operator)).value
            await world.heartbeat(operator, workspace.last_sequence + 1)
            world.frames(session)
            await trio.sleep(4)

    async def _hold_and_accept(self, operator: str, rng: random.Random) -> None:
        """Acknowledge what is dispatched, accept what is open, and start nothing."""
        world = self.world
        for turn in itertools.count():
            await trio.sleep(rng.uniform(5, 9))
            workspace = (await world.broker.reads.read_workspace(operator)).value
            for session in workspace.claims:
                async with quietly():
                    await world.view(session, operator)
            if turn % 4:
                continue
            page = await world.broker.reads.list_sessions(operator, SessionListing(view=SessionView.OPEN, limit=20))
            for status in page.items:
                async with quietly():
                    await world.broker.accept(status.terms.id, world.caller(operator), operator)

    # Consumers.

    async def _consume(self, wallet: str, rng: random.Random) -> None:
        world = self.world
        consumer = await world.workspace(WorkspaceRole.CONSUMER, wallet=wallet)
        while True:
            await trio.sleep(rng.expovariate(1 / BETWEEN_REQUESTS_S))
            is_measured = trio.current_time() >= WARM_UP_S
            async with quietly():
                session = await world.request(consumer, wait_timeout_s=300, max_duration_s=120)
                wait_s = await self._until_live(consumer, session)
                if is_measured:
                    self.outcome.requests += 1
                    self.outcome.rates.append((await world.view(session, consumer)).terms.rate)
                    self.outcome.waits_s += [] if wait_s is None else [wait_s]
                if wait_s is not None:
                    await trio.sleep(FILM_S)
                    await world.broker.end(session, world.caller(consumer), frozenset({Party.CONSUMER}))

    async def _until_live(self, consumer: str, session: str) -> float | None:
        """Follow the session, and dispatch it whenever it is REQUESTED.

        Returns:
            The seconds until it was LIVE, or None if it is over before.
        """
        world, began = self.world, trio.current_time()
        async with world.broker.updates.watch_session(session, consumer) as updates:
            async for update in updates:
                if update.kind != "session":
                    continue
                if update.value.state is SessionState.LIVE:
                    return trio.current_time() - began
                if update.value.state is SessionState.REQUESTED:
                    await self._dispatch(consumer, session)
                elif update.value.state is not SessionState.ASSIGNED:
                    return None
        return None

    async def _dispatch(self, consumer: str, session: str) -> None:
        world = self.world
        while (await world.view(session, consumer)).state is SessionState.REQUESTED:
            async with quietly():
                await world.broker.dispatch(session, world.caller(consumer))
                return
            await trio.sleep(RETRY_S)

    async def _waste(self, wallet: str, rng: random.Random) -> None:
        """Request and dispatch for ever, with a wallet that has nothing."""
        world = self.world
        consumer = await world.workspace(WorkspaceRole.CONSUMER, wallet=wallet)
        while True:
            await trio.sleep(rng.uniform(30, 90))
            async with quietly():
                session = await world.request(consumer, max_duration_s=14_400, wait_timeout_s=3_600)
                await world.broker.dispatch(session, world.caller(consumer))


class quietly:  # noqa: N801  reads as a statement
    """Ignore what the service answers to a call that it does not carry out."""

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        return isinstance(error, RefusedError | UnavailableError | OutcomeUnknownError)


def simulate(seed: int, *, measured_s: float, attackers: int) -> Outcome:
    """Run one market in virtual time."""
    market = Market(seed, measured_s=measured_s, attackers=attackers)
    return trio.run(market.run, clock=trio.testing.MockClock(autojump_threshold=0))


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.actors.market.simulation", description=__doc__)
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sys.stdout.write(
        "| attackers of each role | honest requests | filled | mean wait s | rate |\n|---|---|---|---|---|\n"
    )
    for attackers in (0, ATTACKERS):
        found = simulate(options.seed, measured_s=3_600 * options.hours, attackers=attackers)
        sys.stdout.write(
            f"| {attackers} | {found.requests} | {found.filled:.3f} | {found.wait_s:.1f} | {found.rate:.0f} |\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
