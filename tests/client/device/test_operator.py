"""A device goes on, and says what is wrong, when functions of its program fail or its key is refused."""

import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

import httpx2
import pytest
import trio

from sightline_client import AsyncSightline, operator
from sightline_client.callbacks import failure_of
from sightline_client.device.run import DeviceOptions, run_device
from sightline_client.device.statements import keep_statements
from sightline_client.errors import NotAuthorizedError
from sightline_client.models import Session, Workspace
from sightline_client.operator import Operator, Position, operator_client
from tests.http.world import BERLIN, Party, World, WorldOptions, data_of, open_world

HERE = Position(**BERLIN)
SOME_ID = "0" * 8 + "-0000-4000-8000-" + "0" * 12
QUIET = ("heartbeats_by_post", "availability_changed")
"""Events that a device reports beside those of a claim."""


class Log:
    """What a device reported."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.statuses: list[int] = []
        """Of the answers to the device's calls."""

    def __call__(self, event: str, /, **fields: object) -> None:
        self.entries.append({"event": event, "level": "info"} | fields)

    def of(self, event: str, **fields: object) -> list[dict[str, Any]]:
        return [each for each in self.entries if each.items() >= ({"event": event} | fields).items()]

    async def count(self, answer: httpx2.Response) -> None:
        await trio.lowlevel.checkpoint()
        self.statuses.append(answer.status_code)

    async def until(self, event: str, **fields: object) -> dict[str, Any]:
        """Wait until an event was reported; returns the first one."""
        while not (found := self.of(event, **fields)):
            await trio.lowlevel.checkpoint()
        return found[0]


async def idle(_session: Session) -> None:
    await trio.sleep_forever()


@asynccontextmanager
async def device(world: World, filming: Party, **functions: Any) -> AsyncIterator[Log]:
    """Run a device, and stop it when the block is left. The block has 30 s."""
    log = Log()
    async with operator_client(world.base_url, filming.plaintext) as client, trio.open_nursery() as nursery:
        client.transport.http.event_hooks = {"response": [log.count]}
        made = Operator(client, **({"position": lambda: HERE, "publish": idle, "report": log} | functions))
        nursery.start_soon(made.run)
        with trio.fail_after(30):
            yield log
        nursery.cancel_scope.cancel()


def failing(*_: object) -> Any:
    raise KeyError("of the program")


async def failing_async(*_: object) -> Any:
    await trio.lowlevel.checkpoint()
    raise KeyError("of the program")


@pytest.mark.parametrize("fail", [failing, failing_async])
async def test_a_device_goes_on_filming_while_functions_of_its_program_fail(
    fail: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator, "AVAILABILITY_EVERY_S", 0.0)
    async with open_world() as world:
        consumer, filming = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await filming.go_online()
        functions = dict.fromkeys(("decline", "on_availability", "on_area", "on_message"), fail)
        async with (
            device(world, filming, **functions) as log,
            AsyncSightline(world.base_url, consumer.plaintext) as sl,
            sl.view(BERLIN["lat"], BERLIN["lng"]) as view,
        ):
            await view.tell("turn left")
            await log.until("callback_failed", callback="on_message")
            data_of(await filming.key.patch(filming.path, {"coverageLat": 1, "coverageLng": 2}))
            await log.until("callback_failed", callback="on_area")
            await view.tell("turn right")
            while len(log.of("callback_failed", callback="on_message")) < 2:
                await trio.lowlevel.checkpoint()
            messages = (await view.refresh()).messages
        assert [message.shown for message in messages] == [False, False]
        assert view.session.state == "ENDED"
        told = {each["callback"]: each for each in log.of("callback_failed")}
    assert set(told) == set(functions)
    assert {(each["level"], each["error"]) for each in told.values()} == {("warning", "KeyError: 'of the program'")}
    assert [told[name].get("session_id") for name in functions] == [view.session.id, None, None, view.session.id]


