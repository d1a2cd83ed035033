"""The faults. Each function injects one and returns when its cause is removed; the recovery is measured from there.

A fault that ends the server starts it again, as a supervisor (systemd, a container) would. The server must survive
all other faults.
"""

import os
import resource
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

import asyncpg
import psutil
import trio

from sightline.bootstrap.process import EXIT_FENCED
from sightline.domain.value import Value
from sightline.storage.embedded.postgres_child import SOCKET_NAME
from tests.chain.endpoint import Fault as ChainFault
from tests.chain.endpoint import Forward, Request, Response, honest
from tests.e2e.traffic import Stage
from tests.nemesis.parts import ROLE, on_database
from tests.nemesis.system import Arrangement, System
from tests.storage.proxy import Fault as WireFault
from tests.storage.test_sqlstates import BUG, CONCURRENCY, TRY_LATER

Inject: TypeAlias = Callable[[System, Stage, Random], Awaitable[None]]

EVERYWHERE: Final = frozenset(Arrangement)
EMBEDDED: Final = frozenset({Arrangement.EMBEDDED})
EXTERNAL: Final = frozenset({Arrangement.EXTERNAL})
HOUR_S: Final = 3600
FENCED_WITHIN_S: Final = 15.0
NOTICED_WITHIN_S: Final = 60.0
MEMORY_LEFT: Final = 16 * 1024 * 1024
HTML: Final = b"<!doctype html><title>502 Bad Gateway</title><h1>502 Bad Gateway</h1>"


class Fault(Value):
    """One kind of fault, and the arrangements in which it can happen."""

    name: str
    inject: Inject
    where: frozenset[Arrangement] = EVERYWHERE


# Faults of the server process.


async def kill_server(system: System, stage: Stage, _rng: Random) -> None:
    """Kill the server by SIGKILL, and start it."""
    stage.fall()
    await system.server.kill()
    await system.server.start()
    stage.rise()


async def kill_everything(system: System, stage: Stage, _rng: Random) -> None:
    """Kill the server and all its children at once by SIGKILL, and start it."""
    stage.fall()
    await system.server.kill_everything()
    await system.server.start()
    stage.rise()


async def stop_server(system: System, stage: Stage, _rng: Random) -> None:
    """Stop the server by SIGTERM under load, and start it."""
    stage.fall()
    code = await system.server.stop()
    if code != 0:
        stage.history.unexpected.append(f"SIGTERM ended the server with exit code {code}")
    await system.server.start()
    stage.rise()


async def kill_starting_server(system: System, stage: Stage, rng: Random) -> None:
    """Kill the server by SIGKILL, and kill it again while it starts."""
    stage.fall()
    await system.server.kill()
    system.server.spawn()
    await trio.sleep(rng.uniform(0.1, 2.5))
    await system.server.kill()
    await system.server.start()
    stage.rise()


async def kill_stopping_server(system: System, stage: Stage, rng: Random) -> None:
    """Kill the server by SIGKILL while it stops after SIGTERM, and start it."""
    stage.fall()
    system.process.terminate()
    await trio.sleep(rng.uniform(0.05, 1.5))
    await system.server.kill()
    await system.server.start()
    stage.rise()


async def occupy_processors(_system: System, _stage: Stage, _rng: Random) -> None:
    """Run two busy processes per processor for 10 s."""
    command = [sys.executable, "-c", "while True: pass"]
    with trio.move_on_after(10):
        async with trio.open_nursery() as nursery:
            for _ in range(2 * (os.cpu_count() or 1)):
                nursery.start_soon(trio.run_process, command)


async def suspend_server(seconds: float, system: System, _stage: Stage, _rng: Random) -> None:
    """Suspend only the server by SIGSTOP; its children keep running."""
    await _suspend([system.process], seconds)


async def _suspend(processes: Iterable[psutil.Process], seconds: float) -> None:
    stopped = list(processes)
    for process in stopped:
        with suppress(psutil.NoSuchProcess):
            process.suspend()
    await trio.sleep(seconds)
    for process in stopped:
        with suppress(psutil.NoSuchProcess):
            process.resume()


