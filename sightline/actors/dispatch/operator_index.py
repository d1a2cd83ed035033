"""ONLINE operators in the order of dispatch, indexed by the points they cover, so that a request needs no scan.

Coverage circles are kept in grids of several cell sizes, each circle in the first grid whose cells are as wide as it
is, so that a circle lies in at most four cells and a point looks into one cell per grid. Within a cell operators are
sorted by (rank of their wallet, idle since, id). Operators without coverage serve everywhere and have a cell of their
own. Operators of a wallet that is passed over for its no-shows are in no cell.

An operator is *seen* while its newest heartbeat is at most `seen_within_ms` old. The index knows by itself when that
ends: `expire` looks at each seen operator once per `seen_within_ms`. That it was seen again it is told by `seen`.
"""

import math
from collections.abc import Callable, Iterator
from heapq import heappop, heappush, merge
from itertools import chain
from typing import Final, TypeAlias, final

import numpy as np
from sortedcontainers import SortedList

from sightline.actors.dispatch.conduct_book import NEW, PROVED
from sightline.domain.geofence import EARTH_RADIUS_M
from sightline.domain.operator.coverage_map import CoverageCells, coverage_cell
from sightline.domain.operator.model import Availability, Workspace

CELL_DEGREES: Final = (0.02, 0.04, 0.08, 0.16, 0.32, 0.625, 1.25, 2.5, 5.0)
"""Cell sizes of the grids, in degrees; a whole number of each makes up the circle of latitude."""

GRIDS: Final = tuple((size, round(360.0 / size)) for size in CELL_DEGREES)
"""Cell size and columns of each grid."""

METERS_PER_DEGREE: Final = 111_195.0
POLAR_DEGREES: Final = 85.0
"""Beyond this latitude meridians crowd together; such circles are listed as everywhere and checked exactly."""

Place: TypeAlias = tuple[int, int, int]
Entry: TypeAlias = tuple[int, str]
"""Of an operator in the order of idleness: (idle since, id)."""
RankOf: TypeAlias = Callable[[str, int], int | None]
"""The rank of a wallet at a time in ms: PROVED or NEW; None while it is out of the tiers."""

Ranks: TypeAlias = tuple[int, ...]
IN_ORDER: Final[Ranks] = (PROVED, NEW)
NEW_FIRST: Final[Ranks] = (NEW, PROVED)

EVERYWHERE: Final[Place] = (-1, 0, 0)
"""Operators whose circle is checked exactly for every point."""
UNSET: Final[Place] = (-2, 0, 0)
"""Operators without coverage."""

EDGE_RATIO: Final = 1e-6
EDGE_FLOOR: Final = 1e-14
"""How near to a circle's edge, in squared chords, rounding could tell a point's side wrongly; far on the safe side."""


def _places(workspace: Workspace) -> tuple[Place, ...]:
    """The cells that a workspace's coverage touches."""
    coverage = workspace.coverage
    if coverage is None:
        return (UNSET,)
    half_lat = coverage.radius_m / METERS_PER_DEGREE
    edge = abs(coverage.lat) + half_lat
    if edge > POLAR_DEGREES:
        return (EVERYWHERE,)
    half_lng = half_lat / math.cos(math.radians(edge))
    grid = next((index for index, size in enumerate(CELL_DEGREES) if size >= 2 * half_lng), len(CELL_DEGREES) - 1)
    size, columns_max = GRIDS[grid]
    rows = range(_row(coverage.lat - half_lat, size), _row(coverage.lat + half_lat, size) + 1)
    first, last = _column(coverage.lng - half_lng, size), _column(coverage.lng + half_lng, size)
    # A column has the same number on both sides of the antimeridian.
    columns = {column % columns_max for column in range(first, last + 1)}
    return tuple((grid, row, column) for row in rows for column in sorted(columns))


def _row(lat: float, size: float) -> int:
    return math.floor(lat / size)


def _column(lng: float, size: float) -> int:
    return math.floor((lng + 180.0) / size)


