"""A mailbox with two lanes: control messages are handled before data messages.

A lane is allocated by its first message and freed when empty, so an idle actor owns no queue.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, StrEnum
from math import inf
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sightline.actors.kernel.envelope import Envelope


class Lane(Enum):
    """Which queue a message waits in. Messages in CONTROL are handled before messages in DATA."""

    CONTROL = "control"
    DATA = "data"


class Sent(StrEnum):
    """Whether a mailbox admitted a message, and if not, why."""

    ADMITTED = "admitted"
    CONFLATED = "conflated"
    """Admitted into a full lane in place of an older message with the same conflate key."""
    OVERLOADED = "overloaded"
    STOPPED = "stopped"
    PARKED = "parked"
    ELSEWHERE = "elsewhere"
    """Another server owns the actor."""


@final
class Mailbox:
    """The two lanes of one actor."""

    __slots__ = ("_control", "_data")

    def __init__(self) -> None:
        self._control: deque[Envelope[object]] | None = None
        self._data: deque[Envelope[object]] | None = None

    def __len__(self) -> int:
        return len(self._control or ()) + len(self._data or ())

    def __iter__(self) -> Iterator[Envelope[object]]:
        yield from self._control or ()
        yield from self._data or ()

    def put(self, envelope: Envelope[object], lane: Lane, bound: float = inf) -> bool:
        """Append to a lane; false if as many as `bound` wait in it."""
        queue = self._data if lane is Lane.DATA else self._control
        if queue is not None:
            if len(queue) >= bound:
                return False
            queue.append(envelope)
        elif lane is Lane.DATA:
            self._data = deque((envelope,))
        else:
            self._control = deque((envelope,))
        return True

    def put_back(self, envelope: Envelope[object]) -> None:
        """Put a message in front of all others."""
        if self._control is None:
            self._control = deque()
        self._control.appendleft(envelope)

    def take(self) -> Envelope[object] | None:
        """Take the next one: control first, each lane in order of arrival."""
        control = self._control
        if control is not None:
            envelope = control.popleft()
            if not control:
                self._control = None
            return envelope
        data = self._data
        if data is not None:
            envelope = data.popleft()
            if not data:
                self._data = None
            return envelope
        return None

    def take_oldest(self, conflate_key: object) -> Envelope[object] | None:
        """Take the oldest message of the data lane with this key, or None."""
        for index, envelope in enumerate(self._data or ()):
            if envelope.conflate_key == conflate_key:
                assert self._data is not None
                del self._data[index]
                if not self._data:
                    self._data = None
                return envelope
        return None

    def take_asks_while(self, accepts: Callable[[object], bool]) -> Iterator[Envelope[object]]:
        """Take the first asks of the data lane while `accepts` holds for their messages."""
        while self._data and self._data[0].is_ask and accepts(self._data[0].message):
            yield self._data.popleft()
        if not self._data:
            self._data = None

    def take_asks(self) -> list[Envelope[object]]:
        """Take all asks and leave the tells in order."""
        asks = [envelope for envelope in self if envelope.is_ask]
        if asks:
            self._control = deque(e for e in self._control or () if not e.is_ask) or None
            self._data = deque(e for e in self._data or () if not e.is_ask) or None
        return asks

    def take_all(self) -> list[Envelope[object]]:
        """Take all messages in the order in which they would be handled."""
        everything = list(self)
        self._control = self._data = None
        return everything
