"""The log of `sightline device`: JSON lines alone, which say in words what to do."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest
import trio

from sightline_client.device import run
from sightline_client.device.lines import LINE_BYTES_MAX, lines_of
from sightline_client.models import Session
from sightline_client.operator import Operator, Position, Report, operator_client
from tests.client.commands.program import sightline
from tests.http.world import Party, World, data_of, open_world


async def log_until(
    world: World, operator: Party, *options: str, until: bytes = b"availability_changed"
) -> list[dict[str, Any]]:
    """Run a device until it has logged an event, and stop it; returns its whole log."""
    env = os.environ | {"SIGHTLINE_API_KEY": operator.plaintext}
    line = [sys.executable, "-m", "sightline_client", "device", "--api", world.base_url, "--lat", "1", "--lng", "2"]
    process = await trio.lowlevel.open_process([*line, *options], stderr=subprocess.PIPE, env=env)
    assert process.stderr is not None
    said, is_stopped = b"", False
    with trio.fail_after(60):
        async for chunk in process.stderr:
            said += chunk
            if until in said and not is_stopped:
                is_stopped = True
                process.terminate()
        assert await process.wait() == 0, said
    return [json.loads(each) for each in said.decode().splitlines()]


async def test_a_device_of_an_offline_workspace_says_in_words_how_it_gets_sessions() -> None:
    async with open_world() as world:
        log = await log_until(world, await world.party("SUPPLIER"))
    (found,) = [entry for entry in log if entry["event"] == "availability_changed"]
    assert (found["level"], found["availability"]) == ("warning", "OFFLINE")
    assert "--online" in found["advice"]
    assert "PATCH" not in found["advice"]


async def test_a_device_says_that_another_one_sends_for_its_workspace() -> None:
    async with open_world() as world:
        operator = await world.party("SUPPLIER")

        async def stay_ahead() -> None:
            """Be the other device: send a higher sequence after each heartbeat of the first one."""
            own = 0
            while True:
                seen = (await operator.beat(sequence=0)).json()["lastSequence"]  # refused: it is too low
                if seen is not None and seen > own:
                    own = seen + 1_000
                    await operator.beat(sequence=own)

        env = os.environ | {"SIGHTLINE_API_KEY": operator.plaintext}
        line = [sys.executable, "-m", "sightline_client", "device", "--api", world.base_url, "--lat", "1", "--lng", "2"]
        process = await trio.lowlevel.open_process(line, stderr=subprocess.PIPE, env=env)
        assert process.stderr is not None
        said = b""
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                async for chunk in process.stderr:
                    said += chunk
                    if b'"other_device"' in said:
                        process.terminate()
                        nursery.cancel_scope.cancel()
                    elif b"availability_changed" in said and not nursery.child_tasks:
                        while not data_of(await operator.key.get(operator.path))["lastSeenAt"]:  # of its own heartbeat
                            await trio.lowlevel.checkpoint()
                        nursery.start_soon(stay_ahead)
            await process.wait()
    (found,) = [entry for entry in map(json.loads, said.decode().splitlines()) if entry["event"] == "other_device"]
    assert (found["level"], "Stop one of them" in found["advice"]) == ("warning", True)


async def test_a_workspace_is_online_while_a_device_runs_that_is_told_so() -> None:
    async with open_world() as world:
        operator = await world.party("SUPPLIER")
        log = await log_until(world, operator, "--online")
        shown = (await operator.key.get(operator.path)).json()["data"]
    found, last = [entry for entry in log if entry["event"] == "availability_changed"]
    assert (found["availability"], last["availability"], shown["availabilityState"]) == ("ONLINE", "OFFLINE", "OFFLINE")
    assert "advice" not in found
    (without,) = [entry for entry in log if entry["event"] == "no_area"]
    assert without["level"] == "warning"
    assert "--decline-beyond" in without["advice"]
    assert "`sightline area LAT LNG`" in without["advice"]


async def test_a_second_device_is_told_of_the_first_and_leaves_its_workspace_online() -> None:
    async with open_world() as world:
        operator = await world.party("SUPPLIER")
        env = os.environ | {"SIGHTLINE_API_KEY": operator.plaintext}
        line = [sys.executable, "-m", "sightline_client", "device", "--api", world.base_url, "--lat", "1", "--lng", "2"]
        first = await trio.lowlevel.open_process([*line, "--online"], stderr=subprocess.PIPE, env=env)
        assert first.stderr is not None
        with trio.fail_after(60):
            said = b""
            while b"availability_changed" not in said:
                said += await first.stderr.receive_some()
            while not data_of(await operator.key.get(operator.path))["lastSeenAt"]:
                await trio.lowlevel.checkpoint()
            log = await log_until(world, operator, "--online")
            shown = data_of(await operator.key.get(operator.path))
            first.terminate()
            async for chunk in first.stderr:
                said += chunk
            assert await first.wait() == 0, said
        left = data_of(await operator.key.get(operator.path))
    warning = next(entry for entry in log if entry["event"] == "other_device")
    assert (warning["level"], "Stop one of them" in warning["advice"]) == ("warning", True)
    assert log.index(warning) < [entry["event"] for entry in log].index("availability_changed")
    assert (log[-1]["event"], log[-1]["availability"]) == ("availability_kept", "ONLINE")
    assert (shown["availabilityState"], left["availabilityState"]) == ("ONLINE", "OFFLINE")


async def test_a_device_that_stops_while_it_films_ends_the_session_and_is_offline() -> None:
    async with open_world() as world:
        operator, consumer = await world.party("SUPPLIER"), await world.party("CONSUMER")
        env = os.environ | {"SIGHTLINE_API_KEY": operator.plaintext}
        line = [sys.executable, "-m", "sightline_client", "device", "--api", world.base_url, "--lat", "1", "--lng", "2"]
        process = await trio.lowlevel.open_process([*line, "--online"], stderr=subprocess.PIPE, env=env)
        assert process.stderr is not None
        said, session_id, is_stopped = b"", "", False
        with trio.fail_after(60):
            async for chunk in process.stderr:
                said += chunk
                if b'"ONLINE"' in said and not session_id:
                    session_id = (await world.request(consumer, lat=1, lng=2))["id"]
                    path = f"/api/v1/sessions/{session_id}"
                    data_of(await operator.key.post(f"{path}/accept", {"operatorWorkspaceId": operator.id}))
                if b"session_started" in said and not is_stopped:
                    is_stopped = True
                    process.terminate()
            assert await process.wait() == 0, said
        session = data_of(await consumer.key.get(f"/api/v1/sessions/{session_id}"))
        shown = data_of(await operator.key.get(operator.path))
    assert (session["state"], session["endReason"]) == ("ENDED", "OPERATOR_ENDED")
    assert shown["availabilityState"] == "OFFLINE"
    over, last = map(json.loads, said.splitlines()[-2:])
    assert (over["event"], over["session_id"], over["state"]) == ("session_over", session_id, "ENDED")
    assert (last["event"], last["availability"]) == ("availability_changed", "OFFLINE")


async def test_a_device_outside_of_its_area_says_so_and_a_command_moves_the_area() -> None:
    async with open_world() as world:
        operator = await world.party("SUPPLIER")
        (moved,) = (await sightline(world, operator, "area", "48.1", "11.5", "--radius", "500")).stdout.splitlines()
        outside = await log_until(world, operator, "--online", until=b"outside_area")
        await sightline(world, operator, "area", "1", "2", "--json")
        inside = await log_until(world, operator, "--online")
        shown = (await operator.key.get(operator.path)).json()["data"]
    assert moved.endswith("is offered sessions within 500 m of 48.1, 11.5")
    (found,) = [entry for entry in outside if entry["event"] == "outside_area"]
    assert (found["level"], found["metres"] > 5_000_000) == ("warning", True)
    assert "sightline area LAT LNG" in found["advice"]
    assert [entry for entry in inside if entry["event"] in ("outside_area", "no_area")] == []
    assert (shown["coverageLat"], shown["coverageLng"], shown["coverageRadiusMeters"]) == (1, 2, 2_000)


async def test_a_device_says_that_its_area_was_moved_away_while_it_runs() -> None:
    async with open_world() as world:
        operator = await world.party("SUPPLIER")
        area = {"coverageLat": 1, "coverageLng": 2, "coverageRadiusMeters": 500}
        data_of(await operator.key.patch(operator.path, area))
        env = os.environ | {"SIGHTLINE_API_KEY": operator.plaintext}
        line = [sys.executable, "-m", "sightline_client", "device", "--api", world.base_url, "--lat", "1", "--lng", "2"]
        process = await trio.lowlevel.open_process([*line, "--online"], stderr=subprocess.PIPE, env=env)
        assert process.stderr is not None
        said, is_moved, is_stopped = b"", False, False
        with trio.fail_after(90):
            async for chunk in process.stderr:
                said += chunk
                if b'"ONLINE"' in said and not is_moved:
                    is_moved = True
                    data_of(await operator.key.patch(operator.path, area | {"coverageLat": 48}))
                elif b"outside_area" in said and not is_stopped:
                    is_stopped = True
                    process.terminate()
            assert await process.wait() == 0, said
    warned = [entry["event"] for entry in map(json.loads, said.splitlines()) if entry["level"] == "warning"]
    assert warned == ["outside_area"]


async def test_what_a_publisher_prints_is_logged_with_its_session(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho connected\necho 'publish: cannot open it; trying again' >&2\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    await run._publish("a session", "clip.mp4", "https://live.example/whip/x")
    log = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(each["event"], each["session_id"], each["level"], each["text"]) for each in log] == [
        ("publisher_said", "a session", "info", "connected"),
        ("publisher_said", "a session", "warning", "publish: cannot open it; trying again"),
    ]


async def test_a_line_is_read_whole_however_it_arrives_and_one_without_an_end_is_bounded() -> None:
    class Chunks:
        def __init__(self, *chunks: bytes) -> None:
            self._chunks = iter(chunks)

        def __aiter__(self) -> "Chunks":
            return self

        async def __anext__(self) -> bytes:
            await trio.lowlevel.checkpoint()
            for chunk in self._chunks:
                return chunk
            raise StopAsyncIteration

    long = b"x" * LINE_BYTES_MAX
    stream: Any = Chunks(b"on", b"e\r\ntwo\nth", b"ree\n", long, long, b"\nfour\n", b"five")
    assert [line async for line in lines_of(stream)] == [b"one", b"two", b"three", b"", b"four", b"five"]


class Forwarder:
    """Forwards connections to the server of a world, or hangs up on them; it keeps its port all the time."""

    def __init__(self, world: World) -> None:
        self._url = urlsplit(world.base_url)
        self._open: set[trio.CancelScope] = set()
        self._is_away = False
        self.hung_up = 0
        self.often = trio.Event()
        """Set when it has hung up on four connections."""

    async def serve(self, client: trio.SocketStream) -> None:
        if self._is_away:
            self.hung_up += 1
            if self.hung_up == 4:
                self.often.set()
            return
        server = await trio.open_tcp_stream(str(self._url.hostname), self._url.port or 80)
        async with server, trio.open_nursery() as both:
            self._open.add(both.cancel_scope)
            both.start_soon(self._copy, client, server, both.cancel_scope)
            both.start_soon(self._copy, server, client, both.cancel_scope)
        self._open.discard(both.cancel_scope)

    async def _copy(self, source: trio.SocketStream, target: trio.SocketStream, scope: trio.CancelScope) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for data in source:
                await target.send_all(data)
        scope.cancel()

    def go_away(self) -> None:
        self._is_away = True
        for scope in self._open:
            scope.cancel()

    def come_back(self) -> None:
        self._is_away = False


async def run_a_device(url: str, key: str, report: Report) -> None:
    async with operator_client(url, key) as client:
        here = partial(Position, lat=1.0, lng=2.0)

        async def publish(_: Session) -> None:
            await trio.sleep_forever()

        await Operator(client, position=here, publish=publish, report=report).run()


async def test_a_device_whose_server_is_away_warns_once_and_says_that_it_is_back() -> None:
    log: list[tuple[str, dict[str, Any]]] = []
    heard = [trio.Event(), trio.Event()]

    def report(event: str, /, **fields: object) -> None:
        log.append((event, fields))
        for number, name in enumerate(("server_lost", "server_back")):
            if event == name:
                heard[number].set()

    async with open_world() as world, trio.open_nursery() as working:
        operator, forwarder = await world.party("SUPPLIER"), Forwarder(world)
        with trio.fail_after(60):
            listeners = await working.start(partial(trio.serve_tcp, forwarder.serve, 0, host="127.0.0.1"))
            url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
            working.start_soon(run_a_device, url, operator.plaintext, report)
            while not data_of(await operator.key.get(operator.path))["lastSeenAt"]:
                await trio.lowlevel.checkpoint()
            forwarder.go_away()
            await heard[0].wait()
            await forwarder.often.wait()
            forwarder.come_back()
            await heard[1].wait()
            working.cancel_scope.cancel()
    lost = [fields for event, fields in log if event == "server_lost"]
    assert len(lost) == 1, log
    assert lost[0]["level"] == "warning"
    assert str(lost[0]["advice"]).startswith("Trying again every 2 s")
    assert [event for event, _ in log].count("server_back") == 1
    assert "call_failed" not in [event for event, _ in log]
