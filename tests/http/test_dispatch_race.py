"""Many dispatches at once: as many pairs as there are operators, each operator once, and nobody left busy."""

import random

import httpx
import trio

from tests.http.world import Party, World, data_of, error_of

OPERATORS, REQUESTS = 50, 200


async def online(world: World, count: int) -> list[Party]:
    """Operators that became ONLINE one after the other, each a millisecond later than the one before."""
    operators = []
    for _ in range(count):
        operator = await world.party("SUPPLIER")
        await operator.go_online()
        world.clock.advance(0.001)
        operators.append(operator)
    return operators


async def test_200_dispatches_over_50_operators_give_50_distinct_pairs_and_150_times_503(world: World) -> None:
    operators = await online(world, OPERATORS)
    consumers = [await world.party("CONSUMER") for _ in range(4)]
    requests = [(consumer, await world.request(consumer)) for consumer in consumers for _ in range(REQUESTS // 4)]
    random.Random(7).shuffle(requests)
    answers: list[httpx.Response] = []

    async def dispatch(consumer: Party, session_id: str) -> None:
        answers.append(await consumer.key.post(f"/api/v1/sessions/{session_id}/dispatch"))

    async with trio.open_nursery() as nursery:
        for consumer, session in requests:
            nursery.start_soon(dispatch, consumer, session["id"])

    assigned = [data_of(answer) for answer in answers if answer.status_code == 200]
    refused = [answer for answer in answers if answer.status_code != 200]
    assert len(assigned) == OPERATORS
    assert {each["operatorWorkspaceId"] for each in assigned} == {operator.id for operator in operators}
    assert [error_of(answer)[:2] for answer in refused] == [(503, "UNAVAILABLE")] * (REQUESTS - OPERATORS)
    assert {answer.headers["retry-after"] for answer in refused} == {"5"}
    states = [data_of(await operator.key.get(operator.path))["availabilityState"] for operator in operators]
    assert set(states) == {"BUSY"}

    for operator in operators:
        assert data_of(await operator.key.post("/api/v1/sessions/cancel-all-assignments"))["count"] == 1
    states = [data_of(await operator.key.get(operator.path))["availabilityState"] for operator in operators]
    assert set(states) == {"ONLINE"}


async def test_operators_are_taken_in_the_order_in_which_they_became_idle(world: World) -> None:
    operators = await online(world, 10)
    consumer = await world.party("CONSUMER")
    data_of(await operators[0].key.patch(operators[0].path, {"availabilityState": "ONLINE"}))
    taken = []
    for _ in range(10):
        session = await world.request(consumer)
        data = data_of(await consumer.key.post(f"/api/v1/sessions/{session['id']}/dispatch"))
        taken.append(data["operatorWorkspaceId"])
    assert taken == [operator.id for operator in operators]


async def test_the_longest_idle_operators_are_taken_first_when_dispatches_race(world: World) -> None:
    operators = await online(world, 20)
    consumer = await world.party("CONSUMER")
    sessions = [await world.request(consumer) for _ in range(8)]
    taken: list[str] = []

    async def dispatch(session_id: str) -> None:
        data = data_of(await consumer.key.post(f"/api/v1/sessions/{session_id}/dispatch"))
        taken.append(data["operatorWorkspaceId"])

    async with trio.open_nursery() as nursery:
        for session in sessions:
            nursery.start_soon(dispatch, session["id"])
    assert set(taken) == {operator.id for operator in operators[:8]}
