"""Live updates as server-sent events."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing

from sightline.http.schemas.events import SessionLocation
from sightline.http.services import ResourceOptions
from tests.http.stream_client import StreamedAnswer, open_stream
from tests.http.world import Client, World, WorldOptions, data_of, error_of, open_world


class Events:
    """What comes down one stream."""

    def __init__(self, answer: StreamedAnswer) -> None:
        self.answer = answer
        self._text = ""

    async def next_block(self) -> str:
        """Lines up to the next empty one; empty at the end of the stream."""
        with trio.fail_after(60):
            while "\n\n" not in self._text:
                piece = await self.answer.piece()
                if piece is None:
                    return ""
                self._text += piece.decode()
        block, _, self._text = self._text.partition("\n\n")
        return block

    async def next(self) -> tuple[int, str, Any]:
        """Number, name and data of the next event."""
        lines = dict(line.split(": ", 1) for line in (await self.next_block()).splitlines())
        return int(lines["id"]), lines["event"], json.loads(lines["data"])

    async def until(self, name: str, **fields: Any) -> Any:
        """The first event of this name with these values."""
        while True:
            _, event, data = await self.next()
            if event == name and all(data[key] == value for key, value in fields.items()):
                return data


@asynccontextmanager
async def watching(client: Client, path: str, **headers: str) -> AsyncIterator[Events]:
    async with open_stream(client.world.base_url, path, client.having(**headers).headers) as answer:
        yield Events(answer)


async def test_a_session_is_followed_from_its_present_state_to_its_end(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    session = await world.request(consumer)
    path = f"/api/v1/sessions/{session['id']}"
    async with watching(consumer.key, f"{path}/events") as events:
        assert events.answer.headers["content-type"].startswith("text/event-stream")
        assert await events.next() == (1, "session", session)
        number, name, meter = await events.next()
        assert (number, name, meter["meterState"]) == (2, "meter", None)
        data_of(await operator.key.post(f"{path}/accept", {"operatorWorkspaceId": operator.id}))
        await events.until("session", state="ASSIGNED")
        data_of(await operator.key.post(f"{path}/start"))
        live = await events.until("session", state="LIVE")
        assert (live["whipUrl"], live["whepUrl"] is None) == (None, False)
        data_of(await operator.key.post(f"{path}/end"))
        await events.until("session", state="ENDED")
        await events.until("meter", meterState="STOPPED")


async def test_numbers_go_on_after_the_last_one_seen(world: World) -> None:
    consumer = await world.party("CONSUMER")
    session = await world.request(consumer)
    path = f"/api/v1/sessions/{session['id']}/events"
    async with watching(consumer.key, path, last_event_id="41") as events:
        assert (await events.next())[0] == 42
    async with watching(consumer.key, path, last_event_id="nonsense") as events:
        assert (await events.next())[0] == 1


async def test_an_operator_hears_of_its_assignment(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    async with watching(operator.key, f"{operator.path}/events") as events:
        assert (await events.next())[:2] == (1, "workspace")
        await operator.go_online()
        await events.until("workspace", availabilityState="ONLINE")
        session = await world.request(consumer)
        data_of(await consumer.key.post(f"/api/v1/sessions/{session['id']}/dispatch"))
        assigned = await events.until("assignment", id=session["id"])
        assert assigned["state"] == "ASSIGNED"
        assert assigned["metadata"] is None
    async with watching(operator.key, f"{operator.path}/events") as events:
        await events.until("workspace", availabilityState="BUSY")
        await events.until("assignment", id=session["id"])


async def test_streams_are_refused_in_the_envelope(world: World) -> None:
    consumer, other = await world.party("CONSUMER"), await world.party("CONSUMER")
    session = await world.request(consumer)
    path = f"/api/v1/sessions/{session['id']}/events"
    assert error_of(await other.key.get(path)) == (403, "NOT_AUTHORIZED", "session:workspaceMismatch")
    assert error_of(await other.key.get(f"{consumer.path}/events")) == (403, "NOT_AUTHORIZED", "workspace:mismatch")
    pricing = await consumer.mint("pricing:read")
    assert error_of(await pricing.get(path))[:2] == (403, "NOT_AUTHORIZED")


async def test_a_silent_stream_is_kept_open_by_comments_and_ends_at_its_lifetime() -> None:
    resources = ResourceOptions(keepalive_ms=50, stream_lifetime_ms=400)
    async with open_world(WorldOptions(resources=resources)) as world:
        consumer = await world.party("CONSUMER")
        session = await world.request(consumer)
        async with watching(consumer.key, f"/api/v1/sessions/{session['id']}/events") as events:
            await events.next()
            await events.next()
            assert await events.next_block() == ":"
            blocks = [":"]
            while blocks[-1]:
                blocks.append(await events.next_block())
            assert set(blocks) == {":", ""}


async def test_watchers_are_gone_with_their_clients(world: World) -> None:
    consumer = await world.party("CONSUMER")
    session = await world.request(consumer)
    async with watching(consumer.key, f"/api/v1/sessions/{session['id']}/events") as events:
        await events.next()
        assert len(world.watchers) == 1
    with trio.fail_after(60):
        while len(world.watchers):
            await trio.testing.wait_all_tasks_blocked(0.01)


async def test_a_workspace_holds_so_many_streams_and_no_more() -> None:
    async with open_world(WorldOptions(resources=ResourceOptions(streams_max=1))) as world:
        consumer, other = await world.party("CONSUMER"), await world.party("CONSUMER")
        path = f"/api/v1/sessions/{(await world.request(consumer))['id']}/events"
        async with watching(consumer.key, path) as events:
            await events.next()
            answer = await consumer.key.get(f"{consumer.path}/events")
            assert error_of(answer) == (429, "RATE_LIMITED", "streams:limit")
            assert answer.headers["retry-after"] == "5"
            async with watching(other.key, f"{other.path}/events") as theirs:
                await theirs.next()
        with trio.fail_after(60):
            while len(world.watchers):
                await trio.testing.wait_all_tasks_blocked(0.01)
        async with watching(consumer.key, path) as events:
            await events.next()


async def test_a_session_stream_follows_the_device_at_most_once_a_second(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    session = await world.live(consumer, operator)
    async with watching(consumer.key, f"/api/v1/sessions/{session['id']}/events") as events:
        await events.until("meter")
        data_of(await operator.beat(lat=52.5201))
        first = await events.until("location")
        at_s = trio.current_time()
        for step in range(2, 6):
            data_of(await operator.beat(lat=52.52 + step / 10_000))
        _, name, last = await events.next()
        assert trio.current_time() - at_s > 0.9
    assert (first["lat"], first["lng"], first["accuracyMeters"], first["inGeofence"]) == (52.5201, 13.405, 5.0, True)
    assert (name, last["lat"], last["sessionId"]) == ("location", 52.5205, session["id"])
    SessionLocation.model_validate(last)
    async with watching(operator.key, f"/api/v1/sessions/{session['id']}/events") as events:
        assert (await events.until("location"))["lat"] == 52.5205


async def test_a_heartbeat_wakes_no_stream_of_another_session(world: World) -> None:
    consumer, operator, other = (
        await world.party("CONSUMER"),
        await world.party("SUPPLIER"),
        await world.party("SUPPLIER"),
    )
    mine, theirs = await world.live(consumer, operator), await world.live(consumer, other)
    async with watching(consumer.key, f"/api/v1/sessions/{mine['id']}/events") as events:
        await events.until("meter")
        data_of(await other.beat())
        data_of(await operator.beat())
        assert (await events.next())[2]["sessionId"] == mine["id"] != theirs["id"]


async def test_a_consumer_follows_all_its_sessions_on_one_stream(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    early = await world.request(consumer)
    async with watching(consumer.key, f"{consumer.path}/events") as events:
        assert (await events.next())[1] == "workspace"
        assert (await events.next())[1:] == ("session", early)
        session = await world.request(consumer)
        await events.until("session", id=session["id"], state="REQUESTED")
        path = f"/api/v1/sessions/{session['id']}"
        data_of(await operator.key.post(f"{path}/accept", {"operatorWorkspaceId": operator.id}))
        data_of(await operator.key.post(f"{path}/start"))
        live = await events.until("session", id=session["id"], state="LIVE")
        assert (live["whipUrl"], live["whepUrl"] is None) == (None, False)
        data_of(await operator.key.post(f"{path}/end"))
        await events.until("session", id=session["id"], state="ENDED")
    async with watching(consumer.key, f"{consumer.path}/events") as events:
        await events.next()
        assert (await events.next())[2]["id"] == early["id"]


async def test_an_operator_hears_of_requests_within_its_coverage_until_they_close(world: World) -> None:
    consumer, operator, other = (
        await world.party("CONSUMER"),
        await world.party("SUPPLIER"),
        await world.party("SUPPLIER"),
    )
    await operator.go_online(coverageLat=52.52, coverageLng=13.405, coverageRadiusMeters=2_000)
    early = await world.request(consumer)
    await world.request(consumer, lat=48.1)
    async with watching(operator.key, f"{operator.path}/events") as events:
        assert (await events.until("request"))["id"] == early["id"]
        await world.request(consumer, lat=52.6)
        session = await world.request(consumer, instructions="North gate")
        told = await events.until("request")
        assert (told["id"], told["instructions"], told["metadata"]) == (session["id"], "North gate", None)
        body = {"operatorWorkspaceId": other.id}
        data_of(await other.key.post(f"/api/v1/sessions/{session['id']}/accept", body))
        assert await events.until("requestClosed") == {"sessionId": session["id"]}
        data_of(await consumer.key.delete(f"/api/v1/sessions/{early['id']}"))
        assert await events.until("requestClosed") == {"sessionId": early["id"]}


async def test_an_operator_that_accepts_a_request_hears_that_it_is_closed_before_it_hears_of_its_assignment(
    world: World,
) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    await operator.go_online()
    session = await world.request(consumer)
    async with watching(operator.key, f"{operator.path}/events") as events:
        await events.until("request", id=session["id"])
        accept = f"/api/v1/sessions/{session['id']}/accept"
        data_of(await operator.key.post(accept, {"operatorWorkspaceId": operator.id}))
        heard = []
        while "assignment" not in heard:
            heard.append((await events.next())[1])
        assert "requestClosed" in heard


async def test_an_operator_that_moves_its_coverage_gets_other_requests(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    await operator.go_online(coverageLat=52.52, coverageLng=13.405, coverageRadiusMeters=2_000)
    near, far = await world.request(consumer), await world.request(consumer, lat=48.1)
    async with watching(operator.key, f"{operator.path}/events") as events:
        await events.until("request", id=near["id"])
        data_of(await operator.key.patch(operator.path, {"coverageLat": 48.1, "coverageLng": 13.405}))
        assert await events.until("requestClosed") == {"sessionId": near["id"]}
        await events.until("request", id=far["id"])


async def test_a_consumer_hears_of_no_requests_of_others(world: World) -> None:
    consumer, other = await world.party("CONSUMER"), await world.party("CONSUMER")
    async with watching(other.key, f"{other.path}/events") as events:
        await events.next()
        await world.request(consumer)
        own = await world.request(other)
        names = [await events.next(), await events.next()]
        assert {(name, data["id"]) for _, name, data in names} <= {("workspace", other.id), ("session", own["id"])}


async def test_an_operator_that_declines_hears_that_the_assignment_is_closed_once(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    await operator.go_online()
    session = await world.request(consumer)
    path = f"/api/v1/sessions/{session['id']}"
    async with watching(operator.key, f"{operator.path}/events") as events:
        data_of(await operator.key.post(f"{path}/accept", {"operatorWorkspaceId": operator.id}))
        await events.until("assignment", id=session["id"], state="ASSIGNED")
        data_of(await operator.key.post(f"{path}/decline"))
        assert await events.until("assignmentClosed") == {"sessionId": session["id"]}
        data_of(await consumer.key.delete(path))
        other = await world.request(consumer)
        accept = f"/api/v1/sessions/{other['id']}/accept"
        data_of(await operator.key.post(accept, {"operatorWorkspaceId": operator.id}))
        heard = []
        while "assignment" not in heard:
            heard.append((await events.next())[1])
        assert "assignmentClosed" not in heard


async def test_an_operator_that_is_also_the_consumer_hears_of_its_decline_before_the_open_session(world: World) -> None:
    party = await world.party("CONSUMER", "SUPPLIER")
    await party.go_online()
    session = await world.request(party)
    path = f"/api/v1/sessions/{session['id']}"
    async with watching(party.key, f"{party.path}/events") as events:
        data_of(await party.key.post(f"{path}/accept", {"operatorWorkspaceId": party.id}))
        await events.until("session", id=session["id"], state="ASSIGNED")
        data_of(await party.key.post(f"{path}/decline"))
        assert await events.until("assignmentClosed") == {"sessionId": session["id"]}
        await events.until("session", id=session["id"], state="REQUESTED")
