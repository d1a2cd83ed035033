"""The embedded Postgres: starts anywhere, survives every kind of death, and outlives nobody."""

import os
import pwd
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import psutil
import pytest
import trio

from sightline.domain.errors import StoreUnavailableError
from sightline.storage.database.bridge import Database, DatabaseOptions, open_database
from sightline.storage.database.pool import PoolOptions
from sightline.storage.embedded.postgres_child import find_binaries
from sightline.storage.embedded.server import EmbeddedPostgresOptions, child_command, run_embedded_postgres
from sightline.system.children import ChildFailedError


def options_in(directory: Path) -> EmbeddedPostgresOptions:
    return EmbeddedPostgresOptions(
        directory=directory / "postgres", log_path=directory / "postgres.log", durable=False, start_timeout_s=30
    )


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[str]:
    async with trio.open_nursery() as nursery:
        yield await nursery.start(run_embedded_postgres, options_in(directory))
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[Database]:
    async with open_database(DatabaseOptions(pool=PoolOptions(dsn=dsn, connections_min=1))) as database:
        yield database


async def leave_note(dsn: str) -> None:
    async with connected(dsn) as database:
        await database.run(lambda c: c.execute("CREATE TABLE IF NOT EXISTS note AS SELECT 42 AS a"))


async def read_note(dsn: str) -> int:
    async with connected(dsn) as database:
        return int(await database.read(lambda c: c.fetchval("SELECT a FROM note")))


def postmaster_pid(directory: Path) -> int:
    return int((directory / "postgres/cluster/postmaster.pid").read_text().split()[0])


