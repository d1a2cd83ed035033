"""Where operators are ONLINE, in cells of 0.1 degrees.

An operator counts in the one cell that contains the centre of its coverage. Counting it in every cell that its circle
touches would let anyone reconstruct the circle, and with it a centre far more exact than a cell. Boxes are widened to
whole cells, so that asking for many small boxes shows nothing more either.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, final

from sightline.domain.value import Value

CELLS_PER_DEGREE: Final = 10
BOX_DEGREES_MAX: Final = 20.0
_MICRO: Final = 1_000_000
_CELL_MICRO: Final = _MICRO // CELLS_PER_DEGREE


class CellBox(NamedTuple):
    """Rows and columns of cells, both ends inclusive."""

    south: int
    west: int
    north: int
    east: int


@final
class CoverageCells(Value):
    """Operators per cell (row, column); only cells with at least one. `everywhere`: those that set no coverage."""

    counts: Mapping[tuple[int, int], int]
    everywhere: int

    def within(self, box: CellBox) -> "CoverageCells":
        """Return the cells of a box."""
        found = {
            cell: count
            for cell, count in sorted(self.counts.items())
            if box.south <= cell[0] <= box.north and box.west <= cell[1] <= box.east
        }
        return CoverageCells(found, self.everywhere)


def coverage_cell(lat: float, lng: float) -> tuple[int, int]:
    """Return the row and column of the cell that contains a point; the last ones contain the pole and 180 degrees."""
    row, column = round(lat * _MICRO) // _CELL_MICRO, round(lng * _MICRO) // _CELL_MICRO
    return min(row, 90 * CELLS_PER_DEGREE - 1), min(column, 180 * CELLS_PER_DEGREE - 1)


def cell_box(*, south: float, west: float, north: float, east: float) -> CellBox:
    """Return the cells that a box touches."""
    return CellBox(*coverage_cell(south, west), *coverage_cell(north, east))
