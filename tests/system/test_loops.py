"""A loop survives whatever its step raises, and every periodic loop of the server is such a loop."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import trio
import trio.testing

import sightline
from sightline.domain.errors import InvariantError, OutcomeUnknownError, StoreUnavailableError
from sightline.system.loops import Backoff, run_forever

PACKAGE: Final = Path(sightline.__file__).parent
SERVER_ROOMS: Final = ("actors", "bootstrap", "chain", "cluster", "http", "identity", "storage", "system", "video")

OTHER_LOOPS: Final = {
    "system/loops.py:run_forever": "the helper itself",
    "actors/recovery.py:_until_answered": "ends when the store has answered; catches what it raises",
    "cluster/shard_host.py:_assign_forever": "catches what the store raises; actors do not import system",
    "bootstrap/database_mark.py:run": "catches what the store and the file raise; two primaries end the server",
    "bootstrap/database.py:_migrate": "ends when the leases of other servers have run out",
    "bootstrap/observability/self_report.py:run": "measures the event loop; nothing in it can fail",
    "actors/session/media_pump.py:_checkpoint": "catches what the store raises; actors do not import system",
    "actors/kernel/registry.py:_sweep": "touches no store, chain or file",
    "actors/workspace/heartbeat_writer.py:_write_batches": "reports every error to the callers of the batch",
    "actors/service/live_updates.py:next_change": "one stream: an error ends the stream",
    "actors/service/live_updates.py:watch_session": "one stream: an error ends the stream",
    "actors/watchers.py:change": "touches no store, chain or file",
    "cluster/bus/nats.py:_keep_connected": "connects again; a bug ends `run`, and `receive` raises it",
    "cluster/bus/nats_connection.py:_check": "one connection: an error ends it",
    "cluster/peers/peers.py:_sweep_forever": "touches no store, chain or file",
    "cluster/streams.py:run": "touches no store, chain or file",
    "cluster/sighting_reports.py:run": "touches no store, chain or file",
    "cluster/rates.py:run": "touches no store, chain or file",
    "cluster/membership.py:join": "a start may fail: it ends at its deadline",
    "bootstrap/failures/retry.py:run": "a start may fail: it ends at its deadline",
    "chain/deploy.py:_receipt": "a start may fail: it ends at its deadline",
    "chain/rpc/client.py:_persistently": "ends after a number of tries",
    "chain/escrow.py:open_hold": "one request: it ends after OPEN_WAIT_S",
    "chain/escrow.py:extend_hold": "one request: it ends after EXTEND_WAIT_S",
    "chain/permits.py:relay": "one request: it ends after PERMIT_WAIT_S",
    "chain/service.py:_tell_funds": "catches what the store and the actors raise",
    "chain/watcher/watcher.py:run": "supervised by run_forever in the chain service",
    "chain/relayer/relayer.py:run": "supervised by run_forever in the chain service",
    "http/resources/events.py:_write": "one request: an error ends the request",
    "http/resources/frames.py:_send_frames": "one request: an error ends the request",
    "http/resources/x402/purchase.py:_await_wallet": "one request: it ends after WALLET_WAIT_S",
    "http/server/serve.py:_sweep": "touches no store, chain or file",
    "http/server/serve.py:_accept": "catches OSError of accept",
    "storage/postgres/leases.py:_tick": "touches no store, chain or file",
    "system/kept_child.py:keep_child": "restarts the child process; catches what starting raises",
    "cluster/video/backend.py:_close_elsewhere": "catches what other servers answer",
    "video/external/mediamtx.py:watch": "catches what the media server raises",
    "video/worker_pool.py:_keep_worker": "restarts the worker process",
}
"""Endless loops with a pause that do not use `run_forever`, and why each cannot end the server by an error of the
store, the chain or the system."""


def periodic_loops() -> Iterator[str]:
    """`while True` loops that pause, as file:function."""
    for room in SERVER_ROOMS:
        for path in sorted((PACKAGE / room).rglob("*.py")):
            for function in ast.walk(ast.parse(path.read_text())):
                if isinstance(function, ast.AsyncFunctionDef) and any(map(is_periodic, ast.walk(function))):
                    yield f"{path.relative_to(PACKAGE).as_posix()}:{function.name}"


def is_periodic(node: ast.AST) -> bool:
    if not (isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and node.test.value is True):
        return False
    called = {ast.unparse(call.func) for call in ast.walk(node) if isinstance(call, ast.Call)}
    return bool(called & {"trio.sleep", "trio.sleep_until", "trio.move_on_after", "trio.move_on_at"})


def test_every_periodic_loop_of_the_server_uses_run_forever_or_says_why_not() -> None:
    assert sorted(set(periodic_loops()) - set(OTHER_LOOPS)) == []


def test_the_list_of_other_loops_names_only_loops_that_exist() -> None:
    assert sorted(set(OTHER_LOOPS) - set(periodic_loops())) == []


@pytest.mark.parametrize(
    "error",
    [
        StoreUnavailableError("no"),
        OutcomeUnknownError("no"),
        InvariantError("no"),
        OSError(28, "No space left on device"),
        AssertionError("no"),
        ExceptionGroup("group", [StoreUnavailableError("no")]),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_no_error_of_a_step_ends_its_loop(error: Exception, autojump_clock: trio.testing.MockClock) -> None:
    times: list[float] = []
    began = trio.current_time()

    async def step() -> None:
        times.append(trio.current_time() - began)
        if len(times) <= 4:
            raise error

    with trio.move_on_after(100):
        await run_forever("test", step, every_s=10.0, backoff=Backoff(first_s=1.0, max_s=5.0))
    assert times[:7] == pytest.approx([0, 1, 3, 7, 12, 22, 32])


async def test_a_loop_is_cancelled_within_its_step(autojump_clock: trio.testing.MockClock) -> None:
    with trio.move_on_after(3) as scope:
        await run_forever("test", trio.sleep_forever, every_s=1.0)
    assert scope.cancelled_caught