def start_alone(directory: Path) -> "subprocess.Popen[bytes]":
    """The child as a process of ours, without the supervision; ready when this returns."""
    child = subprocess.Popen(
        child_command(options_in(directory)).args,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdout is not None
    assert child.stdout.readline().startswith(b"ready ")
    return child


@pytest.fixture
def child(data_directory: Path) -> Iterator["subprocess.Popen[bytes]"]:
    started = start_alone(data_directory)
    yield started
    started.kill()
    started.wait()
    for pipe in (started.stdin, started.stdout):
        assert pipe is not None
        pipe.close()


def start_bare(directory: Path, uid: int, gid: int) -> "subprocess.Popen[bytes]":
    """Postgres itself, with nobody to look after it."""
    cluster, run = directory / "postgres/cluster", directory / "postgres/run"
    as_user = {"user": uid, "group": gid, "extra_groups": []} if os.geteuid() == 0 else {}
    args = [find_binaries() / "postgres", "-D", cluster, "-h", "", "-k", run]
    return subprocess.Popen(args, stderr=subprocess.DEVNULL, **as_user)


def is_there(path: Path) -> bool:
    return path.exists()


def wait_gone(pid: int) -> None:
    try:
        psutil.Process(pid).wait(20)
    except psutil.NoSuchProcess:
        return


async def test_data_is_there_after_a_stop_and_a_start(data_directory: Path) -> None:
    async with running(data_directory) as dsn:
        await leave_note(dsn)
        pid = postmaster_pid(data_directory)
    assert not psutil.pid_exists(pid)
    async with running(data_directory) as dsn:
        assert await read_note(dsn) == 42


async def test_postgres_that_dies_is_started_again_and_the_bridge_recovers(data_directory: Path) -> None:
    async with running(data_directory) as dsn, connected(dsn) as database:
        await leave_note(dsn)
        os.kill(postmaster_pid(data_directory), signal.SIGKILL)
        with trio.fail_after(30):
            while True:
                try:
                    assert await database.read(lambda c: c.fetchval("SELECT a FROM note")) == 42
                    break
                except StoreUnavailableError:
                    await trio.lowlevel.checkpoint()


async def test_data_is_there_after_everything_was_killed_at_once(
    data_directory: Path, child: "subprocess.Popen[bytes]"
) -> None:
    await leave_note(dsn_in(data_directory))
    pid = postmaster_pid(data_directory)
    everything = [child.pid, pid, *(each.pid for each in psutil.Process(pid).children(recursive=True))]
    for each in everything:
        # Those that see their parent die may be gone by now.
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    async with running(data_directory) as dsn:
        assert await read_note(dsn) == 42


def dsn_in(directory: Path) -> str:
    return f"postgresql://postgres@/postgres?host={directory}/postgres/run"


async def test_postgres_leaves_when_its_grandparent_is_gone(
    child: "subprocess.Popen[bytes]", data_directory: Path
) -> None:
    pid = postmaster_pid(data_directory)
    assert child.stdin is not None
    # What the kernel does to our end of the pipe when we are killed.
    child.stdin.close()
    assert child.wait(20) == 0
    assert not psutil.pid_exists(pid)


async def test_postgres_leaves_when_its_parent_is_killed(
    child: "subprocess.Popen[bytes]", data_directory: Path
) -> None:
    pid = postmaster_pid(data_directory)
    child.kill()
    wait_gone(pid)
    assert not (data_directory / "postgres/cluster/postmaster.pid").exists(), "it was not a clean shutdown"


async def test_a_postgres_left_behind_is_stopped_by_the_next_start(data_directory: Path) -> None:
    async with running(data_directory) as dsn:
        await leave_note(dsn)
    status = (data_directory / "postgres/cluster").stat()
    left_behind = start_bare(data_directory, status.st_uid, status.st_gid)
    with trio.fail_after(20):
        while not (data_directory / "postgres/run/.s.PGSQL.5432.lock").exists():
            await trio.lowlevel.checkpoint()
    async with running(data_directory) as dsn:
        assert left_behind.wait(20) == 0
        assert await read_note(dsn) == 42


async def test_a_note_of_a_pid_that_is_a_stranger_now_does_not_stop_the_start(data_directory: Path) -> None:
    async with running(data_directory) as dsn:
        await leave_note(dsn)
    note = data_directory / "postgres/cluster/postmaster.pid"
    note.write_text(f"{os.getpid()}\n{note.parent}\n1\n5432\n\n\n\nready\n")
    async with running(data_directory) as dsn:
        assert await read_note(dsn) == 42


async def test_a_first_start_that_was_cut_short_is_made_good(data_directory: Path) -> None:
    for name in ("cluster.unfinished", "cluster.draft-x"):
        (data_directory / "postgres" / name).mkdir(parents=True)
        (data_directory / "postgres" / name / "PG_VERSION").write_text("18\n")
    async with running(data_directory) as dsn:
        await leave_note(dsn)
    assert {path.name for path in (data_directory / "postgres").iterdir()} == {"child.lock", "cluster", "run"}


def spawn_child(directory: Path) -> "subprocess.Popen[bytes]":
    """The child as a process of ours; not yet ready when this returns."""
    args = child_command(options_in(directory)).args
    return subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


KILLS = 5


@pytest.mark.parametrize("number", range(KILLS))
async def test_a_first_start_killed_at_any_point_is_made_good(data_directory: Path, number: int) -> None:
    """The next start comes at once, while processes of the first may still be at work."""
    first = spawn_child(data_directory)
    assert first.stdin is not None
    await trio.sleep(Random(number).uniform(0.1, 1.2))
    if number % 2 == 0:
        first.kill()
    first.stdin.close()
    async with running(data_directory) as dsn:
        await leave_note(dsn)
    first.wait(20)  # with 0 if it served before its parent left, on a fast machine
    async with running(data_directory) as dsn:
        assert await read_note(dsn) == 42


async def test_a_second_child_waits_until_the_first_has_gone(
    data_directory: Path, child: "subprocess.Popen[bytes]"
) -> None:
    pid = postmaster_pid(data_directory)
    async with trio.open_nursery() as nursery:
        assert child.stdin is not None
        child.stdin.close()
        dsn = await nursery.start(run_embedded_postgres, options_in(data_directory))
        assert not psutil.pid_exists(pid)
        await leave_note(dsn)
        nursery.cancel_scope.cancel()


async def test_a_data_directory_with_a_long_path_works(data_directory: Path) -> None:
    deep = data_directory / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    async with running(deep) as dsn:
        await leave_note(dsn)
        socket_directory = Path(dsn.partition("host=")[2])
        assert len(str(socket_directory)) < 60
    assert not is_there(socket_directory)


async def test_a_path_with_spaces_and_other_letters_works(data_directory: Path) -> None:
    odd = data_directory / "dätä dir %41"
    odd.mkdir()
    async with running(odd) as dsn:
        await leave_note(dsn)


async def test_a_cluster_that_cannot_start_says_why(data_directory: Path) -> None:
    async with running(data_directory):
        pass
    (data_directory / "postgres/cluster/global/pg_control").unlink()
    with pytest.raises(ChildFailedError, match="pg_control"):
        await run_embedded_postgres(options_in(data_directory))


AS_USER = """
import os, sys
from sightline.storage.embedded.postgres_child import main
if os.geteuid() == 0:
    # Imported before, since the interpreter itself may lie where only root can read.
    os.setgroups([])
    os.setgid(int(sys.argv[2]))
    os.setuid(int(sys.argv[3]))
sys.exit(main([sys.argv[1], "--not-durable"]))
"""


def test_an_ordinary_user_needs_no_rights(data_directory: Path) -> None:
    """When the tests run as root, this one runs the child as an ordinary user."""
    account = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    os.chown(data_directory, account.pw_uid, account.pw_gid)
    args = [sys.executable, "-c", AS_USER, str(data_directory / "postgres"), str(account.pw_gid), str(account.pw_uid)]
    child = subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    said = child.stdout.readline()
    _, complaint = child.communicate()
    assert said.startswith(b"ready postgresql://"), complaint.decode()
    assert child.returncode == 0
    assert (data_directory / "postgres/cluster").stat().st_uid == account.pw_uid