async def test_an_open_session_for_which_accept_fails_is_not_accepted_and_said_once() -> None:
    async with open_world() as world:
        consumer, filming = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await filming.go_online()
        wanted, unclear = [await world.request(consumer) for _ in range(2)]
        asked: list[str] = []

        async def accept(session: Session) -> bool:
            await trio.lowlevel.checkpoint()
            asked.append(session.id)
            if session.id == unclear["id"]:
                raise ValueError("no map")
            return asked.count(unclear["id"]) > 1

        async with device(world, filming, accept=accept) as log:
            started = await log.until("session_started")
        assert started["session_id"] == wanted["id"]
        assert [each["session_id"] for each in log.of("callback_failed", callback="accept")] == [unclear["id"]]


@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_plain_or_an_async_function_declines(is_async: bool, answers: bool) -> None:
    async with open_world() as world:
        consumer, filming = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await filming.go_online()
        session = await world.request(consumer)
        data_of(await consumer.key.post(f"/api/v1/sessions/{session['id']}/dispatch"))

        def decline(_session: Session) -> bool | Awaitable[bool]:
            async def decide() -> bool:
                await trio.lowlevel.checkpoint()
                return answers

            return decide() if is_async else answers

        async with device(world, filming, decline=decline) as log:
            await log.until("session_declined" if answers else "session_started")
        assert len(log.of("session_declined")) == answers


async def test_a_device_without_a_position_sends_no_heartbeat_and_says_once_that_its_function_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(operator, "HEARTBEAT_EVERY_S", 0.0)
    async with open_world() as world:
        filming = await world.party("SUPPLIER")
        calls = {"raising": 0, "none": 0, "unsendable": 0}
        kind = "raising"

        def position() -> Position | None:
            if kind == "here":
                return HERE
            calls[kind] += 1
            if kind == "raising":
                raise OSError("the receiver is gone")
            return None if kind == "none" else Position(lat=float("nan"), lng=0)

        async with device(world, filming, position=position) as log:
            for kind in calls:
                while calls[kind] < 3:
                    await trio.lowlevel.checkpoint()
            assert data_of(await filming.key.get(filming.path))["lastSeenAt"] is None
            kind = "here"
            while data_of(await filming.key.get(filming.path))["lastSeenAt"] is None:
                await trio.lowlevel.checkpoint()
        said = [each["error"] for each in log.of("callback_failed", callback="position", level="warning")]
    assert said[0] == "OSError: the receiver is gone"
    assert len(said) == 2
    assert said[1].startswith("ValueError")


async def test_a_device_whose_key_is_refused_warns_once_and_films_when_it_is_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(operator, "KEY_AGAIN_S", 0.01)
    monkeypatch.setattr(operator, "AVAILABILITY_EVERY_S", 0.01)
    monkeypatch.setattr(operator, "HEARTBEAT_EVERY_S", 0.01)
    async with open_world(WorldOptions(recheck_s=0.05)) as world:
        consumer, filming = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await filming.go_online()
        (key,) = data_of(await filming.wallet.get(f"{filming.path}/api-keys"))["items"]
        async with device(world, filming) as log:
            while data_of(await filming.wallet.get(filming.path))["lastSeenAt"] is None:
                await trio.lowlevel.checkpoint()
            data_of(await filming.wallet.post(f"{filming.path}/api-keys/{key['keyId']}/revoke"))
            world.clock.advance(61)
            refused = await log.until("key_refused")
            while log.statuses.count(401) < 20:
                await trio.lowlevel.checkpoint()
            assert [each["event"] for each in log.entries if each["event"] not in QUIET] == ["key_refused"]
            world.clock.advance(-61)
            await log.until("key_accepted")
            session = await world.request(consumer)
            data_of(await consumer.key.post(f"/api/v1/sessions/{session['id']}/dispatch"))
            await log.until("session_started")
        assert len(log.of("key_refused")) == len(log.of("key_accepted")) == 1
    assert refused["level"] == "warning"
    assert "revoked" in refused["error"]
    assert "restart the device" in refused["advice"]


