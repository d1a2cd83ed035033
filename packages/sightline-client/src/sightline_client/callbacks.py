"""Calls the functions that a program gives to `Operator`: a plain or an async one, which may fail."""

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from subprocess import CalledProcessError
from typing import Final, TypeVar, final

from sightline_client.models import Session

FAILING_MAX: Final = 1_000
"""Failures that are remembered, so that each is reported once."""

T = TypeVar("T")


@final
class Callbacks:
    """Calls functions of a program, and reports what they raise as `callback_failed`."""

    def __init__(self, report: Callable[..., None]) -> None:
        self._report = report
        self._failing: set[tuple[str, str | None]] = set()

    async def call(
        self,
        name: str,
        function: Callable[[], T | Awaitable[T]],
        otherwise: T,
        session: Session | None = None,
        *,
        is_polled: bool = False,
    ) -> T:
        """Call a function and wait for what an async one makes.

        Args:
            name: Name of the callback, for the log.
            function: The callback with its arguments.
            otherwise: What is returned if it raises.
            session: Session that it is called for.
            is_polled: Whether it is called again and again for the same thing: a failure is then reported once until
                it succeeds.
        """
        key = (name, None if session is None else session.id)
        try:
            made = function()
            result: T = await made if isawaitable(made) else made
        except Exception as error:  # noqa: BLE001  whatever a program's function raises, the device goes on
            if not is_polled or key not in self._failing:
                self._report("callback_failed", level="warning", callback=name, **failure_of(error, session))
            if is_polled and len(self._failing) < FAILING_MAX:
                self._failing.add(key)
            return otherwise
        self._failing.discard(key)
        return result


def failure_of(error: Exception, session: Session | None) -> dict[str, object]:
    """Fields of a log event: what was raised, without the WHIP URL, with which anybody can take over the input."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, CalledProcessError) and isinstance(error.stderr, bytes) and error.stderr.strip():
        text += " " + error.stderr.decode(errors="replace").strip().splitlines()[-1]
    if session is None:
        return {"error": text}
    return {"session_id": session.id, "error": text.replace(session.whip_url or "\0", "<whip_url>")}
