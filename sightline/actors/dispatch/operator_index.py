"""ONLINE operators in the order in which they are dispatched, findable by the point they cover. No scan per request.

Coverage circles are kept in grids of several cell sizes, each circle in the first grid whose cells are as wide as it
is, so that a circle lies in at most four cells and a point looks into one cell per grid. Within a cell operators are
sorted by (idle since, id). Operators without coverage serve everywhere and have a list of their own.
"""

import math
from collections.abc import Callable, Iterator
from heapq import merge
from typing import Final, TypeAlias, final

import numpy as np
from sortedcontainers import SortedList

from sightline.domain.geofence import EARTH_RADIUS_M
from sightline.domain.operator.model import Availability, Workspace

CELL_DEGREES: Final = (0.02, 0.04, 0.08, 0.16, 0.32, 0.625, 1.25, 2.5, 5.0)
"""Cell sizes of the grids, in degrees; a whole number of each makes up the circle of latitude."""

METERS_PER_DEGREE: Final = 111_195.0
POLAR_DEGREES: Final = 85.0
"""Beyond this latitude meridians crowd together; such circles are listed as everywhere and checked exactly."""

Place: TypeAlias = tuple[int, int, int]
Entry: TypeAlias = tuple[int, str]

EVERYWHERE: Final[Place] = (-1, 0, 0)

EDGE_RATIO: Final = 1e-6
EDGE_FLOOR: Final = 1e-15
"""How near to a circle's edge, in squared chords, rounding could tell a point's side wrongly; far on the safe side."""


def _places(workspace: Workspace) -> tuple[Place, ...]:
    """The cells that a workspace's coverage touches."""
    coverage = workspace.coverage
    if coverage is None:
        return (EVERYWHERE,)
    half_lat = coverage.radius_m / METERS_PER_DEGREE
    edge = abs(coverage.lat) + half_lat
    if edge > POLAR_DEGREES:
        return (EVERYWHERE,)
    half_lng = half_lat / math.cos(math.radians(edge))
    grid = next((index for index, size in enumerate(CELL_DEGREES) if size >= 2 * half_lng), len(CELL_DEGREES) - 1)
    size = CELL_DEGREES[grid]
    rows = range(_row(coverage.lat - half_lat, size), _row(coverage.lat + half_lat, size) + 1)
    first, last = _column(coverage.lng - half_lng, size), _column(coverage.lng + half_lng, size)
    columns = {_wrapped(column, size) for column in range(first, last + 1)}
    return tuple((grid, row, column) for row in rows for column in sorted(columns))


def _row(lat: float, size: float) -> int:
    return math.floor(lat / size)


def _column(lng: float, size: float) -> int:
    return math.floor((lng + 180.0) / size)


def _wrapped(column: int, size: float) -> int:
    """The same column on both sides of the antimeridian."""
    return column % round(360.0 / size)


@final
class Circles:
    """The coverage circles of one cell as columns, so that those around a point are counted at once.

    A circle is kept as the unit vector of its centre and the squared chord of its radius. What lies within rounding of
    an edge is left to `Workspace.covers`, whose word is the only one that counts.
    """

    def __init__(self) -> None:
        self._rows = np.empty((8, 4))
        self._ids: list[str] = []
        self._place: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def put(self, workspace: Workspace) -> None:
        """Add an operator that is not there yet; one without coverage is a circle around the whole globe."""
        row = len(self._ids)
        if row == len(self._rows):
            self._rows = np.concatenate((self._rows, np.empty_like(self._rows)))
        circle = workspace.coverage
        if circle is None:
            self._rows[row] = (0.0, 0.0, 0.0, math.inf)
        else:
            reach = math.sin(min(circle.radius_m / (2 * EARTH_RADIUS_M), math.pi / 2))
            self._rows[row] = (*_vector(circle.lat, circle.lng), 4 * reach * reach)
        self._place[workspace.id] = row
        self._ids.append(workspace.id)

    def remove(self, workspace_id: str) -> None:
        """Take an operator out; the last one moves to its place."""
        row, last = self._place.pop(workspace_id), self._ids.pop()
        if last != workspace_id:
            self._rows[row] = self._rows[len(self._ids)]
            self._ids[row] = last
            self._place[last] = row

    def around(self, lat: float, lng: float) -> tuple[int, list[str]]:
        """How many surely cover the point, and who must be asked."""
        rows = self._rows[: len(self._ids)]
        away = rows[:, :3] - _vector(lat, lng)
        chords, limits = np.einsum("ij,ij->i", away, away), rows[:, 3]
        slack = EDGE_RATIO * np.where(np.isfinite(limits), limits, 0.0) + EDGE_FLOOR
        sure = int(np.count_nonzero(chords < limits - slack))
        edge = np.flatnonzero(np.abs(chords - limits) <= slack)
        return sure, [self._ids[row] for row in edge]


def _vector(lat: float, lng: float) -> tuple[float, float, float]:
    phi, theta = math.radians(lat), math.radians(lng)
    return math.cos(phi) * math.cos(theta), math.cos(phi) * math.sin(theta), math.sin(phi)


@final
class _Cell:
    """Who serves one cell, longest idle first: those that may be of the first tier, and those that surely are not."""

    __slots__ = ("circles", "first", "second")

    def __init__(self) -> None:
        self.first: SortedList = SortedList()
        self.second: SortedList = SortedList()
        self.circles = Circles()