async def test_a_device_whose_key_is_refused_asks_no_more_than_each_of_its_loops_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(operator, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(operator, "AVAILABILITY_EVERY_S", 0.0)
    monkeypatch.setattr(operator, "HEARTBEAT_EVERY_S", 0.0)
    async with open_world(WorldOptions(recheck_s=0.0)) as world:
        filming = await world.party("SUPPLIER")
        (key,) = data_of(await filming.wallet.get(f"{filming.path}/api-keys"))["items"]
        async with device(world, filming) as log:
            data_of(await filming.wallet.post(f"{filming.path}/api-keys/{key['keyId']}/revoke"))
            world.clock.advance(61)
            await log.until("key_refused")
            for _ in range(50):  # time for as many calls of each loop
                data_of(await filming.wallet.get(filming.path))
        assert 1 <= log.statuses.count(401) <= 4, "assignments, availability, a WebSocket and a heartbeat by POST"
        assert operator.KEY_AGAIN_S == 15


async def test_a_call_that_is_refused_again_and_again_is_a_warning_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator, "LOOK_EVERY_S", 0.0)
    async with open_world() as world:
        consumer, filming = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await world.miss_start(consumer, filming)  # it may not accept for a minute
        await world.request(consumer)
        asked: list[str] = []

        def accept(session: Session) -> bool:
            asked.append(session.id)
            return True

        async with device(world, filming, accept=accept) as log:
            while len(asked) < 4:
                await trio.lowlevel.checkpoint()
        (refused,) = log.of("call_failed")
    assert refused["level"] == "warning"


async def test_a_publisher_that_returns_while_its_session_is_live_is_told_and_called_again() -> None:
    async with open_world() as world:
        consumer, filming = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await filming.go_online()
        calls: list[str] = []
        ended = trio.Event()

        async def publish(session: Session) -> None:
            calls.append(str(session.whip_url))
            if len(calls) == 2:
                await ended.wait()  # it notices the end before the device does

        async with (
            device(world, filming, publish=publish) as log,
            AsyncSightline(world.base_url, consumer.plaintext) as sl,
        ):
            async with sl.view(BERLIN["lat"], BERLIN["lng"]) as view:
                while len(calls) < 2:
                    await trio.lowlevel.checkpoint()
            ended.set()
            await log.until("session_over")
        told = [(each["event"], each["level"]) for each in log.entries if each.get("session_id") == view.session.id]
    assert told == [("session_started", "info"), ("publish_ended", "info"), ("session_over", "info")]
    (over,) = log.of("session_over")
    assert (over["state"], over["reason"]) == ("ENDED", "CONSUMER_ENDED")
    assert (over["clean_seconds"], over["charged_usdc"]) == (0, "0")
    assert calls[0] == calls[1]


async def test_a_device_says_what_an_operator_that_is_passed_over_does_not_get_and_when_that_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(operator, "AVAILABILITY_EVERY_S", 0.01)
    async with open_world() as world:
        filming = await world.party("SUPPLIER")
        await world.miss_start(await world.party("CONSUMER"), filming)
        seen: list[str] = []

        def see(workspace: Workspace) -> None:
            seen.append(str(workspace.availability_state))

        async with device(world, filming, on_availability=see) as log:
            advice = (await log.until("passed_over"))["advice"]
            data_of(await filming.key.patch(filming.path, {"availabilityState": "OFFLINE"}))
            while "OFFLINE" not in seen:
                await trio.lowlevel.checkpoint()
            world.clock.advance(121)
            assert log.of("passed_over_ended") == []
            await filming.go_online()
            await log.until("passed_over_ended", level="info")
        assert len(log.of("passed_over")) == 1
    assert "not dispatched at all to sessions that require coverage" in advice
    assert "only where no other operator is" in advice


async def test_a_key_that_lacks_a_scope_of_a_device_ends_the_program_with_what_to_do() -> None:
    async with open_world() as world:
        filming = await world.party("SUPPLIER")
        reader = await filming.mint("sessions:read")
        key = reader.headers["authorization"].removeprefix("Bearer ")
        async with operator_client(world.base_url, key) as client:
            with pytest.raises(NotAuthorizedError, match=r"lacks sessions:operate\. `sightline keys mint NAME`"):
                await Operator(client, position=lambda: HERE, publish=idle).run()


