"""Keeps a second Ctrl-C from stopping the call that ends a view (ADR 0251).

Python raises KeyboardInterrupt at any line of the main thread, also at the first line of `__exit__`: no `try` can
catch that. So the first view that is entered in the main thread wraps the handler of SIGINT until the last one is left.
The wrapper passes a signal on, unless a view is ending: it keeps that one for later.
"""

import inspect
import signal
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Final, TypeVar, final

from sightline_client.runtime import monotonic_s

Function = TypeVar("Function", bound=Callable[..., Any])

PATIENCE_S: Final = 5.0
"""Time in which a view ends before another SIGINT gives up."""
_uninterrupted: Final[set[CodeType]] = set()


def uninterrupted(function: Function) -> Function:
    """Mark a function in which a SIGINT is kept while a view is open, from its first line to its return."""
    _uninterrupted.add(function.__code__)
    return function


@final
class _SigintHandler:
    """The handler of the process, shared by all views of the main thread."""

    def __init__(self) -> None:
        self._views = 0
        self._endings: list[float] = []
        self._has_kept = False
        self.received = 0
        self._previous: Callable[[int, FrameType | None], Any] = signal.default_int_handler

    def attach(self) -> bool:
        """Count a view. Returns False where no SIGINT raises an exception: in another thread, or by SIG_DFL."""
        current = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or not callable(current):
            return False
        if current != self._handle:
            self._previous = current
            signal.signal(signal.SIGINT, self._handle)
        self._views += 1
        return True

    def detach(self) -> None:
        self._views -= 1
        is_own = signal.getsignal(signal.SIGINT) == self._handle
        if self._views == 0 and is_own and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._previous)

    def begin_end(self) -> float:
        began_s = monotonic_s()
        self._endings.append(began_s)
        return began_s

    def finish_end(self, began_s: float) -> None:
        self._endings.remove(began_s)

    def take_kept(self) -> bool:
        """Return whether a signal was kept and no view is ending any more; it is not returned again."""
        if self._endings or threading.current_thread() is not threading.main_thread():
            return False
        has_kept, self._has_kept = self._has_kept, False
        return has_kept

    def deliver(self) -> None:
        self._previous(signal.SIGINT, inspect.currentframe())

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.received += 1
        is_late = bool(self._endings) and monotonic_s() - self._endings[0] > PATIENCE_S
        if not is_late and (self._endings or _is_uninterrupted(frame)):
            self._has_kept = True
        else:
            self._previous(number, frame)


def _is_uninterrupted(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code in _uninterrupted:
            return True
        frame = frame.f_back
    return False


_sigint: Final = _SigintHandler()


@final
class ViewInterrupts:
    """SIGINT during the life of one view."""

    def __init__(self) -> None:
        self._is_open = False
        self._ending_since_s: float | None = None
        self._received_before = 0

    @property
    def is_interrupted(self) -> bool:
        """Whether a SIGINT came since `open`; it may reach the view as the cancellation of its task."""
        return self._is_open and _sigint.received > self._received_before

    def open(self) -> None:
        """Begin to keep signals that arrive in `uninterrupted` functions."""
        self._received_before = _sigint.received
        self._is_open = self._is_open or _sigint.attach()

    def begin_end(self) -> None:
        """Keep every signal, wherever it arrives: the frames of a task that waits are not on the stack."""
        if self._is_open and self._ending_since_s is None:
            self._ending_since_s = _sigint.begin_end()

    def close(self, *, delivers: bool) -> None:
        """Pass signals on again.

        Args:
            delivers: Whether a signal that was kept is handled now; else it is dropped, because an exception leaves
                the view that stops the program anyway.
        """
        if self._ending_since_s is not None:
            _sigint.finish_end(self._ending_since_s)
            self._ending_since_s = None
        if self._is_open:
            self._is_open = False
            _sigint.detach()
        if _sigint.take_kept() and delivers:
            _sigint.deliver()
