"""A bounded mailbox with two lanes: what controls an actor overtakes what feeds it.

Lanes are made when first needed and given back when empty: an idle actor, and most are idle, owns no queue.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sightline.actors.kernel.envelope import Envelope


class Lane(Enum):
    """Which queue a message waits in. Everything in CONTROL has its turn before anything in DATA."""

    CONTROL = "control"
    DATA = "data"


class Sent(StrEnum):
    """What became of a message that was sent."""

    ADMITTED = "admitted"
    CONFLATED = "conflated"
    """Admitted into a full lane in place of an older message with the same conflate key."""
    OVERLOADED = "overloaded"
    STOPPED = "stopped"
    PARKED = "parked"


@final
class Mailbox:
    """The two lanes of one actor."""

    __slots__ = ("_control", "_data")

    def __init__(self) -> None:
        self._control: deque[Envelope] | None = None
        self._data: deque[Envelope] | None = None

    def __len__(self) -> int:
        return len(self._control or ()) + len(self._data or ())

    def __iter__(self) -> Iterator[Envelope]:
        yield from self._control or ()
        yield from self._data or ()

    def depth(self, lane: Lane) -> int:
        """How many wait in one lane."""
        return len((self._control if lane is Lane.CONTROL else self._data) or ())

    def put(self, envelope: Envelope, lane: Lane) -> None:
        """Append to a lane; its bound is the caller's to keep."""
        if lane is Lane.DATA:
            if self._data is None:
                self._data = deque((envelope,))
            else:
                self._data.append(envelope)
        elif self._control is None:
            self._control = deque((envelope,))
        else:
            self._control.append(envelope)

    def put_back(self, envelope: Envelope) -> None:
        """Make it the next one."""
        if self._control is None:
            self._control = deque()
        self._control.appendleft(envelope)

    def take(self) -> Envelope | None:
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

    def take_oldest(self, conflate_key: object) -> Envelope | None:
        """Take the oldest message of the data lane with this key, or None."""
        for index, envelope in enumerate(self._data or ()):
            if envelope.conflate_key == conflate_key:
                assert self._data is not None
                del self._data[index]
                if not self._data:
                    self._data = None
                return envelope
        return None

    def take_asks(self) -> list[Envelope]:
        """Take everything that somebody waits for and leave the rest in order."""
        asks = [envelope for envelope in self if envelope.is_ask]
        if asks:
            self._control = deque(e for e in self._control or () if not e.is_ask) or None
            self._data = deque(e for e in self._data or () if not e.is_ask) or None
        return asks

    def take_all(self) -> list[Envelope]:
        """Take everything, in the order in which it would have had its turn."""
        everything = list(self)
        self._control = self._data = None
        return everything