async def test_the_command_for_a_device_says_in_a_line_which_scope_its_key_lacks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with open_world() as world:
        filming = await world.party("SUPPLIER")
        reader = await filming.mint("sessions:read")
        key = reader.headers["authorization"].removeprefix("Bearer ")
        assert await run_device(DeviceOptions(api_url=world.base_url, api_key=key, source="clip.mp4", place=HERE)) == 1
    assert re.fullmatch(r"[^\n]*lacks sessions:operate[^\n]*\n", capsys.readouterr().err)


async def test_a_device_leaves_a_session_that_the_server_does_not_know_any_more() -> None:
    published: list[str] = []

    async def publish(session: Session) -> None:
        published.append(session.id)
        raise OSError("no input")

    async with open_world() as world:
        consumer, filming = await world.party("CONSUMER"), await world.party("SUPPLIER")
        session, log, is_lost = await world.live(consumer, filming), Log(), [False]

        async def lose(request: httpx2.Request) -> None:  # as after a restore of an older database
            await trio.lowlevel.checkpoint()
            if is_lost[0] and request.url.path.endswith(f"/sessions/{session['id']}"):
                request.url = httpx2.URL(str(request.url).replace(session["id"], "0" * 8 + session["id"][8:]))

        async with operator_client(world.base_url, filming.plaintext) as client, trio.open_nursery() as nursery:
            client.transport.http.event_hooks = {"request": [lose]}
            nursery.start_soon(Operator(client, position=lambda: HERE, publish=publish, report=log).run)
            with trio.fail_after(30):
                await log.until("publish_failed")
                is_lost[0] = True
                told = await log.until("session_lost")
            nursery.cancel_scope.cancel()
    assert (told["session_id"], told["level"]) == (session["id"], "warning")
    assert "does not know the session" in told["advice"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ExceptionGroup("tasks", [ExceptionGroup("more", [OSError("disk full")])]), "OSError: disk full"),
        (ValueError("rtsp://admin:geheim@10.0.0.9/1 ended"), "ValueError: rtsp://***@10.0.0.9/1 ended"),
        (
            CalledProcessError(1, ["/usr/bin/ffmpeg", "-i", "rtsp://a:b@c/1"], stderr=b"x\nConnection refused\n"),
            "CalledProcessError: ffmpeg ended with exit code 1. Connection refused",
        ),
        (ValueError("rtsp://admin:p@ss/word@10.0.0.9/1 ended"), "ValueError: rtsp://***@10.0.0.9/1 ended"),
        (CalledProcessError(3, Path("/opt/my tools/film.sh")), "CalledProcessError: film.sh ended with exit code 3."),
        (CalledProcessError(4, ()), "CalledProcessError: the program ended with exit code 4."),
        (CalledProcessError(2, "ffmpeg -i rtsp://a:b@c/1"), "CalledProcessError: ffmpeg ended with exit code 2."),
    ],
)
def test_the_failure_of_a_publisher_is_its_first_cause_without_passwords_and_command_lines(
    error: Exception, told: str
) -> None:
    assert failure_of(error, None) == {"error": told}


