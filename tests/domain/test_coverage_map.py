"""Cells of the map of operators, at their edges."""

import pytest

from sightline.domain.operator.coverage_map import CellBox, CoverageCells, cell_box, coverage_cell


@pytest.mark.parametrize(
    ("lat", "lng", "cell"),
    [
        (0.0, 0.0, (0, 0)),
        (52.5201, 13.405, (525, 134)),
        (52.599999, 13.399999, (525, 133)),
        (52.6, 13.4, (526, 134)),
        (-0.000001, -0.1, (-1, -1)),
        (-33.9, -33.900001, (-339, -340)),
        (89.9, 179.9, (899, 1799)),
        (89.899999, 179.899999, (898, 1798)),
        (90.0, 180.0, (899, 1799)),
        (-90.0, -180.0, (-900, -1800)),
        (0.3, 0.7, (3, 7)),
    ],
)
def test_a_point_lies_in_the_cell_north_east_of_its_corner(lat, lng, cell):
    assert coverage_cell(lat, lng) == cell


def test_a_box_touches_the_cells_of_its_corners():
    assert cell_box(south=1.05, west=2.15, north=3.25, east=4.35) == CellBox(south=10, west=21, north=32, east=43)


def test_a_box_contains_the_cells_on_its_edges_in_order_and_all_operators_without_coverage():
    cells = {(row, column): 10 * row + column for row in (5, 3, 4, 1, 2) for column in (9, 7, 8, 5, 6)}
    found = CoverageCells(cells, everywhere=3).within(CellBox(south=2, west=6, north=4, east=8))
    expected = {(row, column): 10 * row + column for row in (2, 3, 4) for column in (6, 7, 8)}
    assert list(found.counts.items()) == list(expected.items())
    assert found.everywhere == 3
