"""Runs the embedded Postgres as a child process and restarts it, with backoff, whenever it ends by itself.

`postgres_child` is the child's program; ADR 0051 gives the reasons.
"""

import sys
from pathlib import Path
from typing import NoReturn, final

import trio

from sightline.domain.value import Value
from sightline.system.children import ChildCommand
from sightline.system.kept_child import keep_child


@final
class EmbeddedPostgresOptions(Value, kw_only=True):
    """Where the embedded Postgres lives."""

    directory: Path
    """Made if need be; holds the cluster, and the socket where its path is short enough."""
    log_path: Path
    run_as: str = "nobody"
    """Account for Postgres when the server itself runs as root."""
    durable: bool = True
    """False only in tests: no fsync, so a crash of the machine may lose or damage everything."""
    start_timeout_s: float = 300.0
    """Recovery after an unclean stop counts; it takes about a second per 100 MB of log."""
    stop_timeout_s: float = 15.0


def child_command(options: EmbeddedPostgresOptions) -> ChildCommand:
    """The command that runs it; its ready line is the DSN."""
    args = [
        sys.executable,
        "-m",
        "sightline.storage.embedded.postgres_child",
        str(options.directory),
        "--run-as",
        options.run_as,
    ]
    return ChildCommand(
        name="postgres",
        args=args if options.durable else [*args, "--not-durable"],
        log_path=options.log_path,
        start_timeout_s=options.start_timeout_s,
        stop_timeout_s=options.stop_timeout_s,
    )


async def run_embedded_postgres(
    options: EmbeddedPostgresOptions, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
) -> NoReturn:
    """Run Postgres until cancelled; report its DSN, which stays the same, when it first answers.

    Meant for `dsn = await nursery.start(run_embedded_postgres, options)`.

    Raises:
        ChildFailedError: It did not start the first time; the message ends with its log.

    Cancellation: Postgres is shut down before this returns.
    """
    await keep_child(lambda: child_command(options), lambda child: child.ready, task_status=task_status)
