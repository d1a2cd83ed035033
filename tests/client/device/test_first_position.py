"""A device reports its position as soon as its session starts."""

import pytest
import trio

from sightline_client import AsyncSightline, operator
from sightline_client.models import OperatorMessage, Session, Workspace
from sightline_client.operator import Operator, Position, operator_client
from tests.http.world import BERLIN, open_world


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


async def test_a_device_goes_on_after_the_heartbeats_of_the_run_before_and_reports_a_later_refusal() -> None:
    """It cannot know the last sequence of the run before; that another device goes ahead of it is worth a report."""
    async with open_world() as world:
        filming = await world.party("SUPPLIER")
        await filming.key.post(f"{filming.path}/location", BERLIN | {"sequence": 1_000_000_000})
        reported: list[tuple[str, object]] = []

        def report(event: str, /, **fields: object) -> None:
            reported.append((event, fields.get("message")))

        async def last_sequence() -> int:
            """By the refusal of an old one."""
            refused = await filming.key.post(f"{filming.path}/location", BERLIN | {"sequence": 1})
            return int(refused.json()["lastSequence"])

        async with operator_client(world.base_url, filming.plaintext) as device_client, trio.open_nursery() as nursery:
            device = Operator(
                device_client, position=lambda: Position(**BERLIN), publish=trio.sleep_forever, report=report
            )
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
