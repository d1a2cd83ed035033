"""`sightline sessions`: what the HTTP interface lists, as a table or as JSON lines."""

import itertools
import json
import os
import re
import shlex
import sys
from decimal import Decimal
from functools import partial
from pathlib import Path
from random import Random
from subprocess import PIPE
from typing import Any

import pytest
import trio

from sightline_client import Event
from sightline_client.commands.event_lines import EventLines
from sightline_client.commands.sessions import PAGE_MAX, ListedState
from sightline_client.models import EndReason, Session, SessionLocation, SessionState, Workspace
from sightline_client.money import MicroUsdc
from sightline_client.wording import ENDED
from tests.client.commands.program import sightline
from tests.client.losing_proxy import LosingProxy
from tests.http.fakes import a_clip
from tests.http.world import BERLIN, Party, World, data_of, open_world


async def request(world: World, consumer: Party) -> str:
    """Request a session, later than the one before."""
    world.clock.advance(1)
    return str(data_of(await consumer.key.post("/api/v1/sessions", BERLIN | {"maxDurationSeconds": 60}))["id"])


async def show_frames(world: World, session_id: str) -> None:
    """Show a new frame whenever one is asked for and the newest is too old: a process may take seconds to start."""
    for sequence in itertools.count(1):
        world.video.missed = trio.Event()
        world.video.show(session_id, sequence)
        await world.video.missed.wait()


async def test_json_is_what_the_http_interface_lists_one_session_a_line() -> None:
    async with open_world() as world:
        consumer = await world.party("CONSUMER")
        ids = [await request(world, consumer) for _ in range(3)]
        listed = data_of(await consumer.key.get("/api/v1/sessions"))["items"]
        everything = await sightline(world, consumer, "sessions", "--json")
        newest = await sightline(world, consumer, "sessions", "--json", "--limit", "2")
    assert [json.loads(line) for line in everything.stdout.splitlines()] == listed
    assert [json.loads(line)["id"] for line in newest.stdout.splitlines()] == [ids[2], ids[1]]


async def test_the_table_has_id_state_place_time_and_charge_newest_first() -> None:
    async with open_world() as world:
        consumer = await world.party("CONSUMER")
        older, newer = [await request(world, consumer) for _ in range(2)]
        data_of(await consumer.key.delete(f"/api/v1/sessions/{older}"))
        created = data_of(await consumer.key.get(f"/api/v1/sessions/{newer}"))["createdAt"]
        done = await sightline(world, consumer, "sessions")
    title, first, second = done.stdout.splitlines()
    assert title.split() == ["id", "state", "place", "created", "charge", "in", "USDC", *["why", "it", "is", "over"]]
    assert first.split() == [newer, "REQUESTED", "52.52,", "13.405", f"{created[:19]}Z", "0"]
    assert second.split()[:2] == [older, "CANCELLED"]
    assert second.endswith("  withdrawn before anybody filmed")
    assert title.index("created") == first.index(created[:19]) == second.index(created[:10])


async def test_state_and_view_choose_which_sessions_are_listed_and_none_is_one_sentence() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await operator.go_online()
        waiting, filmed = [await request(world, consumer) for _ in range(2)]
        data_of(await operator.key.post(f"/api/v1/sessions/{filmed}/accept", {"operatorWorkspaceId": operator.id}))
        chosen = {
            "--state REQUESTED": (consumer, [waiting]),
            "--state REQUESTED --state ASSIGNED": (consumer, [filmed, waiting]),
            "--view consumer": (consumer, [filmed, waiting]),
            "--view operator": (operator, [filmed]),
            "--view open": (operator, [waiting]),
            "--view operator --state LIVE": (operator, []),
            "--view OPERATOR --state assigned": (operator, [filmed]),
        }
        for words, (party, ids) in chosen.items():
            said = await sightline(world, party, "sessions", "--json", *words.split())
            assert [json.loads(line)["id"] for line in said.stdout.splitlines()] == ids, words
        none = await sightline(world, operator, "sessions", "--state", "LIVE")
        first = await sightline(world, await world.party("CONSUMER"), "sessions")
    assert (none.returncode, none.stdout, none.stderr) == (0, "There are no such sessions.\n", "")
    assert first.stdout == "No sessions yet.\n"