@final
class OperatorIndex:
    """The ONLINE operators of one process.

    An operator whose device fell silent is passed over once, then listed with the second tier until `seen` says that it
    is back: a pick does not pay for everybody who is out of reach.
    """

    def __init__(self) -> None:
        self._online: dict[str, Workspace] = {}
        self._places: dict[str, tuple[Place, ...]] = {}
        self._second: set[str] = set()
        self._all: SortedList = SortedList()
        self._cells: dict[Place, _Cell] = {}

    def __len__(self) -> int:
        return len(self._online)

    def put(self, workspace: Workspace) -> None:
        """Take in a workspace's present state; one that is not ONLINE is left out."""
        self.remove(workspace.id)
        if workspace.availability is not Availability.ONLINE or not workspace.is_supplier or workspace.deleted_at_ms:
            return
        self._online[workspace.id] = workspace
        entry = _entry(workspace)
        self._all.add(entry)
        places = self._places[workspace.id] = _places(workspace)
        if workspace.claims:
            self._second.add(workspace.id)
        for place in places:
            cell = self._cells.get(place)
            if cell is None:
                cell = self._cells[place] = _Cell()
            (cell.second if workspace.claims else cell.first).add(entry)
            cell.circles.put(workspace)

    def remove(self, workspace_id: str) -> Workspace | None:
        """Leave a workspace out; returns what was known of it."""
        workspace = self._online.pop(workspace_id, None)
        if workspace is None:
            return None
        entry = _entry(workspace)
        self._all.remove(entry)
        is_second = workspace_id in self._second
        self._second.discard(workspace_id)
        for place in self._places.pop(workspace_id):
            cell = self._cells[place]
            (cell.second if is_second else cell.first).remove(entry)
            cell.circles.remove(workspace_id)
            if not len(cell.circles):
                del self._cells[place]
        return workspace

    def seen(self, workspace_id: str) -> None:
        """The operator's device has been heard of again."""
        workspace = self._online.get(workspace_id)
        if workspace is None or workspace.claims or workspace_id not in self._second:
            return
        self._second.remove(workspace_id)
        entry = _entry(workspace)
        for place in self._places[workspace_id]:
            cell = self._cells[place]
            cell.second.remove(entry)
            cell.first.add(entry)

    def _fell_silent(self, workspace: Workspace) -> None:
        self._second.add(workspace.id)
        entry = _entry(workspace)
        for place in self._places[workspace.id]:
            cell = self._cells[place]
            cell.first.remove(entry)
            cell.second.add(entry)

    def longest_idle(self) -> Iterator[Workspace]:
        """All of them, longest idle first."""
        for _, workspace_id in self._all:
            yield self._online[workspace_id]

    def covering(self, lat: float, lng: float) -> Iterator[Workspace]:
        """Those that cover the point, longest idle first."""
        cells = self._cells_at(lat, lng)
        return self._covering([line for cell in cells for line in (cell.first, cell.second)], lat, lng)

    def _covering(self, lines: list[SortedList], lat: float, lng: float) -> Iterator[Workspace]:
        for _, workspace_id in merge(*lines):
            workspace = self._online[workspace_id]
            if workspace.covers(lat, lng):
                yield workspace

    def count_covering(self, lat: float, lng: float) -> int:
        """How many cover the point."""
        count = 0
        for cell in self._cells_at(lat, lng):
            sure, doubtful = cell.circles.around(lat, lng)
            count += sure + sum(self._online[workspace_id].covers(lat, lng) for workspace_id in doubtful)
        return count

    def _cells_at(self, lat: float, lng: float) -> list[_Cell]:
        places = [EVERYWHERE]
        places += [
            (grid, _row(lat, size), _wrapped(_column(lng, size), size)) for grid, size in enumerate(CELL_DEGREES)
        ]
        return [self._cells[place] for place in places if place in self._cells]

    def choose(
        self, lat: float, lng: float, *, mode: str, excluded: frozenset[str], is_fresh: Callable[[Workspace], bool]
    ) -> Workspace | None:
        """The operator for a point, by tiers: (A) covers it, free of claims and fresh; (B) covers it; (C) any."""
        if mode == "literal":
            return _first_not(excluded, self.longest_idle())
        cells = self._cells_at(lat, lng)
        found = self._fresh([cell.first for cell in cells], lat, lng, excluded, is_fresh)
        if found is None:
            found = _first_not(excluded, self._covering([cell.second for cell in cells], lat, lng))
        if found is None and mode != "strict":
            found = _first_not(excluded, self.longest_idle())
        return found

    def _fresh(
        self,
        lines: list[SortedList],
        lat: float,
        lng: float,
        excluded: frozenset[str],
        is_fresh: Callable[[Workspace], bool],
    ) -> Workspace | None:
        chosen: Workspace | None = None
        silent: list[Workspace] = []
        for found in self._covering(lines, lat, lng):
            if not is_fresh(found):
                silent.append(found)
            elif found.id not in excluded:
                chosen = found
                break
        for each in silent:
            self._fell_silent(each)
        return chosen


def _entry(workspace: Workspace) -> Entry:
    return (workspace.idle_since_ms, workspace.id)


def _first_not(excluded: frozenset[str], found: Iterator[Workspace]) -> Workspace | None:
    return next((each for each in found if each.id not in excluded), None)
