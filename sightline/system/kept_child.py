"""Keeps a child process running: it is started again, with backoff, whenever it ends by itself."""

from collections.abc import Awaitable, Callable
from typing import Generic, NoReturn, TypeVar, final

import structlog
import trio

from sightline.system.children import Child, ChildCommand, ChildFailedError, RestartPause, run_child

T = TypeVar("T")
log = structlog.get_logger()


async def keep_child(
    command: Callable[[], ChildCommand],
    on_ready: Callable[[Child], T],
    *,
    on_end: Callable[[], Awaitable[None]] | None = None,
    starts_after_signal: int = 0,
    task_status: trio.TaskStatus[T] = trio.TASK_STATUS_IGNORED,
) -> NoReturn:
    """Run a child until cancelled.

    Args:
        command: Called before each start.
        on_ready: Called each time that the child is ready. Its first result is reported to the nursery.
        on_end: Called each time that the child has ended by itself, and awaited before it is started again.
        starts_after_signal: How often it is started again if a signal ends it before it was ever ready.

    Raises:
        ChildFailedError: It did not start the first time; the message ends with its log.

    Cancellation: the child is stopped before this returns.
    """
    first = _Ready(on_ready, task_status)
    pause = RestartPause()
    while True:
        began, next_ = trio.current_time(), command()
        try:
            exit_code = await run_child(next_, task_status=first)
            log.error("child_ended", child=next_.name, exit_code=exit_code)
        except ChildFailedError as error:
            if not first.reported:
                if not error.is_by_signal or not starts_after_signal:
                    raise
                starts_after_signal -= 1
            log.error("child_not_restarted", child=next_.name, reason=str(error))
        if on_end is not None:
            await on_end()
        await trio.sleep(pause.after(ran_s=trio.current_time() - began))


@final
class _Ready(Generic[T]):
    """Tells the caller of each start, and the nursery of the first one."""

    def __init__(self, on_ready: Callable[[Child], T], task_status: trio.TaskStatus[T]) -> None:
        self._on_ready = on_ready
        self._task_status = task_status
        self.reported = False

    def started(self, value: Child | None = None) -> None:
        """Called by `run_child` at each start."""
        assert value is not None
        result = self._on_ready(value)
        if not self.reported:
            self.reported = True
            self._task_status.started(result)