async def test_more_sessions_than_one_call_lists_are_listed_by_several() -> None:
    async with open_world() as world:
        consumer = await world.party("CONSUMER")
        ids = []
        for _ in range(PAGE_MAX + 1):
            ids.append(await request(world, consumer))
            data_of(await consumer.key.delete(f"/api/v1/sessions/{ids[-1]}"))
        said = await sightline(world, consumer, "sessions", "--json", "--limit", "1000")
    assert [json.loads(line)["id"] for line in said.stdout.splitlines()] == ids[::-1]


def test_sessions_of_every_state_can_be_listed() -> None:
    assert {state.value for state in ListedState} == {state.value for state in SessionState}


async def test_frames_of_a_running_session_are_saved_and_it_goes_on(tmp_path: Path) -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        waiting = await request(world, consumer)
        told = await sightline(world, consumer, "tell", waiting, "turn left")
        extended = await sightline(world, consumer, "extend", waiting, "60")
        refused = await sightline(world, consumer, "frames", waiting)
        session_id = (await world.live(consumer, operator))["id"]
        async with trio.open_nursery() as showing:
            showing.start_soon(show_frames, world, session_id)
            command = ("frames", session_id, "--count", "1", "--out", str(tmp_path / "out"))
            done = await sightline(world, consumer, *command)
            as_json = await sightline(world, consumer, *command[:-1], str(tmp_path / "other"), "--json")
            showing.cancel_scope.cancel()
        state = data_of(await consumer.key.get(f"/api/v1/sessions/{session_id}"))["state"]
        narrow = await sightline(world, consumer, "frames", session_id, "--width", "4")
        none = await sightline(world, consumer, "extend", session_id, "0", "--json")
        unsaid = await sightline(world, consumer, "extend", session_id)
    assert "The session is REQUESTED: wait until it is LIVE" in told.stderr
    assert "The session is REQUESTED: wait until it is LIVE" in extended.stderr
    assert refused.returncode == 1
    assert refused.stderr.startswith(
        f"Session {waiting} is REQUESTED. It has frames while it is LIVE. No operator has it. Operators that see it may"
    )
    assert f"withdraw it with `sightline end {waiting}` and request a new one" in refused.stderr
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [str(path) for path in (tmp_path / "out").iterdir()]
    assert json.loads(as_json.stdout).keys() == {"sessionId", "frame", "ageMs", "meterState"}
    (saved,) = (tmp_path / "out").iterdir()
    assert saved.read_bytes()[:2] == b"\xff\xd8"
    assert state == "LIVE"
    assert (unsaid.returncode, "Say for how many seconds" in unsaid.stderr) == (2, True)
    assert narrow.returncode == 2
    assert "Invalid value for '--width': must be at least 16" in narrow.stderr
    assert json.loads(none.stderr)["message"].startswith("Invalid value for 'seconds': must be at least 1.")


async def test_frames_of_a_session_that_its_operator_ends_stop_with_the_reason(tmp_path: Path) -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        said = []
        for flags in ((), ("--json",)):
            session_id = (await world.live(consumer, operator))["id"]

            async def end_after_a_frame(session_id: str, saved: trio.Path) -> None:
                while not await saved.exists():
                    await trio.lowlevel.checkpoint()
                data_of(await operator.key.post(f"/api/v1/sessions/{session_id}/end"))

            async with trio.open_nursery() as nursery:
                out = tmp_path / session_id
                nursery.start_soon(end_after_a_frame, session_id, trio.Path(out))
                nursery.start_soon(show_frames, world, session_id)
                done = await sightline(world, consumer, "frames", session_id, "--out", str(out), *flags)
                nursery.cancel_scope.cancel()
            assert done.returncode == 0
            said.append((session_id, done.stderr.splitlines()[-1]))
    assert said[0][1] == f"Session {said[0][0]} has ended: the operator ended it."
    assert json.loads(said[1][1]) == {"sessionId": said[1][0], "endReason": "OPERATOR_ENDED"}


def test_every_reason_of_an_end_has_words() -> None:
    assert ENDED.keys() == {str(reason) for reason in EndReason}


async def test_a_line_is_told_to_the_operator_of_a_live_session() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        session_id = (await world.live(consumer, operator))["id"]
        said = await sightline(world, consumer, "tell", session_id, "turn", "left")
        as_json = await sightline(world, consumer, "tell", session_id, "hold still", "--json")
        read = data_of(await operator.key.get(f"/api/v1/sessions/{session_id}"))["messages"]
        empty = await sightline(world, consumer, "tell", session_id, " ")
    assert (said.stdout, said.stderr.count(f"`sightline sessions {session_id}` says")) == ("Message 1: turn left\n", 1)
    assert as_json.stderr == ""
    assert json.loads(as_json.stdout) == read[1]
    assert [each["text"] for each in read] == ["turn left", "hold still"]
    assert empty.returncode == 2
    assert empty.stderr == "400 INVALID_INPUT (session:message): the text must have at least 1 character.\n"