@final
class Circles:
    """The coverage circles of one cell as columns, so that those around a point are counted at once.

    A circle is the unit vector of its centre, and two cosines of angles from the centre: a point whose cosine is above
    the first is surely inside, and one whose cosine is below the second surely outside. Points between, within rounding
    distance of the edge, are decided by `Workspace.covers`, which defines coverage.
    """

    def __init__(self) -> None:
        self._centres = np.empty((8, 3))
        self._edges = np.empty((2, 8))
        self._ids: list[str] = []
        self._place: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def put(self, workspace: Workspace) -> None:
        """Add an operator that is not there yet; one without coverage is a circle around the whole globe."""
        row = len(self._ids)
        if row == len(self._centres):
            self._centres = np.concatenate((self._centres, np.empty_like(self._centres)))
            self._edges = np.concatenate((self._edges, np.empty_like(self._edges)), axis=1)
        circle = workspace.coverage
        if circle is None:
            self._centres[row], self._edges[:, row] = 0.0, -math.inf
        else:
            reach = math.sin(min(circle.radius_m / (2 * EARTH_RADIUS_M), math.pi / 2))
            squared = 4 * reach * reach  # the cosine of an angle is 1 less half of its squared chord
            slack = EDGE_RATIO * squared + EDGE_FLOOR
            self._centres[row] = _vector(circle.lat, circle.lng)
            self._edges[:, row] = 1 - (squared - slack) / 2, 1 - (squared + slack) / 2
        self._place[workspace.id] = row
        self._ids.append(workspace.id)

    def remove(self, workspace_id: str) -> None:
        """Take an operator out; the last one moves to its place."""
        row, last = self._place.pop(workspace_id), self._ids.pop()
        if last != workspace_id:
            self._centres[row] = self._centres[len(self._ids)]
            self._edges[:, row] = self._edges[:, len(self._ids)]
            self._ids[row] = last
            self._place[last] = row

    def around(self, lat: float, lng: float) -> tuple[int, list[str]]:
        """How many surely cover the point, and who must be asked."""
        count = len(self._ids)
        cosines = self._centres[:count] @ _vector(lat, lng)
        is_sure = cosines > self._edges[0, :count]
        sure, possible = int(np.count_nonzero(is_sure)), cosines >= self._edges[1, :count]
        if np.count_nonzero(possible) == sure:
            return sure, []
        return sure, [self._ids[row] for row in np.flatnonzero(possible & ~is_sure)]


def _vector(lat: float, lng: float) -> tuple[float, float, float]:
    phi, theta = math.radians(lat), math.radians(lng)
    return math.cos(phi) * math.cos(theta), math.cos(phi) * math.sin(theta), math.sin(phi)


@final
class _Cell:
    """Operators of one cell by rank, longest idle first: the first tier (seen, no claims) and the others."""

    __slots__ = ("circles", "first", "second")

    def __init__(self) -> None:
        self.first: SortedList = SortedList()
        self.second: SortedList = SortedList()
        self.circles = Circles()
        """Of the operators that are seen."""


