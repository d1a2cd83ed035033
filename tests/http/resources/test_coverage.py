"""The map of online operators."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.domain.operator.coverage_map import CoverageCells, cell_box, coverage_cell
from tests.http.world import Party, World, data_of, error_of

PATH = "/api/v1/coverage?bbox="
BERLIN_BOX = "13.0,52.3,13.8,52.7"


async def online(world: World, lat: float | None, lng: float = 13.405, radius_m: float = 20_000) -> Party:
    operator = await world.party("SUPPLIER")
    where = {} if lat is None else {"coverageLat": lat, "coverageLng": lng, "coverageRadiusMeters": radius_m}
    await operator.go_online(**where)
    data_of(await operator.beat())
    return operator


async def read(world: World, party: Party, box: str) -> dict[str, Any]:
    world.clock.advance(6)
    return data_of(await party.key.get(PATH + box))


async def test_operators_are_counted_in_the_cell_of_their_coverage_centre(world: World) -> None:
    consumer = await world.party("CONSUMER")
    for lat in (52.5201, 52.5999, 52.60, None, -33.9):
        operator = await online(world, lat)
    answer = await read(world, consumer, BERLIN_BOX)
    assert answer == {
        "items": [{"south": 52.5, "west": 13.4, "operators": 2}, {"south": 52.6, "west": 13.4, "operators": 1}],
        "nextCursor": None,
        "cellDegrees": 0.1,
        "everywhere": 1,
    }
    assert (await read(world, consumer, "13.401,-33.8999,13.402,-33.8998"))["items"] == [
        {"south": -33.9, "west": 13.4, "operators": 1}
    ]
    data_of(await operator.key.patch(operator.path, {"availabilityState": "OFFLINE"}))
    assert (await read(world, consumer, "13,-34,14,-33"))["items"] == []
    world.clock.advance(61)
    assert (await read(world, consumer, BERLIN_BOX))["everywhere"] == 0


async def test_an_operator_that_is_passed_over_is_counted_neither_on_the_map_nor_by_a_price(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    where = {"coverageLat": 52.52, "coverageLng": 13.405, "coverageRadiusMeters": 2_000}
    data_of(await operator.key.patch(operator.path, where))
    await world.miss_start(consumer, operator)
    quote = "/api/v1/pricing/quote?lat=52.52&lng=13.405&durationSeconds=60"

    async def counted() -> tuple[int, int]:
        data_of(await operator.beat())
        price = data_of(await consumer.key.get(quote))
        cells = (await read(world, consumer, BERLIN_BOX))["items"]
        return price["availableOperators"], sum(each["operators"] for each in cells)

    assert await counted() == (0, 0)
    world.clock.advance(60)
    assert await counted() == (1, 1)


async def test_the_map_is_counted_at_most_once_in_five_seconds(world: World) -> None:
    consumer = await world.party("CONSUMER")
    first = await consumer.key.get(PATH + BERLIN_BOX)
    await online(world, 52.52)
    world.clock.advance(3)
    again = await consumer.key.get(PATH + BERLIN_BOX)
    assert again.json() == first.json()
    assert len((await read(world, consumer, BERLIN_BOX))["items"]) == 1


@pytest.mark.parametrize(
    "box",
    ["", "1,2,3", "a,b,c,d", "2,0,1,1", "0,2,1,1", "0,0,181,1", "0,0,20.1,1", "0,-10,1,10.5", "nan,0,1,1", "0,0,1,1,1"],
)
async def test_a_box_that_is_no_box_is_refused(world: World, box: str) -> None:
    consumer = await world.party("CONSUMER")
    assert error_of(await consumer.key.get(PATH + box)) == (400, "INVALID_INPUT", "coverage:bbox")


DEGREES = st.floats(-89, 89).map(lambda value: round(value, 6))


@given(lat=DEGREES, lng=DEGREES, box=st.tuples(DEGREES, DEGREES, DEGREES, DEGREES))
def test_a_box_shows_whole_cells_only(lat: float, lng: float, box: tuple[float, float, float, float]) -> None:
    """Two places in one cell look the same in every box, so no set of boxes shows more than the cell."""
    south, north = sorted(box[:2])
    west, east = sorted(box[2:])
    cells = cell_box(south=south, west=west, north=north, east=east)
    row, column = coverage_cell(lat, lng)
    corner = coverage_cell(row / 10, column / 10)
    assert corner == (row, column)
    assert 0 <= lat - row / 10 < 0.1 + 1e-9
    shown = [CoverageCells({cell: 1}, 0).within(cells).counts for cell in (corner, (row, column))]
    assert shown[0] == shown[1]
    if south <= lat <= north and west <= lng <= east:
        assert shown[1] == {(row, column): 1}