async def test_one_session_is_shown_with_seconds_cost_deadline_and_messages() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        path = f"/api/v1/sessions/{(await world.live(consumer, operator))['id']}"
        for text in ("turn left", "hold still"):
            data_of(await consumer.key.post(f"{path}/messages", {"text": text}))
        data_of(await operator.key.post(f"{path}/messages/shown", {"number": 1}))
        known = data_of(await consumer.key.get(path))
        shown = await sightline(world, consumer, "sessions", known["id"])
        as_json = await sightline(world, consumer, "sessions", known["id"], "--json")
        mixed = await sightline(world, consumer, "sessions", known["id"], "--state", "LIVE")
        data_of(await consumer.key.post(f"{path}/end"))
        over = await sightline(world, consumer, "sessions", known["id"])
        over_as_json = await sightline(world, consumer, "sessions", known["id"], "--json")
        of_operator = await sightline(world, operator, "sessions", known["id"])
    assert json.loads(as_json.stdout) == known | {"refunds": []}
    over_json = json.loads(over_as_json.stdout)
    assert (over_json["messages"], over_json["refunds"]) == (known["messages"], [])
    lines = shown.stdout.splitlines()
    assert lines[0] == f"session   {known['id']}, LIVE"
    assert f"deadline  {known['expiresAt'][:19]}Z" in lines
    assert any(line.startswith("cost      ") and "USDC so far, at most" in line for line in lines)
    assert lines[-2:] == ["message   1, shown to the operator: turn left", "message   2, not shown yet: hold still"]
    assert (mixed.returncode, "takes no --state" in mixed.stderr) == (2, True)
    assert "ended     the consumer ended it" in over.stdout.splitlines()
    assert "deadline" not in over.stdout
    assert over.stdout.splitlines()[-2:] == [
        "message   1, shown to the operator: turn left",
        "message   2, not shown before the end, as far as is known: hold still",
    ]
    assert of_operator.stdout.splitlines()[-2:] == over.stdout.splitlines()[-2:]


async def test_a_request_says_that_its_operator_has_not_started_and_what_to_do_if_it_declines() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await operator.go_online()
        await operator.beat()
        assigned = await sightline(world, consumer, "request", "52.52", "13.405")
        session_id = assigned.stdout.strip()
        data_of(await operator.key.post(f"/api/v1/sessions/{session_id}/decline"))
        declined = await sightline(world, consumer, "frames", session_id)
    assert assigned.returncode == 0
    assert f"Session {session_id} is ASSIGNED, and costs at most " in assigned.stderr
    assert f"`sightline sessions {session_id}` says when it is LIVE, and it then runs until" in assigned.stderr
    step = f"No command dispatches it again: to have another operator, withdraw it with `sightline end {session_id}`"
    assert f"If the operator declines or does not start, it is REQUESTED again. {step}" in assigned.stderr
    assert (declined.returncode, "is REQUESTED. It has frames while it is LIVE. No operator" in declined.stderr) == (
        1, True,
    )  # fmt: skip
    assert step in declined.stderr


async def test_messages_before_the_newest_ten_are_listed_from_the_events_after_the_end() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        path = f"/api/v1/sessions/{(await world.live(consumer, operator))['id']}"
        for number in range(1, 12):
            world.clock.advance(6)
            world.video.show(path.rpartition("/")[2], number)
            assert (await operator.beat()).status_code == 200
            data_of(await consumer.key.post(f"{path}/messages", {"text": f"text {number}"}))
        data_of(await consumer.key.post(f"{path}/end"))
        over = await sightline(world, consumer, "sessions", path.rpartition("/")[2])
    lines = [line for line in over.stdout.splitlines() if line.startswith("message ")]
    assert re.sub(r"\d{4}-\S+Z", "AT", lines[0]) == "message   1, AT, not known whether it was shown: text 1"
    assert lines[-1] == "message   11, not shown before the end, as far as is known: text 11"
    assert len(lines) == 11