@final
class OperatorIndex:
    """The ONLINE operators of one process."""

    def __init__(self, seen_within_ms: int, rank_of: RankOf) -> None:
        self._seen_within_ms = seen_within_ms
        self._rank_of = rank_of
        self._ranks: dict[str, int | None] = {}
        """The rank with which each operator is listed; None: it is in no cell."""
        self._of_wallet: dict[str, set[str]] = {}
        self._online: dict[str, Workspace] = {}
        self._places: dict[str, tuple[Place, ...]] = {}
        self._seen_until: dict[str, int] = {}
        """For each operator that is seen, when to look at its last heartbeat again."""
        self._due: list[tuple[int, str]] = []
        """The same as a heap; an entry that differs from `_seen_until` is outdated."""
        self._in_tiers: SortedList = SortedList()
        self._passed_over: SortedList = SortedList()
        """Of wallets that are passed over."""
        self._cells: dict[Place, _Cell] = {}

    def __len__(self) -> int:
        return len(self._online)

    def get(self, workspace_id: str) -> Workspace | None:
        """What is known of an ONLINE operator."""
        return self._online.get(workspace_id)

    def put(self, workspace: Workspace, now_ms: int) -> None:
        """Insert or update a workspace; one that is not ONLINE is removed."""
        self.remove(workspace.id)
        if workspace.availability is not Availability.ONLINE or not workspace.is_supplier or workspace.deleted_at_ms:
            return
        self._online[workspace.id] = workspace
        self._places[workspace.id] = _places(workspace)
        self._ranks[workspace.id] = self._rank_of(workspace.wallet_address, now_ms)
        self._of_wallet.setdefault(workspace.wallet_address, set()).add(workspace.id)
        seen_ms = workspace.last_seen_at_ms
        if seen_ms is not None and now_ms - seen_ms <= self._seen_within_ms:
            self._see_until(workspace.id, seen_ms + self._seen_within_ms)
        self._add(workspace)

    def remove(self, workspace_id: str) -> Workspace | None:
        """Leave a workspace out; returns what was known of it."""
        workspace = self._online.pop(workspace_id, None)
        if workspace is None:
            return None
        self._take_out(workspace)
        del self._places[workspace_id], self._ranks[workspace_id]
        self._seen_until.pop(workspace_id, None)
        siblings = self._of_wallet[workspace.wallet_address]
        siblings.remove(workspace_id)
        if not siblings:
            del self._of_wallet[workspace.wallet_address]
        return workspace

    def rank_again(self, wallet: str, now_ms: int) -> None:
        """List the operators of a wallet by its present rank."""
        rank = self._rank_of(wallet, now_ms)
        for workspace_id in self._of_wallet.get(wallet, ()):
            if self._ranks[workspace_id] == rank:
                continue
            workspace = self._online[workspace_id]
            self._take_out(workspace)
            self._ranks[workspace_id] = rank
            self._add(workspace)

    def seen(self, workspace_id: str, now_ms: int) -> None:
        """Record that an operator sent a heartbeat after it had not been seen."""
        workspace = self._online.get(workspace_id)
        if workspace is None or workspace_id in self._seen_until:
            return
        self._take_out(workspace)
        self._see_until(workspace_id, now_ms + self._seen_within_ms)
        self._add(workspace)

    def expire(self, now_ms: int, last_seen_ms: Callable[[Workspace], int | None]) -> None:
        """Find the operators that are seen no longer.

        Args:
            last_seen_ms: When an operator's newest heartbeat was received.
        """
        while self._due and self._due[0][0] < now_ms:
            until_ms, workspace_id = heappop(self._due)
            if self._seen_until.get(workspace_id) != until_ms:
                continue
            workspace = self._online[workspace_id]
            seen_ms = last_seen_ms(workspace)
            if seen_ms is not None and now_ms - seen_ms <= self._seen_within_ms:
                self._see_until(workspace_id, seen_ms + self._seen_within_ms)
                continue
            self._take_out(workspace)
            del self._seen_until[workspace_id]
            self._add(workspace)

    def _see_until(self, workspace_id: str, until_ms: int) -> None:
        self._seen_until[workspace_id] = until_ms
        heappush(self._due, (until_ms, workspace_id))

    def _add(self, workspace: Workspace) -> None:
        rank, is_seen = self._ranks[workspace.id], workspace.id in self._seen_until
        if rank is None:
            self._passed_over.add(_entry(workspace))
            return
        self._in_tiers.add(_entry(workspace))
        entry = (rank, *_entry(workspace))
        for place in self._places[workspace.id]:
            cell = self._cells.get(place)
            if cell is None:
                cell = self._cells[place] = _Cell()
            (cell.first if is_seen and not workspace.claims else cell.second).add(entry)
            if is_seen:
                cell.circles.put(workspace)

    def _take_out(self, workspace: Workspace) -> None:
        rank, is_seen = self._ranks[workspace.id], workspace.id in self._seen_until
        if rank is None:
            self._passed_over.remove(_entry(workspace))
            return
        self._in_tiers.remove(_entry(workspace))
        entry = (rank, *_entry(workspace))
        for place in self._places[workspace.id]:
            cell = self._cells[place]
            (cell.first if is_seen and not workspace.claims else cell.second).remove(entry)
            if is_seen:
                cell.circles.remove(workspace.id)
            if not cell.first and not cell.second:
                del self._cells[place]

    def longest_idle(self) -> Iterator[Workspace]:
        """All of them, longest idle first."""
        return (self._online[workspace_id] for _, workspace_id in merge(self._in_tiers, self._passed_over))

    def anywhere(self) -> Iterator[Workspace]:
        """Tier C: all of them, longest idle first; those of a wallet that is passed over come last."""
        return (self._online[workspace_id] for _, workspace_id in chain(self._in_tiers, self._passed_over))

    def covering(self, lat: float, lng: float, ranks: Ranks = IN_ORDER) -> Iterator[Workspace]:
        """Those that cover the point, in the order of dispatch: tier A, then tier B."""
        yield from self.ready(lat, lng, ranks)
        set_, unset = self._cells_at(lat, lng)
        yield from self._in_tier([cell.second for cell in set_], [cell.second for cell in unset], ranks, lat, lng)

    def ready(self, lat: float, lng: float, ranks: Ranks = IN_ORDER) -> Iterator[Workspace]:
        """Tier A: those that cover the point, have no claims and are seen.

        Of one rank, those whose coverage is set come before those without, and the longest idle first.
        """
        set_, unset = self._cells_at(lat, lng)
        yield from self._in_tier([cell.first for cell in set_], [cell.first for cell in unset], ranks, lat, lng)

    def _in_tier(
        self, set_: list[SortedList], unset: list[SortedList], ranks: Ranks, lat: float, lng: float
    ) -> Iterator[Workspace]:
        """Those that cover the point; the arguments are the lines of one tier."""
        filled = [lines for lines in ([each for each in set_ if each], [each for each in unset if each]) if lines]
        for rank in ranks:
            for lines in filled:
                of_rank = [line.irange((rank,), (rank + 1,), inclusive=(True, False)) for line in lines]
                for _, _, workspace_id in of_rank[0] if len(of_rank) == 1 else merge(*of_rank):
                    workspace = self._online[workspace_id]
                    if workspace.covers(lat, lng):
                        yield workspace

    def count_covering(self, lat: float, lng: float) -> int:
        """How many that are seen cover the point."""
        unset = self._cells.get(UNSET)
        count = len(unset.circles) if unset is not None else 0
        for cell in self._cells_at(lat, lng)[0]:
            sure, doubtful = cell.circles.around(lat, lng)
            count += sure + sum(self._online[workspace_id].covers(lat, lng) for workspace_id in doubtful)
        return count

    def coverage_cells(self) -> CoverageCells:
        """Count those that are seen and not passed over, by the 0.1-degree cell of their coverage centre."""
        counts: dict[tuple[int, int], int] = {}
        everywhere = 0
        for workspace_id in self._seen_until:
            if self._ranks[workspace_id] is None:
                continue
            coverage = self._online[workspace_id].coverage
            if coverage is None:
                everywhere += 1
            else:
                cell = coverage_cell(coverage.lat, coverage.lng)
                counts[cell] = counts.get(cell, 0) + 1
        return CoverageCells(counts, everywhere)

    def _cells_at(self, lat: float, lng: float) -> tuple[list[_Cell], list[_Cell]]:
        """The cells of circles that may contain the point, and the cell of those without coverage."""
        places = [EVERYWHERE]
        places += [(grid, _row(lat, size), _column(lng, size) % columns) for grid, (size, columns) in enumerate(GRIDS)]
        cells = self._cells
        return [cells[place] for place in places if place in cells], [cells[UNSET]] if UNSET in cells else []

    def choose(
        self,
        lat: float,
        lng: float,
        *,
        mode: str,
        excluded: frozenset[str],
        ranks: Ranks = IN_ORDER,
        requires_coverage: bool = False,
    ) -> Workspace | None:
        """Choose the operator for a point.

        Args:
            mode: "prefer" takes the first of the tiers (A) covers the point, has no claims and is seen; (B) covers it;
                (C) any. "strict" takes tier A only; "literal" takes the longest idle of all.
            ranks: The order of the ranks within tiers A and B.
            requires_coverage: Tiers A and B only, unless the mode is "strict".
        """
        match mode:
            case "strict":
                return _first_not(excluded, self.ready(lat, lng, ranks))
            case _ if requires_coverage:
                return _first_not(excluded, self.covering(lat, lng, ranks))
            case "literal":
                return _first_not(excluded, self.longest_idle())
            case _:
                found = _first_not(excluded, self.covering(lat, lng, ranks))
                return found if found is not None else _first_not(excluded, self.anywhere())

    def rank(self, workspace_id: str) -> int | None:
        """The rank with which an operator is listed; None if it is passed over."""
        return self._ranks[workspace_id]


def _entry(workspace: Workspace) -> Entry:
    return (workspace.idle_since_ms, workspace.id)


def _first_not(excluded: frozenset[str], found: Iterator[Workspace]) -> Workspace | None:
    return next((each for each in found if each.id not in excluded), None)