async def test_statements_that_cannot_be_saved_do_not_end_the_video(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")

    hold = {
        "sessionIdHash": "0x1", "payer": "0x2", "payee": "0x3", "maxAmount": "9", "ratePerSecond": "1", "feeBps": 0,
        "openedAt": 1,
    }  # fmt: skip
    statement = {
        "sessionId": SOME_ID, "chainId": 1, "escrowAddress": "0x4", "hold": hold, "cleanSeconds": 3, "headHash": "0x5",
        "isFinal": False, "signature": "0x6",
    }  # fmt: skip
    answer = httpx2.MockTransport(lambda _request: httpx2.Response(200, json={"data": statement}))
    async with (
        httpx2.AsyncClient(transport=answer) as http,
        AsyncSightline("http://127.0.0.1:9", http=http) as client,
    ):
        with trio.move_on_after(0.2):
            await keep_statements(client, SOME_ID, tmp_path / "file" / "statements")
    said = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert {each["event"] for each in said} == {"statement_not_saved"}, said


async def test_a_position_that_is_none_is_a_failure_of_the_program_and_does_not_end_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(operator, "HEARTBEAT_EVERY_S", 0.01)
    monkeypatch.setattr(operator, "AVAILABILITY_EVERY_S", 0.0)
    found: list[Any] = [dict(BERLIN)]
    async with open_world() as world:
        filming = await world.party("SUPPLIER")
        await filming.go_online(coverageLat=BERLIN["lat"], coverageLng=BERLIN["lng"], coverageRadiusMeters=500)
        async with device(world, filming, position=lambda: found[-1]) as log:
            told = await log.until("callback_failed", callback="position")
            for _ in range(20):  # time for the area to be compared
                data_of(await filming.wallet.get(filming.path))
            found.append(HERE)
            while data_of(await filming.key.get(filming.path))["lastSeenAt"] is None:
                await trio.lowlevel.checkpoint()
    assert told["error"] == "TypeError: position returned dict. Return a Position, or None without one."


async def test_a_position_that_is_missing_is_a_warning_once_and_told_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(operator, "HEARTBEAT_EVERY_S", 0.01)
    monkeypatch.setattr(operator, "MISSING_AFTER_S", 0.05)
    found: list[Position] = []
    async with open_world() as world:
        filming = await world.party("SUPPLIER")
        async with device(world, filming, position=lambda: found[-1] if found else None) as log:
            await log.until("position_missing", level="warning")
            for _ in range(50):  # time for more beats
                data_of(await filming.wallet.get(filming.path))
            found.append(HERE)
            await log.until("position_found")
    assert len(log.of("position_missing")) == 1


async def test_a_refused_position_is_a_warning_once_until_one_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator, "HEARTBEAT_EVERY_S", 0.01)
    found, asked = [Position(**BERLIN, source="X" * 200)], [0]

    def position() -> Position:
        asked[0] += 1
        return found[-1]

    async with open_world() as world:
        filming = await world.party("SUPPLIER")
        async with device(world, filming, position=position) as log:
            await log.until("heartbeat_refused", level="warning")
            before = asked[0]
            while asked[0] < before + 10:
                await trio.lowlevel.checkpoint()
            assert len(log.of("heartbeat_refused")) == 1
            found.append(HERE)
            while data_of(await filming.key.get(filming.path))["lastSeenAt"] is None:
                await trio.lowlevel.checkpoint()
            found.append(found[0])
            while len(log.of("heartbeat_refused")) < 2:
                await trio.lowlevel.checkpoint()


async def test_a_program_is_told_why_its_meter_is_paused_and_that_it_runs_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(operator, "HEARTBEAT_EVERY_S", 0.01)
    away = Position(lat=BERLIN["lat"] + 0.01, lng=BERLIN["lng"])
    places = [HERE]
    async with open_world() as world:
        consumer, filming = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await filming.go_online()
        session = await world.request(consumer)
        async with device(world, filming, position=lambda: places[-1]) as log:
            data_of(await consumer.key.post(f"/api/v1/sessions/{session['id']}/dispatch"))
            await log.until("session_started")
            for step in range(1, 21):  # walks: a jump would not be believed at once
                world.clock.advance(2)
                places.append(replace(HERE, lat=HERE.lat + (away.lat - HERE.lat) * step / 20))
                seen = data_of(await filming.key.get(filming.path))["lastSeenAt"]
                while data_of(await filming.key.get(filming.path))["lastSeenAt"] == seen:
                    await trio.lowlevel.checkpoint()
                if log.of("meter_paused"):
                    break
            paused = await log.until("meter_paused")
    assert paused["level"] == "warning"
    assert paused["reason"] in ("GEOFENCE_EXIT", "MEDIA_LOST")
    assert "not paid" in paused["advice"]


async def test_a_program_is_told_that_it_is_outside_of_its_area() -> None:
    async with open_world() as world:
        filming = await world.party("SUPPLIER")
        await filming.go_online(coverageLat=BERLIN["lat"], coverageLng=BERLIN["lng"], coverageRadiusMeters=500)
        swapped = Position(lat=BERLIN["lng"], lng=BERLIN["lat"])
        async with device(world, filming, position=lambda: swapped) as log:
            told = await log.until("outside_area", level="warning")
    assert told["metres"] > 1_000_000