async def test_an_extension_above_the_highest_charge_says_what_it_pays_for() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        live = await world.live(consumer, operator)
        known = data_of(await consumer.key.get(f"/api/v1/sessions/{live['id']}"))
        rate, has_s = int(known["ratePerSecondMicroUsdc"]), known["maxDurationSeconds"]
        limits = [f"{rate * (has_s + more_s) / 1_000_000:.6f}" for more_s in (0, 7)]
        none, some = [await sightline(world, consumer, "extend", live["id"], "60", "--max-charge", it) for it in limits]
        fits = await sightline(world, consumer, "extend", live["id"], "7", "--max-charge", limits[1])
    assert (none.returncode, some.returncode, fits.returncode) == (1, 1, 0)
    assert "that the session may cost. While a charge is not paid, the wallet gets no further session." in fits.stderr
    assert "above --max-charge" in none.stderr
    assert none.stderr.endswith(" Raise --max-charge.\n")
    fitting = f"`sightline extend {live['id']} 7 --max-charge {Decimal(limits[1]).normalize():f}`"
    assert some.stderr.endswith(f" 7 s fit; for more, raise --max-charge. Run {fitting}.\n")


@pytest.mark.parametrize("command", ["watch", "request"])
async def test_a_price_above_the_highest_charge_names_the_command_that_fits(command: str, tmp_path: Path) -> None:
    async with open_world() as world:
        consumer = await world.party("CONSUMER")
        rate = Decimal(
            json.loads((await sightline(world, consumer, "quote", "5", "5", "--json")).stdout)["ratePerSecondMicroUsdc"]
        )
        limit = f"{rate * 7 / 1_000_000:f}"
        options = ["--max-charge", limit, *(("--out", str(tmp_path / "a b")) if command == "watch" else ())]
        done = await sightline(world, consumer, command, "5", "-5", "--seconds", "60", *options)
        listed = data_of(await consumer.key.get("/api/v1/sessions"))["items"]
    fitting = shlex.join(["sightline", command, "--seconds", "7", "5", "-5", *options])
    assert done.returncode == 1
    assert done.stderr.endswith(f" 7 s fit; for more, raise --max-charge. Run `{fitting}`.\n")
    assert listed == []


async def test_a_clip_gets_the_suffix_of_its_kind_once(tmp_path: Path) -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        session_id = (await world.live(consumer, operator))["id"]
        world.video.keep(session_id, a_clip(world.clock.now_ms(), b"video"))
        for name in ("c.mp4", "c"):
            done = await sightline(world, consumer, "clip", session_id, "--out", str(tmp_path / name))
            assert done.stdout.startswith(f"{tmp_path}/c.mp4: ")
    assert os.listdir(tmp_path) == ["c.mp4"]


async def test_a_state_that_no_session_has_is_named_with_those_that_there_are() -> None:
    async with open_world() as world:
        done = await sightline(world, None, "sessions", "--state", "FOO", "--json")
    assert "'FOO' is not one of REQUESTED, ASSIGNED, LIVE" in json.loads(done.stderr)["message"]


async def test_a_request_without_an_operator_says_only_that() -> None:
    async with open_world() as world:
        done = await sightline(world, await world.party("CONSUMER"), "request", "5", "5")
    assert (done.returncode, done.stdout) == (1, "")
    assert "costs at most" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("No operator was available at 5.0, 5.0 now.")


async def test_a_key_that_may_not_read_the_wallet_is_told_nothing_of_it() -> None:
    async with open_world() as world:
        buyer = await world.party("CONSUMER")
        blind = await world.party("CONSUMER", scopes=["sessions:create", "sessions:read", "pricing:read"])
        for party, lines in ((buyer, 2), (blind, 1)):
            done = await sightline(world, party, "request", "5", "5")
            assert len(done.stderr.splitlines()) == lines, done.stderr


async def test_watch_names_its_session_and_price_before_an_operator_is_found(tmp_path: Path) -> None:
    async with open_world() as world:
        consumer = await world.party("CONSUMER")
        words = ("watch", "5", "5", "--wait", "0", "--out", str(tmp_path))
        as_text = await sightline(world, consumer, *words)
        as_json = await sightline(world, consumer, *words, "--json")
        listed = data_of(await consumer.key.get("/api/v1/sessions"))["items"]
    most, rate = int(listed[1]["holdMicroUsdc"]), int(listed[1]["ratePerSecondMicroUsdc"])
    price = f"at most {MicroUsdc(most).usdc} USDC, {MicroUsdc(rate * 60).usdc} USDC a minute."
    assert f"Session {listed[1]['id']} is requested. It costs {price}" in as_text.stderr.splitlines()
    said = [json.loads(line) for line in as_json.stderr.splitlines()]
    named = {"sessionId": listed[0]["id"], "holdMicroUsdc": listed[0]["holdMicroUsdc"]}
    assert named in said
    assert (said[-1]["code"], said[-1]["sessionId"]) == ("NoOperatorError", listed[0]["id"])


