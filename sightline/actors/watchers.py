"""Wakes the streams that follow a session or a workspace. A slow stream gets the latest state, not every state."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol, final

import trio

from sightline.domain.operator.model import Workspace

NOTES_MAX: Final = 256
"""Ids that are kept for a slow stream; the oldest is dropped."""
DEGREE_M: Final = 111_000.0
"""A little less than a degree of latitude in metres, so that a band made with it is never too narrow."""


class Change(NamedTuple):
    """What happened since the stream looked last."""

    is_changed: bool = True
    """The session or workspace itself, or one of its sessions, changed."""
    has_moved: bool = True
    """The session's device moved."""
    sessions: tuple[str, ...] = ()
    """Sessions of the workspace that changed."""
    requests: tuple[str, ...] = ()
    """Requests within the coverage of the workspace that were opened or closed."""
    is_incomplete: bool = False
    """There may be more changes than these: news of another server may be lost."""


@final
class Watch:
    """The mailbox of one stream."""

    def __init__(self) -> None:
        self._event = trio.Event()
        self._is_changed = False
        self._has_moved = False
        self._is_incomplete = False
        self._sessions: dict[str, None] = {}
        self._requests: dict[str, None] = {}
        self._operator: Workspace | None = None
        self._lat_min, self._lat_max = math.inf, -math.inf

    def cover(self, operator: Workspace) -> None:
        """Report requests within the coverage of this operator from now on."""
        coverage = operator.coverage
        self._operator = operator
        self._lat_min, self._lat_max = -math.inf, math.inf
        if coverage is not None:
            reach = coverage.radius_m / DEGREE_M
            self._lat_min, self._lat_max = coverage.lat - reach, coverage.lat + reach

    def covers(self, lat: float, lng: float) -> bool:
        """Whether requests at this point are reported."""
        if not self._lat_min <= lat <= self._lat_max or self._operator is None:
            return False
        return self._operator.covers(lat, lng)

    def note_change(self, session_id: str | None) -> None:
        """Note a change, of a session of the workspace if one is given."""
        self._is_changed = True
        if session_id is not None:
            _keep(self._sessions, session_id)
        self._event.set()

    def note_move(self) -> None:
        """Note a new position."""
        self._has_moved = True
        self._event.set()

    def note_loss(self) -> None:
        """Note that news may be lost."""
        self._is_changed = self._is_incomplete = True
        self._event.set()

    def note_request(self, session_id: str) -> None:
        """Note a request that was opened or closed."""
        _keep(self._requests, session_id)
        self._event.set()

    async def change(self, moves_from: float = -math.inf) -> Change:
        """Wait for a change.

        Args:
            moves_from: Time of trio's clock before which a new position alone is kept back.
        """
        await trio.lowlevel.checkpoint()
        while True:
            has_moved = self._has_moved and trio.current_time() >= moves_from
            if has_moved or self._is_changed or self._requests:
                break
            with trio.move_on_at(moves_from if self._has_moved else math.inf):
                await self._event.wait()
            self._event = trio.Event()
        change = Change(self._is_changed, has_moved, tuple(self._sessions), tuple(self._requests), self._is_incomplete)
        self._is_changed, self._sessions, self._requests, self._is_incomplete = False, {}, {}, False
        self._has_moved = self._has_moved and not has_moved
        return change


def _keep(notes: dict[str, None], session_id: str) -> None:
    notes.pop(session_id, None)
    notes[session_id] = None
    if len(notes) > NOTES_MAX:
        del notes[next(iter(notes))]


class OtherStreams(Protocol):
    """The streams of other servers."""

    def follow(self, kind: str, actor_id: str, *, is_on: bool) -> None:
        """The first stream of this process begins to follow an actor, or the last one ends."""
        ...

    def notify(self, kind: str, actor_id: str, session_id: str | None) -> None:
        """As `Watchers.notify`."""
        ...

    def notify_move(self, kind: str, actor_id: str) -> None:
        """As `Watchers.notify_move`."""
        ...

    def notify_request(self, session_id: str, lat: float, lng: float) -> None:
        """As `Watchers.notify_request`."""
        ...


@final
class Watchers:
    """The streams of one process by (kind, id) of the actor that they follow.

    The methods `notify...` are called for changes of actors of this process, `wake...` also for those of others.
    """

    elsewhere: OtherStreams | None = None

    def __init__(self) -> None:
        self._watches: dict[tuple[str, str], set[Watch]] = {}
        self._operators: set[Watch] = set()
        """Streams that report requests."""

    def notify(self, kind: str, actor_id: str, *, session_id: str | None = None) -> None:
        """Wake the streams of an actor, after a change of itself or of a session of the workspace."""
        self.wake(kind, actor_id, session_id)
        if self.elsewhere is not None:
            self.elsewhere.notify(kind, actor_id, session_id)

    def wake(self, kind: str, actor_id: str, session_id: str | None) -> None:
        """As `notify`, in this process only."""
        for watch in self._watches.get((kind, actor_id), ()):
            watch.note_change(session_id)

    def notify_move(self, kind: str, actor_id: str) -> None:
        """Wake the streams of a session whose device has a new position. Each heartbeat of a LIVE session calls it."""
        if self._watches:
            self.wake_move(kind, actor_id)
        if self.elsewhere is not None:
            self.elsewhere.notify_move(kind, actor_id)

    def wake_move(self, kind: str, actor_id: str) -> None:
        """As `notify_move`, in this process only."""
        for watch in self._watches.get((kind, actor_id), ()):
            watch.note_move()

    def notify_request(self, session_id: str, lat: float, lng: float) -> None:
        """Wake the streams of operators that cover the point of a request that was opened or closed."""
        self.wake_request(session_id, lat, lng)
        if self.elsewhere is not None:
            self.elsewhere.notify_request(session_id, lat, lng)

    def wake_request(self, session_id: str, lat: float, lng: float) -> None:
        """As `notify_request`, in this process only."""
        for watch in self._operators:
            if watch.covers(lat, lng):
                watch.note_request(session_id)

    def wake_all(self) -> None:
        """News may be lost: let all streams read again what they follow."""
        for watches in self._watches.values():
            for watch in watches:
                watch.note_loss()

    @property
    def followed(self) -> tuple[tuple[str, str], ...]:
        """What the streams of this process follow, as (kind, id)."""
        return tuple((str(kind), actor_id) for kind, actor_id in self._watches)

    @property
    def has_operators(self) -> bool:
        """Whether a stream of this process reports requests."""
        return bool(self._operators)

    def report_requests(self, watch: Watch, operator: Workspace) -> None:
        """Report requests within the coverage of this operator to its stream from now on."""
        watch.cover(operator)
        self._operators.add(watch)

    @contextmanager
    def watch(self, kind: str, actor_id: str) -> Iterator[Watch]:
        """Follow one actor for as long as the block lasts."""
        watch = Watch()
        watches = self._watches.setdefault((kind, actor_id), set())
        watches.add(watch)
        if self.elsewhere is not None and len(watches) == 1:
            self.elsewhere.follow(kind, actor_id, is_on=True)
        try:
            yield watch
        finally:
            watches.discard(watch)
            self._operators.discard(watch)
            if not watches:
                self._watches.pop((kind, actor_id), None)
                if self.elsewhere is not None:
                    self.elsewhere.follow(kind, actor_id, is_on=False)

    def __len__(self) -> int:
        return sum(len(watches) for watches in self._watches.values())
