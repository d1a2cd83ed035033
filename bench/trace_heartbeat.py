"""Lists the Python functions that one heartbeat of a LIVE session, or one dispatch, calls, from socket to socket.

Runs a whole server (embedded database and chain) in this process, brings a session LIVE with one operator, and profiles
the server's thread during each of twenty calls on a connection that has already sent twenty: POST /location, or the
dispatch of a session to another of forty operators. A function counts if every one of them calls it, with the fewest
calls: what else ran belongs to other tasks, such as the chain's watcher.

    python -m bench.trace_heartbeat [heartbeat | dispatch]
"""

import asyncio
import contextlib
import io
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import FrameType

from bench.servers import HOST, Target, populate_sightline, sightline_sessions, spot
from bench.wire import Client, request
from sightline.cli import main

WARM_UPS = 20
TRACED = 20
LIBRARIES = "site-packages/"


class Trace:
    """Counts the functions that the server's thread calls while tracing is on."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.common: Counter[str] | None = None
        self.is_on = False

    def keep(self) -> None:
        """Keep what this heartbeat and all before it called."""
        self.common = self.calls if self.common is None else self.common & self.calls
        self.calls = Counter()

    def __call__(self, frame: FrameType, event: str, _arg: object) -> None:
        """Handle a profile event; see sys.setprofile."""
        if event == "call" and self.is_on:
            code = frame.f_code
            path = code.co_filename
            short = path.partition(LIBRARIES)[2] or path.removeprefix(f"{os.getcwd()}/")
            self.calls[f"{short}:{code.co_qualname}"] += 1


def heartbeat(sequence: int) -> bytes:
    """Build the body of a heartbeat at the place of the session, so that its meter runs."""
    return json.dumps({**spot(0), "accuracyMeters": 5, "sequence": sequence}).encode()


def exchange(connection: socket.socket, message: bytes) -> bytes:
    """Send a request and read its response, which arrives in one piece."""
    connection.sendall(message)
    return connection.recv(65_536)


async def heartbeats(port: int) -> list[bytes]:
    """Bring a session LIVE; return heartbeats of its operator."""
    target = Target("sightline", port, None)  # type: ignore[arg-type]  # this process is the server
    await populate_sightline(target, operators=1, devices=1)
    client, device = Client(HOST, port), target.devices[0]
    session = await client.call("POST", "/sessions", spot(0), key=target.consumer["key"])
    await client.call("POST", f"/sessions/{session['id']}/dispatch", key=target.consumer["key"])
    await client.call("POST", f"/sessions/{session['id']}/start", key=device["key"])
    client.close()
    path = f"/api/v1/workspaces/{device['id']}/location"
    return [request("POST", path, device["key"], heartbeat(number)) for number in range(1, WARM_UPS + TRACED + 1)]


async def dispatches(port: int) -> list[bytes]:
    """Create as many sessions as operators; return the dispatch of each."""
    target = Target("sightline", port, None)  # type: ignore[arg-type]  # this process is the server
    await populate_sightline(target, operators=WARM_UPS + TRACED, devices=1)
    sessions = await sightline_sessions(target, WARM_UPS + TRACED)
    return [request("POST", f"/api/v1/sessions/{each}/dispatch", target.consumer["key"]) for each in sessions]


def drive(trace: Trace, output: io.StringIO, prepare: Callable[[int], Coroutine[None, None, list[bytes]]]) -> None:
    """Wait for the server, send the calls, trace the last twenty, and stop the server."""
    try:
        while "ready " not in output.getvalue():
            time.sleep(0.1)
        port = int(output.getvalue().split("ready ", 1)[1].split()[0].rsplit(":", 1)[1])
        calls = asyncio.run(prepare(port))
        with socket.create_connection((HOST, port)) as connection:
            for number, call in enumerate(calls):
                trace.is_on = number >= WARM_UPS
                answer = exchange(connection, call)
                assert b" 200 " in answer[:20], answer
                time.sleep(0.02)  # the actors process what follows from the call after its answer
                if trace.is_on:
                    trace.is_on = False
                    trace.keep()
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    trace, output = Trace(), io.StringIO()
    prepare = dispatches if sys.argv[1:] == ["dispatch"] else heartbeats
    with tempfile.TemporaryDirectory() as directory:
        os.environ["SIGHTLINE_RATE_LIMITS"] = "false"
        os.environ["SIGHTLINE_CONSUMER_DISPATCHES_MAX"] = os.environ["SIGHTLINE_UNFUNDED_SESSIONS_MAX"] = "0"
        os.environ["SIGHTLINE_DATA_DIR"] = str(Path(directory) / "data")
        driver = threading.Thread(target=drive, args=(trace, output, prepare))
        driver.start()
        sys.argv = ["sightline", "serve", "--port", "0", "--internal-port", "0"]
        sys.setprofile(trace)
        with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
            main()
        sys.setprofile(None)
        driver.join()
    common = trace.common or Counter()
    ours = {name: count for name, count in common.items() if name.startswith("sightline/")}
    for name, count in common.items():
        sys.stdout.write(f"{count:4} {name}\n")
    sys.stdout.write(
        f"{len(common)} functions, {common.total()} calls; of Sightline {len(ours)}, {sum(ours.values())}\n"
    )