async def test_listen_has_no_line_for_a_workspace_of_which_nothing_shown_changed() -> None:
    lines = EventLines()
    async with open_world() as world:
        operator = await world.party("SUPPLIER")
        known = data_of(await operator.key.get(operator.path))

    def line(**changed: object) -> str | None:
        return lines.line(Event(1, "workspace", Workspace.model_validate(known | changed), known | changed))

    named = f"workspace  {known['id']}  {known['slug']}"
    assert line() == f"{named}, OFFLINE"
    assert line(lastSeenAt="2026-11-27T12:00:00.000Z") is None
    assert line(availabilityState="ONLINE") == f"{named}, ONLINE"
    assert line() == f"{named}, OFFLINE"


async def test_listen_says_what_happened_to_a_session() -> None:
    lines = EventLines()

    def line(**changed: object) -> str | None:
        return lines.line(Event(1, "session", Session.model_validate(known | changed), known | changed))

    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        live = await world.live(consumer, operator)
        known = data_of(await consumer.key.get(f"/api/v1/sessions/{live['id']}"))
    named = f"session    {known['id']}  LIVE"
    assert line() == named
    assert line(pauseReason="MEDIA_LOST") == f"{named}, paused: no video of the operator arrives"
    until = known["expiresAt"] = "2026-11-27T12:00:00.000Z"
    longer = known["maxDurationSeconds"] = known["maxDurationSeconds"] + 60
    assert line() == f"{named}, no longer paused, extended to {longer} s, until {until[:19]}Z"
    known["messages"] = [{"number": 1, "sentAt": until, "text": "turn left"}]
    assert line() == f"{named}, message 1: turn left"
    assert line() is None
    assert line(pauseReason="MEDIA_LOST") == f"{named}, paused: no video of the operator arrives"
    assert line(pauseReason="MEDIA_LOST") is None
    known |= {"state": "ENDED", "endReason": "CONSUMER_ENDED"}
    ended = f"session    {known['id']}  ENDED, the consumer ended it"
    assert (line(), line()) == (ended, None)
    assert line(settlementTxHash="0xab", chargedMicroUsdc="5") == f"{ended}, paid in 0xab"
    assert line(settlementTxHash="0xab", chargedMicroUsdc="5") is None
    assert line(settlementTxHash="0xab") == f"{ended}, settled in 0xab"
    assert lines.line(Event(2, "requestClosed", None, {"sessionId": known["id"]})) == f"requestClosed  {known['id']}"
    place = {"lat": 1.5, "lng": 2.5, "accuracyMeters": 5, "capturedAt": until, "receivedAt": until}
    at = SessionLocation.model_validate(place | {"sessionId": known["id"], "inGeofence": True})
    said = lines.line(Event(3, "location", at, {"sessionId": known["id"]}))
    assert said == f"location   {known['id']}  1.5 2.5, inside the geofence"
    assert lines.line(Event(4, "location", at, {"sessionId": known["id"]})) is None


async def test_a_request_says_that_its_operator_was_not_seen_lately() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await operator.go_online()
        unseen = await sightline(world, consumer, "request", "5", "5", "--json")
        data_of(await consumer.key.post(f"/api/v1/sessions/{json.loads(unseen.stdout)['id']}/end"))
        await operator.beat()
        seen = await sightline(world, consumer, "request", "5", "5", "--json")
    said = {"warning": "Its device has not been seen lately, so it may film late, or not at all."}
    assert said in [json.loads(line) for line in unseen.stderr.splitlines()]
    assert said not in [json.loads(line) for line in seen.stderr.splitlines()]


async def serve_until_cancelled(
    proxy: LosingProxy,
    listeners: list[trio.SocketListener],
    *,
    task_status: trio.TaskStatus[trio.CancelScope],
) -> None:
    with trio.CancelScope() as scope:
        task_status.started(scope)
        await trio.serve_listeners(proxy.serve, listeners)