async def exhaust_descriptors(system: System, _stage: Stage, _rng: Random) -> None:
    """Let the server open no further file for 8 s, while it loses a child that it has to restart."""
    pid = system.process.pid
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (system.process.num_fds(), hard))
    for child in system.children("sightline.chain.embedded", "sightline.video.worker")[-1:]:
        child.kill()
    await trio.sleep(8)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


# Faults of the database.


async def kill_postgres(system: System, _stage: Stage, _rng: Random) -> None:
    """Kill the first process of Postgres by SIGKILL."""
    system.postmaster().kill()
    _restart_external(system)


async def stop_postgres_now(system: System, _stage: Stage, _rng: Random) -> None:
    """Shut Postgres down in immediate mode (SIGQUIT), without waiting for its connections."""
    system.postmaster().send_signal(signal.SIGQUIT)
    _restart_external(system)


def _restart_external(system: System) -> None:
    if system.postgres is not None and system.postgres.process is not None:
        system.postgres.process.wait(30)
        system.postgres.start()


async def kill_postgres_keeper(system: System, _stage: Stage, _rng: Random) -> None:
    """Kill the child process that supervises Postgres by SIGKILL."""
    for child in system.children("postgres_child"):
        child.kill()


async def kill_backend(system: System, _stage: Stage, rng: Random) -> None:
    """Kill the process of one connection by SIGKILL: Postgres ends all the others and recovers."""
    backends = [child for child in system.postmaster().children() if "sightline" in _title(child)]
    with suppress(psutil.NoSuchProcess):
        rng.choice(backends or system.postmaster().children()).kill()


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


async def suspend_postgres(seconds: float, system: System, _stage: Stage, _rng: Random) -> None:
    """Suspend all processes of Postgres by SIGSTOP."""
    postmaster = system.postmaster()
    await _suspend([postmaster, *postmaster.children()], seconds)


async def terminate_backends(system: System, _stage: Stage, _rng: Random) -> None:
    """Terminate every connection of the server by SQL, three times."""
    for _ in range(3):
        await _on_database(
            system, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'sightline%'"
        )
        await trio.sleep(0.5)


async def _on_database(system: System, *statements: str) -> None:
    async def unit(connection: Any) -> None:
        for statement in statements:
            await connection.execute(statement)

    await on_database(system.database_dsn, unit)


@asynccontextmanager
async def _server_setting(system: System, name: str, value: str) -> AsyncIterator[None]:
    """Change a setting of Postgres for all connections, open ones included."""
    await _on_database(system, f"ALTER SYSTEM SET {name} = '{value}'", "SELECT pg_reload_conf()")
    try:
        yield
    finally:
        await _on_database(system, f"ALTER SYSTEM RESET {name}", "SELECT pg_reload_conf()")


async def make_read_only(system: System, _stage: Stage, _rng: Random) -> None:
    """Refuse every write for 8 s, as a standby does that is not yet promoted."""
    async with _server_setting(system, "default_transaction_read_only", "on"):
        await trio.sleep(8)


async def hold_locks(system: System, _stage: Stage, _rng: Random) -> None:
    """Lock tables for 6 s, with a lock timeout of half a second."""

    async def hold(connection: Any) -> None:
        async with connection.transaction():
            await connection.execute("SET LOCAL lock_timeout = 0")
            await connection.execute("LOCK TABLE session, workspace, heartbeat, settlement IN ACCESS EXCLUSIVE MODE")
            await connection.execute("SELECT pg_sleep(6)")

    async with _server_setting(system, "lock_timeout", "500ms"):
        # The server's own limit on waiting may end this connection; then the fault is over.
        with suppress(asyncpg.PostgresError):
            await on_database(system.database_dsn, hold)


