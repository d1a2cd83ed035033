"""A device reports its position as soon as its session starts."""

from datetime import datetime

import pytest
import trio

from sightline_client import AsyncSightline, operator
from sightline_client.models import OperatorMessage, Session, Workspace
from sightline_client.operator import Operator, Position, operator_client
from tests.http.world import BERLIN, data_of, open_world


async def idle(_session: Session) -> None:
    await trio.sleep_forever()


async def test_a_device_reports_its_position_at_once_when_a_session_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session knows only positions that were reported while it is LIVE, and the next one is due 2 s later."""
    monkeypatch.setattr(operator, "HEARTBEAT_EVERY_S", 3_600.0)
    async with open_world() as world:
        consumer, filming = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await filming.go_online()

        async def publish(session: Session) -> None:
            world.video.show(session.id, 1)
            await trio.sleep_forever()

        async with (
            operator_client(world.base_url, filming.plaintext) as device_client,
            AsyncSightline(world.base_url, consumer.plaintext) as sl,
            trio.open_nursery() as nursery,
        ):
            device = Operator(device_client, position=lambda: Position(**BERLIN), publish=publish)
            nursery.start_soon(device.run)
            with trio.fail_after(20):
                async with sl.view(BERLIN["lat"], BERLIN["lng"]) as view:
                    while (frame := await view.frame()).location is None:
                        await trio.lowlevel.checkpoint()
            assert (frame.location.lat, frame.location.lng) == (BERLIN["lat"], BERLIN["lng"])
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_plain_or_an_async_function_hears_messages_and_availability(is_async: bool) -> None:
    async with open_world() as world:
        consumer, filming = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await filming.go_online()
        heard: list[str] = []

        def hear(_session: Session, message: OperatorMessage) -> None:
            heard.append(message.text)

        async def hear_async(session: Session, message: OperatorMessage) -> None:
            await trio.lowlevel.checkpoint()
            hear(session, message)

        def see(workspace: Workspace) -> None:
            heard.append(str(workspace.availability_state))

        async def see_async(workspace: Workspace) -> None:
            await trio.lowlevel.checkpoint()
            see(workspace)

        async def publish(_session: Session) -> None:
            await trio.sleep_forever()

        async with (
            operator_client(world.base_url, filming.plaintext) as device_client,
            AsyncSightline(world.base_url, consumer.plaintext) as sl,
            trio.open_nursery() as nursery,
        ):
            device = Operator(
                device_client,
                position=lambda: Position(**BERLIN),
                publish=publish,
                on_message=hear_async if is_async else hear,
                on_availability=see_async if is_async else see,
            )
            nursery.start_soon(device.run)
            with trio.fail_after(20):
                async with sl.view(BERLIN["lat"], BERLIN["lng"]) as view:
                    await view.tell("turn left")
                    while len(heard) < 2 or not (await view.refresh()).messages[0].shown:
                        await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        assert heard.count("turn left") == 1
        assert len(heard) > 1, "the state at the start"


async def test_a_device_goes_on_filming_after_its_publisher_has_failed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(operator, "PUBLISH_AGAIN_S", 0.0)
    async with open_world() as world:
        consumer, filming = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await filming.go_online()
        urls: list[str] = []

        async def publish(session: Session) -> None:
            urls.append(str(session.whip_url))
            if len(urls) == 1:
                raise OSError(f"the publisher of {session.whip_url} died")
            world.video.show(session.id, 1)
            await trio.sleep_forever()

        async with (
            operator_client(world.base_url, filming.plaintext) as device_client,
            AsyncSightline(world.base_url, consumer.plaintext) as sl,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(Operator(device_client, position=lambda: Position(**BERLIN), publish=publish).run)
            with trio.fail_after(20):
                async with sl.view(BERLIN["lat"], BERLIN["lng"]) as view:
                    assert (await view.frame()).jpeg
            nursery.cancel_scope.cancel()
        assert len(urls) == 2
        said = "\n".join(each.getMessage() for each in caplog.records if each.name == "sightline_client.operator")
        assert "publish_failed" in said
        assert "OSError: the publisher of <whip_url> died" in said
        assert urls[0] not in said


async def test_a_program_that_is_cancelled_ends_its_session_and_is_offline_when_it_leaves() -> None:
    async with open_world() as world:
        consumer, filming = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await filming.go_online()
        session = await world.request(consumer)
        path = f"/api/v1/sessions/{session['id']}"
        data_of(await consumer.key.post(f"{path}/dispatch"))
        films = trio.Event()

        async def publish(_session: Session) -> None:
            films.set()
            await trio.sleep_forever()

        async def device() -> None:
            async with operator_client(world.base_url, filming.plaintext) as device_client:
                operating = Operator(device_client, position=lambda: Position(**BERLIN), publish=publish)
                try:
                    await operating.run()
                finally:
                    await operating.leave()

        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(device)
                await films.wait()
                nursery.cancel_scope.cancel()
        ended, left = await consumer.key.get(path), await filming.key.get(filming.path)
    assert (data_of(ended)["state"], data_of(ended)["endReason"]) == ("ENDED", "OPERATOR_ENDED")
    assert data_of(left)["availabilityState"] == "OFFLINE"


async def test_a_device_that_decides_too_late_says_that_the_session_was_given_away() -> None:
    async with open_world() as world:
        consumer, filming = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await filming.go_online()
        session = await world.request(consumer)
        path = f"/api/v1/sessions/{session['id']}"
        data_of(await consumer.key.post(f"{path}/dispatch"))
        told: list[dict[str, object]] = []

        async def decline(_session: Session) -> bool:
            world.clock.advance(121)
            assert data_of(await consumer.key.get(path))["state"] == "REQUESTED"
            return False

        def report(event: str, /, **fields: object) -> None:
            if event in ("session_lost", "call_failed"):
                told.append({"event": event, **fields})

        async with operator_client(world.base_url, filming.plaintext) as device_client, trio.open_nursery() as nursery:
            device = Operator(
                device_client,
                position=lambda: Position(**BERLIN),
                publish=idle,
                decline=decline,
                report=report,
            )
            nursery.start_soon(device.run)
            with trio.fail_after(20):
                while not told:
                    await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    assert (told[0]["event"], told[0]["session_id"]) == ("session_lost", session["id"])
    assert "given to another operator" in str(told[0]["advice"])


async def test_a_device_says_once_that_its_operator_is_passed_over_for_a_start_that_it_missed() -> None:
    async with open_world() as world:
        filming = await world.party("SUPPLIER")
        await world.miss_start(await world.party("CONSUMER"), filming)
        until = data_of(await filming.key.get(filming.path))["passedOverUntil"]
        told: list[dict[str, object]] = []

        def report(event: str, /, **fields: object) -> None:
            if event == "passed_over":
                told.append(fields)

        async with operator_client(world.base_url, filming.plaintext) as device_client, trio.open_nursery() as nursery:
            device = Operator(device_client, position=lambda: Position(**BERLIN), publish=idle, report=report)
            nursery.start_soon(device.run)
            with trio.fail_after(20):
                while not told:
                    await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    assert told[0]["level"] == "warning"
    assert datetime.fromisoformat(str(told[0]["until"])) == datetime.fromisoformat(until).replace(microsecond=0)
    assert "was not started" in str(told[0]["advice"])


async def test_a_device_goes_on_after_the_heartbeats_of_the_run_before_and_reports_a_later_refusal() -> None:
    """It cannot know the last sequence of the run before; that another device goes ahead of it is worth a report."""
    async with open_world() as world:
        filming = await world.party("SUPPLIER")
        await filming.key.post(f"{filming.path}/location", BERLIN | {"sequence": 1_000_000_000})
        reported: list[tuple[str, object]] = []

        def report(event: str, /, **fields: object) -> None:
            if event != "availability_changed":
                reported.append((event, fields.get("message")))

        async def last_sequence() -> int:
            """By the refusal of an old one."""
            refused = await filming.key.post(f"{filming.path}/location", BERLIN | {"sequence": 1})
            return int(refused.json()["lastSequence"])

        async with operator_client(world.base_url, filming.plaintext) as device_client, trio.open_nursery() as nursery:
            device = Operator(device_client, position=lambda: Position(**BERLIN), publish=idle, report=report)
            nursery.start_soon(device.run)
            with trio.fail_after(20):
                while await last_sequence() == 1_000_000_000:
                    await trio.lowlevel.checkpoint()
                assert reported == []
                await filming.key.post(f"{filming.path}/location", BERLIN | {"sequence": 2_000_000_000})
                while not reported:
                    await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    event, message = reported[0]
    assert event == "heartbeat_refused"
    assert "2000000000" in str(message)
