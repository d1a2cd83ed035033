"""A lock whose waiters get it in order of arrival, those of the server before guests."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, final


@final
class Turns:
    """A fair lock with two queues.

    `threading.Lock` has no order: a thread that releases it and takes it again at once usually wins, so a queue of
    blocks would keep every read waiting.
    """

    def __init__(self) -> None:
        self._mutex: Final = threading.Lock()
        self._is_held = False
        self._own: Final[deque[threading.Lock]] = deque()
        self._guests: Final[deque[threading.Lock]] = deque()

    @contextmanager
    def turn(self, *, is_guest: bool) -> Iterator[None]:
        """Hold the lock. A guest waits for every waiter of the server and for the guests that came before."""
        self._acquire(self._guests if is_guest else self._own)
        try:
            yield
        finally:
            self._release()

    def _acquire(self, queue: "deque[threading.Lock]") -> None:
        with self._mutex:
            if not self._is_held:
                self._is_held = True
                return
            place = threading.Lock()
            place.acquire()
            queue.append(place)
        place.acquire()  # released by the holder before it, which hands the lock over

    def _release(self) -> None:
        with self._mutex:
            following = self._own or self._guests
            if following:
                following.popleft().release()
            else:
                self._is_held = False