class JsonLines:
    """What a program prints, a JSON line at a time."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._rest = b""

    async def next(self) -> dict[str, Any]:
        while b"\n" not in self._rest:
            more = await self._stream.receive_some()
            assert more, "the program has ended"
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found


async def test_listen_tries_for_minutes_after_a_lost_connection_and_says_when_it_is_back() -> None:
    async with open_world() as world, trio.open_nursery() as nursery:
        consumer = await world.party("CONSUMER")
        proxy = LosingProxy(world.base_url, Random("listen"), share_lost=0)
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listener.socket.getsockname()[1]
        serving = await nursery.start(serve_until_cancelled, proxy, [listener])
        env = os.environ | {"SIGHTLINE_URL": f"http://127.0.0.1:{port}", "SIGHTLINE_API_KEY": consumer.plaintext}
        command = [sys.executable, "-m", "sightline_client", "listen", "--json"]
        process = await nursery.start(
            partial(trio.run_process, command, env=env, stdout=PIPE, stderr=PIPE, check=False)
        )
        events, said = JsonLines(process.stdout), JsonLines(process.stderr)
        with trio.fail_after(60):
            first = await events.next()
            serving.cancel()
            lost = await said.next()
            assert "Cannot reach" in lost["warning"]
            assert lost["warning"].endswith("Trying again for at most 900 s.")
            listeners = await trio.open_tcp_listeners(port, host="127.0.0.1")
            nursery.start_soon(trio.serve_listeners, proxy.serve, listeners)
            assert await said.next() == {"info": f"http://127.0.0.1:{port} answers again."}
            again = await events.next()
            assert again["at"] > first["at"]
            assert again["data"] == first["data"], "the current state"
        process.kill()
        nursery.cancel_scope.cancel()


async def test_a_command_says_that_a_server_which_takes_connections_does_not_answer() -> None:
    async with open_world() as world, trio.open_nursery() as nursery:
        consumer, is_said = await world.party("CONSUMER"), trio.Event()
        proxy = LosingProxy(world.base_url, Random("hang"), share_lost=0)

        async def hang(stream: trio.SocketStream) -> None:
            await is_said.wait()
            await proxy.serve(stream)

        listeners = await nursery.start(partial(trio.serve_tcp, hang, 0, host="127.0.0.1"))
        url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        env = os.environ | {"SIGHTLINE_URL": url, "SIGHTLINE_API_KEY": consumer.plaintext}
        line = [sys.executable, "-m", "sightline_client", "sessions", "--json"]
        run = partial(trio.run_process, line, env=env, stdout=PIPE, stderr=PIPE, check=False)
        process = await nursery.start(run)
        with trio.fail_after(60):
            said = await JsonLines(process.stderr).next()
            is_said.set()
            assert await process.wait() == 0
        nursery.cancel_scope.cancel()
    assert said == {"warning": f"{url} has not answered for 5 s. Waiting for at most 35 s."}


async def test_a_request_waits_for_an_operator_as_long_as_it_is_told() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        none = await sightline(world, consumer, "request", "5", "5", "--wait", "0.1")
        words = ("request", "52.52", "13.405", "--wait", "60", "--instructions", "turn left")
        env = os.environ | {"SIGHTLINE_URL": world.base_url, "SIGHTLINE_API_KEY": consumer.plaintext}
        line = [sys.executable, "-m", "sightline_client", *words]
        process = await trio.lowlevel.open_process(line, env=env, stdout=PIPE, stderr=PIPE)
        assert process.stdout is not None
        assert process.stderr is not None
        said = b""
        with trio.fail_after(60):
            while b"Waiting for one, at most 60 s." not in said:
                said += await process.stderr.receive_some()
            await operator.go_online()
            printed = b"".join([chunk async for chunk in process.stdout])
            assert await process.wait() == 0
        session = data_of(await consumer.key.get(f"/api/v1/sessions/{printed.decode().strip()}"))
        await process.stderr.aclose()
    assert none.returncode == 1
    assert "No operator was available at 5.0, 5.0 within 0.1 s." in none.stderr
    assert (session["state"], session["instructions"]) == ("ASSIGNED", "turn left")


async def test_watch_passes_instructions_to_the_operator(tmp_path: Path) -> None:
    async with open_world() as world:
        consumer = await world.party("CONSUMER")
        words = ("watch", "5", "5", "--wait", "0", "--instructions", "turn left", "--out", str(tmp_path))
        await sightline(world, consumer, *words)
        (listed,) = data_of(await consumer.key.get("/api/v1/sessions"))["items"]
    assert listed["instructions"] == "turn left"
