"""Calls the functions that a program gives to `Operator`: a plain or an async one, which may fail."""

import os
import re
from collections.abc import Awaitable, Callable, Iterable
from inspect import isawaitable
from pathlib import PurePath
from subprocess import CalledProcessError
from typing import Final, TypeVar, final

from sightline_client.models import Session

FAILING_MAX: Final = 1_000
"""Failures that are remembered, so that each is reported once."""

_CREDENTIALS: Final = re.compile(r"(?<=://)\S*@")
"""User and password in a URL, such as a camera's."""

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
    """Fields of a log event: what was raised, without passwords in URLs, the command line of a program, which may have
    others, and the WHIP URL, with which anybody can take over the input."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    text = f"{type(error).__name__}: {_said(error)}"
    if session is None:
        return {"error": _CREDENTIALS.sub("***@", text)}
    text = text.replace(session.whip_url or "\0", "<whip_url>")
    return {"session_id": session.id, "error": _CREDENTIALS.sub("***@", text)}


def _said(error: Exception) -> str:
    if not isinstance(error, CalledProcessError):
        return str(error)
    said = error.stderr.decode(errors="replace") if isinstance(error.stderr, bytes) else str(error.stderr or "")
    return " ".join(
        [f"{_program_of(error.cmd)} ended with exit code {error.returncode}.", *said.strip().splitlines()[-1:]]
    )


def _program_of(command: object) -> str:
    """Name the program of a command, which may be text for a shell, a path, or a sequence of those."""
    if isinstance(command, str | bytes):
        first: object = next(iter(command.split(maxsplit=1)), "")
    elif isinstance(command, Iterable):
        first = next(iter(command), "")
    else:
        first = command
    return (PurePath(os.fsdecode(first)).name if isinstance(first, str | bytes | os.PathLike) else "") or "the program"