async def change_schema(change: str, undo: str, system: System, stage: Stage, _rng: Random) -> None:
    """Change the schema under the server for 6 s, as a migration of other software would."""
    async with _defective_database(stage):
        await _on_database(system, change)
        await trio.sleep(6)
        await _on_database(system, undo)


async def raise_every_class(system: System, stage: Stage, _rng: Random) -> None:
    """Let each write of a session, a workspace or a heartbeat raise an error of a random SQLSTATE, for 8 s."""
    codes = ", ".join(f"'{code}'" for code in (*TRY_LATER, *CONCURRENCY, *BUG))
    function = f"""
        CREATE FUNCTION nemesis() RETURNS trigger LANGUAGE plpgsql AS $$
        DECLARE codes text[] := ARRAY[{codes}];
        BEGIN
            RAISE EXCEPTION USING ERRCODE = codes[1 + floor(random() * cardinality(codes))::int], MESSAGE = 'nemesis';
        END $$"""
    tables = ("session", "workspace", "heartbeat")
    made = (
        f"CREATE TRIGGER nemesis BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION nemesis()"
        for table in tables
    )
    async with _defective_database(stage):
        await _on_database(system, function, *made)
        await trio.sleep(8)
        await _on_database(system, *(f"DROP TRIGGER nemesis ON {table}" for table in tables), "DROP FUNCTION nemesis()")


@asynccontextmanager
async def _defective_database(stage: Stage) -> AsyncIterator[None]:
    """Accept 500 as an answer, also to the calls that were under way at the end."""
    stage.is_database_defective = True
    yield
    await trio.sleep(3)
    stage.is_database_defective = False


async def lose_replica(system: System, _stage: Stage, _rng: Random) -> None:
    """Let every commit wait for 8 s for a synchronous replica that does not answer."""
    async with _server_setting(system, "synchronous_standby_names", "absent"):
        await trio.sleep(8)


async def exhaust_connections(system: System, _stage: Stage, _rng: Random) -> None:
    """Terminate the server's connections and occupy all that Postgres allows, for 8 s."""

    async def occupy(connection: Any) -> None:
        taken = []
        for _ in range(8):
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'sightline%'"
            )
            with suppress(asyncpg.PostgresError):
                while True:  # until Postgres refuses one
                    taken.append(await asyncpg.connect(system.database_dsn))
            await connection.execute("SELECT pg_sleep(1)")
        for each in taken:
            await each.close()

    await on_database(system.database_dsn, occupy)


async def fail_over(system: System, _stage: Stage, rng: Random) -> None:
    """Kill the database and continue on its synchronous replica, which is reached for 2 s before it is promoted."""
    assert system.wire is not None
    assert system.postgres is not None
    old = system.postgres
    new = await old.replicate(old.directory.with_name(f"postgres-{rng.getrandbits(32):x}"))
    await trio.sleep(rng.uniform(0.5, 2.0))
    old.end()
    system.postgres = new
    system.wire.upstream = str(new.layout.socket_directory / SOCKET_NAME)
    system.wire.cut()
    await trio.sleep(2)
    await _on_database(system, "SELECT pg_promote()")
    shutil.rmtree(old.directory)


async def block_connections(system: System, _stage: Stage, _rng: Random) -> None:
    """Let nothing pass between server and database for 15 s, without closing a connection."""
    assert system.wire is not None
    system.wire.block()
    await trio.sleep(15)
    system.wire.unblock()


async def cut_connections(system: System, _stage: Stage, rng: Random) -> None:
    """Drop every connection to the database, ten times in 5 s."""
    assert system.wire is not None
    for _ in range(10):
        system.wire.cut()
        await trio.sleep(rng.uniform(0.2, 0.8))


async def slow_connections(system: System, _stage: Stage, _rng: Random) -> None:
    """Delay each answer of the database by 200 ms, for 8 s."""
    assert system.wire is not None
    system.wire.delay_s = 0.2
    await trio.sleep(8)
    system.wire.delay_s = 0.0


