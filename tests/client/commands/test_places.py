"""Coordinates on the command line, in the forms in which people have them."""

import json

import pytest

from tests.client.commands.program import sightline
from tests.http.world import open_world


@pytest.mark.parametrize(
    "words",
    [
        ("48.137", "-11.575"),
        ("48.137,-11.575",),
        ("48.137, -11.575",),
        ("48.137,", "-11.575"),
        ("--", "48.137", "-11.575"),
    ],
    ids=" ".join,
)
async def test_a_place_is_read_as_two_words_or_as_the_pair_that_maps_show(words: tuple[str, ...]) -> None:
    async with open_world() as world:
        done = await sightline(world, await world.party("CONSUMER"), "quote", "--json", *words)
    assert done.returncode == 0, done.stderr
    quoted = json.loads(done.stdout)
    assert (quoted["lat"], quoted["lng"]) == (48.137, -11.575)


@pytest.mark.parametrize(
    ("words", "place"), [(("48,11.5",), (48, 11.5)), (("-33,", "-70"), (-33, -70)), (("48, 11",), (48, 11))]
)
async def test_a_pair_of_whole_numbers_is_read_where_the_comma_cannot_be_a_decimal_one(
    words: tuple[str, ...], place: tuple[float, float]
) -> None:
    async with open_world() as world:
        done = await sightline(world, await world.party("CONSUMER"), "quote", "--json", *words)
    assert done.returncode == 0, done.stderr
    quoted = json.loads(done.stdout)
    assert (quoted["lat"], quoted["lng"]) == place


async def test_the_value_of_an_option_is_no_place_whatever_it_looks_like() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await operator.go_online()
        done = await sightline(world, consumer, "request", "--instructions", "1.5,2.5", "52.52,13.405", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["instructions"] == "1.5,2.5"
