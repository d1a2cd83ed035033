"""Runs the embedded Postgres as a child process and restarts it, with backoff, whenever it ends by itself.

`postgres_child` is the child's program; ADR 0051 gives the reasons.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, final

import structlog
import trio

from sightline.system.children import Child, ChildCommand, ChildFailedError, RestartPause, run_child

log = structlog.get_logger()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedPostgresOptions:
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
    first = _FirstReady(task_status)
    pause = RestartPause()
    while True:
        began = trio.current_time()
        try:
            exit_code = await run_child(child_command(options), task_status=first)
            log.error("embedded_postgres_ended", exit_code=exit_code)
        except ChildFailedError as error:
            if not first.reported:
                raise
            log.error("embedded_postgres_not_restarted", reason=str(error))
        await trio.sleep(pause.after(ran_s=trio.current_time() - began))


@final
class _FirstReady:
    """Reports the first start of a child to the nursery, and ignores those after it."""

    def __init__(self, task_status: trio.TaskStatus[str]) -> None:
        self._task_status = task_status
        self.reported = False

    def started(self, value: Child | None = None) -> None:
        """Called by `run_child` at each start."""
        assert value is not None
        if not self.reported:
            self.reported = True
            self._task_status.started(value.ready)