@pytest.mark.parametrize(
    "wrong",
    [
        {"position": HERE},
        {"position": lambda _session: HERE},
        {"publish": None},
        {"publish": trio.sleep_forever},
        {"decline": True},
        {"decline": lambda: True},
        {"on_message": lambda _message: None},
        {"report": lambda _event: None},
    ],
)
async def test_a_wrong_function_is_refused_where_the_program_is_written(wrong: dict[str, Any]) -> None:
    right = {"position": lambda: HERE, "publish": idle}
    async with operator_client("http://127.0.0.1:9", "svc_test_abcdef_" + "x" * 43) as client:
        with pytest.raises(TypeError, match=next(iter(wrong))):
            Operator(client, **(right | wrong))


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ({"lat": 91.0, "lng": 0.0}, ValueError),
        ({"lat": 0.0, "lng": -181.0}, ValueError),
        ({"lat": float("nan"), "lng": 0.0}, ValueError),
        ({"lat": "48", "lng": 0.0}, TypeError),
        ({"lat": None, "lng": 0.0}, TypeError),
        ({"lat": 0.0, "lng": 0.0, "accuracy_m": -1.0}, ValueError),
    ],
)
def test_a_position_that_no_server_accepts_is_refused_where_it_is_made(place: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="of a Position must"):
        Position(**place)


async def test_a_publish_that_is_not_async_and_a_report_that_raises_do_not_end_the_device() -> None:
    async with open_world() as world:
        consumer, filming = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await filming.go_online()
        session = await world.request(consumer)
        log = Log()

        def report(event: str, /, **fields: object) -> None:
            log(event, **fields)
            raise ZeroDivisionError(event)

        async with device(world, filming, publish=lambda _session: None, report=report):
            data_of(await consumer.key.post(f"/api/v1/sessions/{session['id']}/dispatch"))
            failed = await log.until("publish_failed")
    assert "publish must be an async function" in failed["error"]


async def test_what_a_publisher_printed_last_is_in_the_log() -> None:
    async with open_world() as world:
        consumer, filming = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await filming.go_online()
        session = await world.request(consumer)

        async def publish(session: Session) -> None:
            program = f"import sys; print({session.whip_url!r}, 'no such camera', file=sys.stderr); sys.exit(2)"
            await trio.run_process([sys.executable, "-c", program], capture_stderr=True)

        async with device(world, filming, publish=publish) as log:
            data_of(await consumer.key.post(f"/api/v1/sessions/{session['id']}/dispatch"))
            failed = await log.until("publish_failed")
    assert failed["error"].endswith("<whip_url> no such camera")


async def test_a_device_that_stops_waits_some_seconds_for_a_server_that_does_not_answer() -> None:
    async with open_world() as world:
        filming = await world.party("SUPPLIER")
        await filming.go_online()
        refusals = [0]
        log = Log()

        async def fail_first(request: httpx2.Request) -> None:
            await trio.lowlevel.checkpoint()
            if refusals[0] < 2:
                refusals[0] += 1
                raise httpx2.ConnectError("refused", request=request)

        async with operator_client(world.base_url, filming.plaintext) as client:
            client.transport.http.event_hooks = {"request": [fail_first]}
            await Operator(client, position=lambda: HERE, publish=idle, report=log).leave()
        shown = data_of(await filming.key.get(filming.path))
    assert (refusals[0], shown["availabilityState"]) == (2, "OFFLINE")
    assert log.of("call_failed") == []


@pytest.mark.parametrize(
    ("hanging", "told", "not_told"),
    [("/", "server_lost", "heartbeat_refused"), ("/location", "heartbeat_refused", "server_lost")],
    ids=["all of it", "only what is stored"],
)
async def test_a_server_that_hangs_is_told_in_the_time_of_an_answer(
    hanging: str, told: str, not_told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator, "ANSWER_WITHIN_S", 1.5)
    async with open_world() as world:
        filming = await world.party("SUPPLIER")
        await filming.go_online()
        log, answers = Log(), trio.Event()

        async def hang(request: httpx2.Request) -> None:
            if request.url.path.endswith("/location/stream"):
                raise httpx2.ConnectError("refused", request=request)
            if hanging in request.url.path and not request.url.path.endswith("/me"):
                await answers.wait()

        async with operator_client(world.base_url, filming.plaintext) as client, trio.open_nursery() as nursery:
            client.transport.http.event_hooks = {"request": [hang]}
            nursery.start_soon(Operator(client, position=lambda: HERE, publish=idle, report=log).run)
            with trio.fail_after(30):
                found = await log.until(told, level="warning")
                monkeypatch.setattr(operator, "ANSWER_WITHIN_S", 30.0)
                answers.set()
                while data_of(await filming.key.get(filming.path))["lastSeenAt"] is None:
                    await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    assert "error" not in found or found["error"] == f"{world.base_url} does not answer"
    assert found["advice"]
    assert (len(log.of(told)), log.of(not_told)) == (1, [])