async def lose_answers(system: System, _stage: Stage, rng: Random) -> None:
    """Cut connections after the database has executed a request and before its answer arrives, for 6 s."""
    assert system.wire is not None
    with trio.move_on_after(6):
        while True:
            for marker in ("COMMIT", ""):
                system.wire.plan(marker, WireFault.NOT_ANSWERED)
            await trio.sleep(rng.uniform(0.05, 0.3))
    system.wire.faults.clear()


async def fill_disk(system: System, _stage: Stage, _rng: Random) -> None:
    """Leave no space for 8 s on the disk of the database (and of the chain, if embedded)."""
    system.disk.fill()
    try:
        await trio.sleep(8)
    finally:
        system.disk.clear()
    if (
        system.postgres is not None
        and system.postgres.process is not None
        and system.postgres.process.poll() is not None
    ):
        # The operator of an external database starts it again if it stopped.
        system.postgres.start()


async def limit_connections(system: System, _stage: Stage, _rng: Random) -> None:
    """Allow the server's role two connections for 8 s, and terminate the open ones."""
    await _on_database(system, f"ALTER ROLE {ROLE} CONNECTION LIMIT 2")
    try:
        for _ in range(8):
            await _on_database(
                system, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{ROLE}'"
            )
            await trio.sleep(1)
    finally:
        await _on_database(system, f"ALTER ROLE {ROLE} CONNECTION LIMIT -1")


# Faults of memory.


async def exhaust_memory(system: System, stage: Stage, _rng: Random) -> None:
    """Let the server and its children allocate no more than 16 MB for 10 s, by a memory cgroup.

    Pages that a process had before stay with its former group. Beyond the limit the kernel kills some.
    """
    with memory_group(MEMORY_LEFT) as group:
        for process in (system.process, *system.process.children(recursive=True)):
            with suppress(ProcessLookupError, psutil.NoSuchProcess):
                (group / "cgroup.procs").write_text(str(process.pid))
        await trio.sleep(10)
    server = system.server.process
    assert server is not None
    if server.poll() is not None:
        stage.fall()
        await system.server._reap()
        await system.server.start()
        stage.rise()


@contextmanager
def memory_group(limit: int) -> Iterator[Path]:
    """Make a memory cgroup (version 1), and move its processes back at the end."""
    root = Path("/sys/fs/cgroup/memory")
    group = root / f"sightline-nemesis-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(limit))
        yield group
    finally:
        while pids := (group / "cgroup.procs").read_text().split():
            for pid in pids:
                with suppress(ProcessLookupError):
                    (root / "cgroup.procs").write_text(pid)
        group.rmdir()


# Faults of chain, video and clock.


async def send_garbage(body: bytes, system: System, _stage: Stage, _rng: Random) -> None:
    """Let the chain's endpoint answer each request with this body and status 200, for 8 s."""
    assert system.endpoint is not None
    system.endpoint.garbage = body
    await trio.sleep(8)
    system.endpoint.garbage = None


async def send_wrong_results(system: System, _stage: Stage, rng: Random) -> None:
    """Let the chain's endpoint answer results of wrong types, for 8 s."""
    await _with_chain_fault(system, lambda request, _: _result(request, rng.choice([None, 7, [], {}, "0x", "latest"])))


async def send_other_blocks(system: System, _stage: Stage, _rng: Random) -> None:
    """Let the chain's endpoint give each block another hash and another parent, until the watcher has halted."""
    halts = system.events()["watcher_halted"]

    async def forge(request: Request, forward: Forward) -> Response | None:
        answer = await forward(request)
        block = answer.get("result")
        if request["method"] == "eth_getBlockByNumber" and isinstance(block, dict):
            answer["result"] = block | {"hash": "0x" + "ab" * 32, "parentHash": "0x" + "cd" * 32}
        return answer

    assert system.endpoint is not None
    system.endpoint.fault = forge
    with trio.fail_after(NOTICED_WITHIN_S):
        while system.events()["watcher_halted"] == halts:  # noqa: ASYNC110  another process writes the log
            await trio.sleep(0.2)
    system.endpoint.fault = honest


