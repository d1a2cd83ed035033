"""Dump and restore a Postgres database with the pg_dump, pg_restore and psql that come with the embedded Postgres.

They work with any Postgres up to their own version, so also with an external one.
"""

import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, final

import trio

from sightline.storage.database.url import without_password
from sightline.storage.embedded.postgres_child import find_binaries, lay_out

SNAPSHOT_QUERY: Final = """\\set ON_ERROR_STOP on
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SELECT pg_export_snapshot();
"""
SNAPSHOT_TIMEOUT_S: Final = 4.0
"""The embedded chain does not mine while the snapshot is opened, and its blocks fail after five seconds."""


CONNECT_TIMEOUT_S: Final = "2"
"""Connection timeout for each host of the database URL. Without it, a host that drops packets takes minutes."""


class DumpError(Exception):
    """A Postgres tool failed; the message is its last line of output that is no hint."""


def embedded_dsn(directory: Path) -> str:
    """Return the address of the embedded Postgres of this directory."""
    return lay_out(directory, find_binaries()).dsn


@final
class PostgresTools:
    """Runs the tools against one database."""

    def __init__(self, dsn: str) -> None:
        """The password of `dsn` is passed in the environment, because command lines are public."""
        self._binaries = find_binaries()
        self._dsn, password = without_password(dsn)
        self._env = {"PGCONNECT_TIMEOUT": CONNECT_TIMEOUT_S, **os.environ}
        if password is not None:
            self._env["PGPASSWORD"] = password

    def _command(self, tool: str, *options: str) -> list[str]:
        return [str(self._binaries / tool), *options, "--dbname", self._dsn]

    async def _run(self, command: list[str]) -> str:
        done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False, env=self._env)
        if done.returncode != 0:
            raise DumpError(_last_line(Path(command[0]).name, done.stderr))
        return done.stdout.decode()

    async def query(self, sql: str) -> str:
        """Run a query; return its rows as text, columns separated by `|`.

        Raises:
            DumpError: The database refuses it or does not answer.
        """
        command = self._command(
            "psql", "--no-psqlrc", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1", "-c", sql
        )
        return (await self._run(command)).strip()

    @asynccontextmanager
    async def open_snapshot(self) -> AsyncIterator[str]:
        """Export a snapshot of the database; it is valid until the block ends.

        Raises:
            DumpError: The database does not answer.
        """
        command = self._command("psql", "--no-psqlrc", "--tuples-only", "--no-align", "--quiet")
        process = await trio.lowlevel.open_process(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self._env
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            said = b""
            with trio.move_on_after(SNAPSHOT_TIMEOUT_S):
                try:
                    await process.stdin.send_all(SNAPSHOT_QUERY.encode())
                    while not said.endswith(b"\n") and (chunk := await process.stdout.receive_some()):
                        said += chunk
                except trio.BrokenResourceError:
                    pass  # psql has exited; its error is read below
            if not said.endswith(b"\n"):
                process.kill()
                raise DumpError(_last_line("psql", bytes(await process.stderr.receive_some(4096))))
            yield said.decode().strip()
        finally:
            with trio.CancelScope(shield=True):
                await process.stdin.aclose()  # psql exits at end-of-file, which ends the transaction
                await process.wait()
                await process.stdout.aclose()
                await process.stderr.aclose()

    async def dump(self, snapshot: str, target: Path) -> None:
        """Dump the database as it was at the snapshot.

        Raises:
            DumpError: The dump failed; `target` is then incomplete.
        """
        await self._run(self._command("pg_dump", "--format=custom", f"--snapshot={snapshot}", f"--file={target}"))

    async def restore(self, source: Path) -> None:
        """Restore a dump into an empty database, in one transaction.

        Raises:
            DumpError: The restore failed; the database is unchanged.
        """
        options = ("--no-owner", "--no-privileges", "--single-transaction", "--exit-on-error")
        command = self._command("pg_restore", *options)
        await self._run([*command, str(source)])


def _last_line(tool: str, output: bytes) -> str:
    said = output.decode(errors="replace").splitlines()
    # libpq writes a hint below the cause and indents it: "Is the server running on that host and accepting ...?"
    lines = [line.strip() for line in said if line.strip() and not line[0].isspace()]
    return f"{tool}: {lines[-1] if lines else 'no output'}".removeprefix(f"{tool}: {tool}: ") or tool