async def test_a_program_is_told_that_its_workspace_is_offline_and_what_its_consumer_asked_for() -> None:
    async with open_world() as world:
        consumer, filming = await world.party("CONSUMER"), await world.party("SUPPLIER")
        async with (
            device(world, filming) as log,
            AsyncSightline(world.base_url, consumer.plaintext) as sl,
        ):
            offline = await log.until("availability_changed", level="warning", availability="OFFLINE")
            await filming.go_online()
            async with sl.view(BERLIN["lat"], BERLIN["lng"], instructions="Film the door, please"):
                await log.until("session_started", instructions="Film the door, please")
    assert "It gets no sessions. Set it ONLINE" in offline["advice"]


async def test_a_device_that_stops_is_offline_also_if_its_consumer_ends_the_session_at_the_same_time() -> None:
    async with open_world() as world:
        consumer, filming = await world.party("CONSUMER"), await world.party("SUPPLIER")
        session = await world.live(consumer, filming)
        log, ended = Log(), list[str]()

        async def end_first(request: httpx2.Request) -> None:
            if request.url.path.endswith("/end") and not ended:
                ended.append(data_of(await consumer.key.post(request.url.path))["state"])

        async with operator_client(world.base_url, filming.plaintext) as client:
            client.transport.http.event_hooks = {"request": [end_first]}
            stopping = Operator(client, position=lambda: HERE, publish=lambda _session: publishes(), report=log)
            async with trio.open_nursery() as nursery:
                published = trio.Event()

                async def publishes() -> None:
                    published.set()
                    await trio.sleep_forever()

                nursery.start_soon(stopping.run)
                with trio.fail_after(30):
                    await published.wait()
                nursery.cancel_scope.cancel()
            await stopping.leave()
        shown = data_of(await filming.key.get(filming.path))
        assert data_of(await consumer.key.get(f"/api/v1/sessions/{session['id']}"))["state"] == "ENDED"
    assert (ended, shown["availabilityState"]) == (["ENDED"], "OFFLINE")
    assert [each["reason"] for each in log.of("session_over", session_id=session["id"])] == ["CONSUMER_ENDED"]
    assert log.of("call_failed") == []


PROGRAM = """
import anyio
from sightline_client.operator import Operator, Position, operator_client

async def main():
    async with operator_client() as client:
        here = Position(lat=52.52, lng=13.405)
        operator = Operator(client, position=lambda: here, publish=lambda _session: anyio.sleep_forever())
        await operator.run_until_stopped()

anyio.run(main)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_program_stops_by_a_signal_and_is_offline_also_if_a_shell_makes_it_ignore_ctrl_c(
    number: signal.Signals,
) -> None:
    async with open_world() as world:
        filming = await world.party("SUPPLIER")
        await filming.go_online()
        env = os.environ | {"SIGHTLINE_API_KEY": filming.plaintext, "SIGHTLINE_URL": world.base_url}
        # As `program &` of a script: SIGINT is ignored from the start.
        line = ["/bin/sh", "-c", 'trap "" INT; exec "$0" -c "$1"', sys.executable, PROGRAM]
        process = await trio.lowlevel.open_process(line, env=env)
        with trio.fail_after(60):
            while not data_of(await filming.key.get(filming.path))["lastSeenAt"]:
                await trio.lowlevel.checkpoint()
            process.send_signal(number)
            assert await process.wait() == 0
        assert data_of(await filming.key.get(filming.path))["availabilityState"] == "OFFLINE"
