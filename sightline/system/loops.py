"""Run periodic tasks as long as the server runs: a step that fails is logged and retried."""

from collections.abc import Awaitable, Callable
from typing import NoReturn, final

import structlog
import trio

from sightline.domain.errors import OutcomeUnknownError, UnavailableError
from sightline.domain.value import Value

log = structlog.get_logger("sightline.loops")


@final
class Backoff(Value, kw_only=True):
    """Wait times after consecutive failures: doubled each time, from `first_s` to `max_s` seconds."""

    first_s: float = 0.5
    max_s: float = 30.0

    def wait_s(self, failures: int) -> float:
        """Return the wait after this number of consecutive failures (at least 1)."""
        return min(self.max_s, self.first_s * 2.0 ** min(failures - 1, 30))


DEFAULT_BACKOFF = Backoff()


async def run_forever(
    name: str, step: Callable[[], Awaitable[object]], *, every_s: float, backoff: Backoff = DEFAULT_BACKOFF
) -> NoReturn:
    """Run a step every `every_s` seconds until cancelled.

    No exception of a step ends the loop, because that would end the server: neither an unavailable dependency, nor a
    full disk, nor a bug. A failed step is retried after the backoff, which never exceeds the larger of `every_s` and
    `backoff.max_s`; a bug is logged at error level with its traceback.

    Args:
        name: Name of the loop in log events.
        step: Must leave no work half done when it fails or is cancelled.
    """
    failures = 0
    while True:
        try:
            await step()
        except (UnavailableError, OutcomeUnknownError, OSError) as error:
            failures += 1
            retry_s = backoff.wait_s(failures)
            log.warning("loop_step_failed", loop=name, failures=failures, retry_s=retry_s, error=str(error))
        except Exception as error:
            failures += 1
            retry_s = backoff.wait_s(failures)
            log.exception("loop_step_crashed", loop=name, failures=failures, retry_s=retry_s, error=repr(error))
        else:
            failures = 0
            retry_s = every_s
        await trio.sleep(retry_s)
