"""The log of `sightline device`: JSON lines alone, which say in words what to do."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
import trio

from sightline_client.device import run
from sightline_client.device.lines import LINE_BYTES_MAX, lines_of
from tests.client.commands.program import sightline
from tests.http.world import Party, World, data_of, open_world


async def log_until_online_or_offline(world: World, operator: Party, *options: str) -> list[dict[str, Any]]:
    """Run a device until it has logged the availability of its workspace, and stop it; returns its whole log."""
    env = os.environ | {"SIGHTLINE_API_KEY": operator.plaintext}
    line = [sys.executable, "-m", "sightline_client", "device", "--api", world.base_url, "--lat", "1", "--lng", "2"]
    process = await trio.lowlevel.open_process([*line, *options], stderr=subprocess.PIPE, env=env)
    assert process.stderr is not None
    said, is_stopped = b"", False
    with trio.fail_after(60):
        async for chunk in process.stderr:
            said += chunk
            if b"availability_changed" in said and not is_stopped:
                is_stopped = True
                process.terminate()
        assert await process.wait() == 0, said
    return [json.loads(each) for each in said.decode().splitlines()]


async def test_a_device_of_an_offline_workspace_says_in_words_how_it_gets_sessions() -> None:
    async with open_world() as world:
        log = await log_until_online_or_offline(world, await world.party("SUPPLIER"))
    (found,) = [entry for entry in log if entry["event"] == "availability_changed"]
    assert (found["level"], found["availability"]) == ("warning", "OFFLINE")
    assert "--online" in found["advice"]
    assert "PATCH" not in found["advice"]


async def test_a_device_says_that_another_one_sends_for_its_workspace() -> None:
    async with open_world() as world:
        operator, sequence = await world.party("SUPPLIER"), 1_000
        env = os.environ | {"SIGHTLINE_API_KEY": operator.plaintext}
        line = [sys.executable, "-m", "sightline_client", "device", "--api", world.base_url, "--lat", "1", "--lng", "2"]
        process = await trio.lowlevel.open_process(line, stderr=subprocess.PIPE, env=env)
        assert process.stderr is not None
        said = b""
        with trio.fail_after(60):
            async for chunk in process.stderr:
                said += chunk
                if b'"other_device"' in said:
                    process.terminate()
                elif b"availability_changed" in said:  # after each refusal the other device goes ahead again
                    while not data_of(await operator.key.get(operator.path))["lastSeenAt"]:  # of its own heartbeat
                        await trio.lowlevel.checkpoint()
                    sequence += 1_000
                    await operator.beat(sequence=sequence)
            await process.wait()
    (found,) = [entry for entry in map(json.loads, said.decode().splitlines()) if entry["event"] == "other_device"]
    assert (found["level"], "Stop one of them" in found["advice"]) == ("warning", True)


async def test_a_workspace_is_online_while_a_device_runs_that_is_told_so() -> None:
    async with open_world() as world:
        operator = await world.party("SUPPLIER")
        log = await log_until_online_or_offline(world, operator, "--online")
        shown = (await operator.key.get(operator.path)).json()["data"]
    found, last = [entry for entry in log if entry["event"] == "availability_changed"]
    assert (found["availability"], last["availability"], shown["availabilityState"]) == ("ONLINE", "OFFLINE", "OFFLINE")
    assert "advice" not in found
    (without,) = [entry for entry in log if entry["event"] == "no_area"]
    assert without["level"] == "warning"
    assert "--decline-beyond" in without["advice"]
    assert "`sightline area LAT LNG`" in without["advice"]


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
        outside = await log_until_online_or_offline(world, operator, "--online")
        await sightline(world, operator, "area", "1", "2", "--json")
        inside = await log_until_online_or_offline(world, operator, "--online")
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
