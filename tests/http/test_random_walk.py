"""Concurrent callers make random calls over HTTP: no call fails unexpectedly, and the final state is consistent."""

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import httpx
import pytest
import trio
import trio.testing

from sightline.storage.database.bridge import Database
from tests.http.world import BERLIN, Party, World, data_of, in_memory, on_postgres, open_world

SESSIONS = "/api/v1/sessions"
CALLERS, STEPS, STEPS_MAX = 12, 25, 200
MUST_SUCCEED = frozenset({"create", "dispatch", "accept", "cancel all"})
"""A walk goes on until each of these succeeded once: few random calls meet a session that they may change."""
Step: TypeAlias = Callable[[], Awaitable[httpx.Response]]


class Walk:
    """Two consumers, three operators, and a shared list of sessions that all of them call."""

    def __init__(self, world: World, consumers: list[Party], operators: list[Party]) -> None:
        self.world, self.consumers, self.operators = world, consumers, operators
        self.sessions: list[str] = []
        self.statuses: Counter[tuple[str, int]] = Counter()

    async def caller(self, seed: int) -> None:
        dice = random.Random(seed)
        for number in range(STEPS_MAX):
            if number >= STEPS and self.succeeded() >= MUST_SUCCEED:
                return
            name, step = self.draw(dice)
            answer = await step()
            self.statuses[name, answer.status_code] += 1
            assert answer.status_code < 500 or answer.status_code == 503, answer.text
            if name == "create":
                self.sessions.append(data_of(answer)["id"])

    def succeeded(self) -> set[str]:
        return {name for (name, status), _ in self.statuses.items() if status == 200}

    def draw(self, dice: random.Random) -> tuple[str, Step]:
        consumer, operator = dice.choice(self.consumers), dice.choice(self.operators)
        session_id = dice.choice(self.sessions) if self.sessions else ""
        path = f"{SESSIONS}/{session_id}"
        key = {"idempotency-key": str(dice.randrange(1_000_000))} if dice.random() < 0.3 else {}
        state = dice.choice(["ONLINE", "OFFLINE"])
        fields = {"maxDurationSeconds": dice.choice([60, 600])}
        steps: dict[str, Step] = {
            "create": lambda: consumer.key.post(SESSIONS, BERLIN | fields, headers=key),
            "availability": lambda: operator.key.patch(operator.path, {"availabilityState": state}),
            "cancel all": lambda: operator.key.post(f"{SESSIONS}/cancel-all-assignments", headers=key),
            "list": lambda: consumer.key.get(f"{SESSIONS}?state=LIVE&state=ENDED&limit=3"),
        }
        if session_id:
            steps |= {
                "dispatch": lambda: consumer.key.post(f"{path}/dispatch", headers=key),
                "accept": lambda: operator.key.post(
                    f"{path}/accept", {"operatorWorkspaceId": operator.id}, headers=key
                ),
                "start": lambda: operator.key.post(f"{path}/start", headers=key),
                "end": lambda: dice.choice([consumer, operator]).key.post(f"{path}/end", headers=key),
                "cancel": lambda: consumer.key.delete(path),
                "read": lambda: consumer.key.get(path),
                "beat": operator.beat,
            }
        name = dice.choice(list(steps))
        return name, steps[name]

    async def check(self) -> None:
        """Check what must hold once every call was answered."""
        open_of: Counter[str] = Counter()
        live_of: Counter[str] = Counter()
        held_of: Counter[str] = Counter()
        for consumer in self.consumers:
            page = data_of(await consumer.key.get(f"{SESSIONS}?view=consumer&limit=100"))
            for session in page["items"]:
                operator_id, state = session["operatorWorkspaceId"], session["state"]
                assert int(session["chargedMicroUsdc"]) <= int(session["holdMicroUsdc"])
                if state in {"ASSIGNED", "LIVE"}:
                    open_of[operator_id] += 1
                if state == "LIVE":
                    live_of[operator_id] += 1
                if state in {"REQUESTED", "ASSIGNED", "LIVE"}:
                    held_of[consumer.id] += int(session["holdMicroUsdc"])
                elif state == "ENDED":
                    held_of[consumer.id] += int(session["chargedMicroUsdc"])
        for operator in self.operators:
            state = data_of(await operator.key.get(operator.path))["availabilityState"]
            assert live_of[operator.id] <= 1
            assert state == "BUSY" or not live_of[operator.id]
            assert state != "BUSY" or open_of[operator.id]
        for consumer in self.consumers:
            wallet = data_of(await consumer.key.get("/api/v1/wallet"))
            assert wallet["heldMicroUsdc"] == str(held_of[consumer.id])


async def walk(world: World, seed: int) -> None:
    walk = Walk(
        world,
        [await world.party("CONSUMER") for _ in range(2)],
        [await world.party("SUPPLIER") for _ in range(3)],
    )
    async with trio.open_nursery() as nursery:
        for number in range(CALLERS):
            nursery.start_soon(walk.caller, seed * 1_000 + number)
    assert walk.succeeded() >= MUST_SUCCEED, walk.statuses
    with trio.fail_after(60):
        while True:  # an operator is given back right after the answer that freed it
            try:
                await walk.check()
            except AssertionError:
                if trio.current_effective_deadline() - trio.current_time() < 1:
                    raise
                await trio.testing.wait_all_tasks_blocked(0.05)
            else:
                return


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_a_crowd_leaves_everything_in_order(seed: int) -> None:
    async with open_world(storage=in_memory()) as world:
        await walk(world, seed)


async def test_a_crowd_leaves_everything_in_order_on_postgres(database: Database) -> None:
    async with open_world(storage=await on_postgres(database)) as world:
        await walk(world, 4)
