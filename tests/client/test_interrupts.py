"""However often Ctrl-C is pressed while a view is left, its session ends, or the program says that it may not have."""

import json
import os
import re
import sys
from typing import Any, Final

import pytest
import trio

from tests.client.test_views import start_assigned
from tests.http.world import data_of, open_world

PROGRAM: Final = '''
import asyncio, json, signal, sys

import trio

from sightline_client import AsyncSightline, Sightline
from sightline_client._async import view as async_view
from sightline_client._sync import view as sync_view

# A shell's background jobs ignore SIGINT, and so do their children.
signal.signal(signal.SIGINT, signal.default_int_handler)
async_view.POLL_S = sync_view.POLL_S = 0.02
FILES = ("_sync/view.py", "_async/view.py", "runtime.py", "interrupts.py")
LEAVING = ("__exit__", "__aexit__")
ctrl_c = lambda: signal.raise_signal(signal.SIGINT)


def interrupt_at(number):
    """Send a SIGINT at line `number` of the client's own code after the block; returns whether it came to that."""
    seen, sent = 0, []

    def trace(frame, event, _):
        nonlocal seen
        path = frame.f_code.co_filename
        if not path.endswith(FILES) or (not seen and frame.f_code.co_name not in LEAVING):
            return None
        if not sent:
            seen += 1
            if seen == number:
                sent.append(True)
                ctrl_c()
        return trace

    sys.settrace(trace)
    return sent


def sync(number, break_off):
    with Sightline() as sl:
        view = sl.view(5.0, 5.0)
        try:
            with view:
                sent = interrupt_at(number)
                if break_off:
                    ctrl_c()
        except KeyboardInterrupt:
            said = True
        else:
            said = False
        finally:
            sys.settrace(None)
    return view.session, sent, said


async def watch(number, break_off, sleep, box):
    async with AsyncSightline() as sl:
        view = sl.view(5.0, 5.0)
        try:
            async with view:
                box.append(interrupt_at(number))
                if break_off:
                    ctrl_c()
                    await sleep(60)
        finally:
            sys.settrace(None)
            box.append(view.session)
        await sleep(0)


def run_async(run, sleep):
    def once(number, break_off):
        box, said = [], False
        try:
            run(watch, number, break_off, sleep, box)
        except KeyboardInterrupt:
            said = True
        sent, session = box
        return session, sent, said
    return once


ways = {
    "sync": sync,
    "trio": run_async(trio.run, trio.sleep),
    "asyncio": run_async(lambda main, *given: asyncio.run(main(*given)), asyncio.sleep),
}
once, step = ways[sys.argv[1]], int(sys.argv[2])
for break_off in (True, False):
    number = 1
    while True:
        session, sent, said = once(number, break_off)
        told = {"state": session.state, "line": number, "isBrokenOff": break_off, "isSent": bool(sent), "isSaid": said}
        told["isOwn"] = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        print(json.dumps(told), flush=True)
        if not sent:
            break
        number += step if number > 8 else 1
'''


@pytest.mark.parametrize("way", ["sync", "trio", "asyncio"])
async def test_a_second_ctrl_c_at_any_line_of_leaving_a_view_ends_its_session(way: str) -> None:
    told, errors = await run_program(way)
    assert len(told) > 18
    assert [each for each in told if each["state"] != "ENDED"] == []
    lost = [each for each in told if not each["isSaid"] and (each["isBrokenOff"] or each["isSent"])]
    assert lost == [], "the program stops after the end"
    assert all(each["isOwn"] for each in told), "the handler of before is back"
    said = [
        line
        for line in errors.splitlines()
        if re.match(r"Session [\w-]+ is ENDED, after 0 s\. It costs 0 USDC\.$", line)
    ]
    assert len(said) >= sum(each["isBrokenOff"] for each in told), errors


async def run_program(way: str, step: int = 61) -> tuple[list[dict[str, Any]], str]:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await operator.go_online()
        data_of(await operator.beat())  # else a view warns that its device was not seen lately
        env = os.environ | {"SIGHTLINE_URL": world.base_url, "SIGHTLINE_API_KEY": consumer.plaintext}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(start_assigned, operator)
            command = [sys.executable, "-c", PROGRAM, way, str(step)]
            with trio.fail_after(300):
                done = await trio.run_process(command, env=env, capture_stdout=True, capture_stderr=True, check=False)
            nursery.cancel_scope.cancel()
        errors = done.stderr.decode()
        assert done.returncode == 0, errors[-3000:]
        told = [json.loads(line) for line in done.stdout.splitlines()]
        assert data_of(await consumer.key.get("/api/v1/sessions?state=LIVE"))["items"] == []
        return told, errors