async def serve_stale_head(system: System, _stage: Stage, _rng: Random) -> None:
    """Let the chain's endpoint report a head of before, for 8 s."""
    assert system.endpoint is not None
    latest = {"jsonrpc": "2.0", "id": 1, "method": "eth_getBlockByNumber", "params": ["latest", False]}
    then = (await system.endpoint.forward(latest))["result"]

    async def stay(request: Request, forward: Forward) -> Response | None:
        if request["method"] == "eth_blockNumber":
            return await _result(request, then["number"])
        if request["method"] == "eth_getBlockByNumber" and request["params"][0] == "latest":
            return await _result(request, then)
        return await forward(request)

    await _with_chain_fault(system, stay)


async def _result(request: Request, result: Any) -> Response:
    return {"jsonrpc": "2.0", "id": request["id"], "result": result}


async def _with_chain_fault(system: System, fault: ChainFault) -> None:
    assert system.endpoint is not None
    system.endpoint.fault = fault
    await trio.sleep(8)
    system.endpoint.fault = honest


async def kill_chain(system: System, _stage: Stage, _rng: Random) -> None:
    """Kill the chain's process by SIGKILL."""
    if system.chain is not None:
        system.chain.end()
        await trio.sleep(2)
        system.chain.start()
        return
    for child in system.children("sightline.chain.embedded"):
        child.kill()


async def suspend_chain(system: System, _stage: Stage, _rng: Random) -> None:
    """Suspend the chain's process by SIGSTOP for 8 s."""
    external = system.chain.process if system.chain is not None else None
    chain = [psutil.Process(external.pid)] if external is not None else system.children("sightline.chain.embedded")
    await _suspend(chain, 8)


async def kill_video_workers(system: System, _stage: Stage, _rng: Random) -> None:
    """Kill the video workers by SIGKILL."""
    for child in system.children("sightline.video.worker"):
        child.kill()


async def step_clock(seconds: float, system: System, _stage: Stage, _rng: Random) -> None:
    """Step the wall clock of the server and its children."""
    system.clock.step(seconds)


async def step_clock_and_kill(seconds: float, system: System, stage: Stage, rng: Random) -> None:
    """Step the wall clock and kill the server: the restarted one knows only the new time."""
    system.clock.step(seconds)
    await kill_server(system, stage, rng)


# Faults with a second server.


async def replace_server(system: System, stage: Stage, _rng: Random) -> None:
    """Start a second server on the same database, which must wait; then kill the first by SIGKILL."""
    first, second = system.server, system.another_server()
    second.spawn()
    await second.until_logged("waiting_for_other_server")
    if await system.unready() is not None:
        stage.history.unexpected.append("a second server disturbed the first one")
    stage.fall()
    await first.kill()
    await second.await_ready()
    system.server = stage.server = second
    stage.rise()


async def suspend_and_replace_server(system: System, stage: Stage, _rng: Random) -> None:
    """Suspend the server by SIGSTOP until a second one has taken over; when it continues it must stop by itself."""
    first, second = system.server, system.another_server()
    process = first.process
    assert process is not None
    stage.fall()
    process.send_signal(signal.SIGSTOP)
    await second.start()
    process.send_signal(signal.SIGCONT)
    with trio.move_on_after(FENCED_WITHIN_S):
        while process.poll() is None:  # noqa: ASYNC110  waits for the end of a process
            await trio.sleep(0.05)
    if process.poll() != EXIT_FENCED:
        stage.history.unexpected.append(f"a fenced server ended with {process.poll()} instead of {EXIT_FENCED}")
        await first.kill()
    system.server = stage.server = second
    stage.rise()


FAULTS: Final = (
    Fault("server kill -9", kill_server),
    Fault("server and children kill -9", kill_everything, EMBEDDED),
    Fault("server kill -9 while it starts", kill_starting_server),
    Fault("server SIGTERM", stop_server),
    Fault("server kill -9 while it stops", kill_stopping_server),
    Fault("server SIGSTOP 1 s", partial(suspend_server, 1)),
    Fault("server SIGSTOP 5 s", partial(suspend_server, 5)),
    Fault("server SIGSTOP 30 s", partial(suspend_server, 30)),
    Fault("server out of descriptors", exhaust_descriptors),
    Fault("processors busy 10 s", occupy_processors),
    Fault("postgres kill -9", kill_postgres),
    Fault("postgres immediate stop", stop_postgres_now),
    Fault("postgres keeper kill -9", kill_postgres_keeper, EMBEDDED),
    Fault("postgres backend kill -9", kill_backend),
    Fault("postgres SIGSTOP 5 s", partial(suspend_postgres, 5)),
    Fault("postgres SIGSTOP 30 s", partial(suspend_postgres, 30)),
    Fault("postgres backends terminated", terminate_backends),
    Fault("postgres connections exhausted 8 s", exhaust_connections),
    Fault("postgres read-only 8 s", make_read_only),
    Fault("postgres lock timeout", hold_locks),
    Fault(
        "postgres table renamed 6 s",
        partial(change_schema, "ALTER TABLE session_event RENAME TO gone", "ALTER TABLE gone RENAME TO session_event"),
    ),
    Fault(
        "postgres column renamed 6 s",
        partial(
            change_schema,
            "ALTER TABLE heartbeat RENAME COLUMN accuracy_m TO gone",
            "ALTER TABLE heartbeat RENAME COLUMN gone TO accuracy_m",
        ),
    ),
    Fault(
        "postgres constraint refuses rows 6 s",
        partial(
            change_schema,
            "ALTER TABLE session ADD CONSTRAINT nemesis CHECK (false) NOT VALID",
            "ALTER TABLE session DROP CONSTRAINT nemesis",
        ),
    ),
    Fault("postgres raises every class 8 s", raise_every_class),
    Fault("postgres replica does not answer 8 s", lose_replica, EXTERNAL),
    Fault("postgres fails over", fail_over, EXTERNAL),
    Fault("database connections cut", cut_connections, EXTERNAL),
    Fault("database black hole 15 s", block_connections, EXTERNAL),
    Fault("database latency 200 ms", slow_connections, EXTERNAL),
    Fault("database answers lost", lose_answers, EXTERNAL),
    Fault("disk full 8 s", fill_disk),
    Fault("role may have two connections 8 s", limit_connections, EXTERNAL),
    Fault("memory of the cgroup exhausted", exhaust_memory),
    Fault("chain answers HTML", partial(send_garbage, HTML), EXTERNAL),
    Fault("chain answers half of a JSON text", partial(send_garbage, b'{"jsonrpc": "2.0", "id": 1, "resu'), EXTERNAL),
    Fault("chain answers 64 MB", partial(send_garbage, b'"' + b"x" * (64 << 20) + b'"'), EXTERNAL),
    Fault("chain answers wrong types", send_wrong_results, EXTERNAL),
    Fault("chain answers other blocks", send_other_blocks, EXTERNAL),
    Fault("chain serves a stale head", serve_stale_head, EXTERNAL),
    Fault("chain kill -9", kill_chain),
    Fault("chain SIGSTOP 8 s", suspend_chain),
    Fault("video workers kill -9", kill_video_workers),
    Fault("clock forward 1 h", partial(step_clock, HOUR_S)),
    Fault("clock back 1 h", partial(step_clock, -HOUR_S)),
    Fault("clock forward 1 h and kill -9", partial(step_clock_and_kill, HOUR_S)),
    Fault("clock back 1 h and kill -9", partial(step_clock_and_kill, -HOUR_S)),
    Fault("second server waits, first kill -9", replace_server, EXTERNAL),
    Fault("second server takes over from SIGSTOP", suspend_and_replace_server, EXTERNAL),
)


def faults_of(arrangement: Arrangement) -> tuple[Fault, ...]:
    """Return the faults that can happen in an arrangement."""
    return tuple(fault for fault in FAULTS if arrangement in fault.where)
