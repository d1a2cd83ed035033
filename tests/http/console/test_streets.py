"""Streets from one file: checked with words that say what to do, installed by command, and served in parts."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pmtiles.reader import MmapSource, Reader
from pmtiles.tile import Compression, TileType
from typer.testing import CliRunner

from sightline.cli import app
from sightline.http.console.streets import RANGE_BYTES_MAX, StreetsError, read_streets, wanted_range
from sightline.http.services import ResourceOptions
from tests.http.console.street_file import write_streets
from tests.http.world import World, WorldOptions, open_world

FENHAVEN = (54.3, 9.7)


@pytest.fixture
def streets_file(tmp_path: Path) -> Path:
    path = tmp_path / "town.pmtiles"
    write_streets(path, *FENHAVEN)
    return path


def changed(path: Path, at: int, new: bytes) -> Path:
    """The file with other bytes at an offset."""
    content = bytearray(path.read_bytes())
    content[at : at + len(new)] = new
    path.write_bytes(content)
    return path


def test_what_a_file_contains_is_read_as_its_writer_stated_it(streets_file: Path) -> None:
    found = read_streets(streets_file)
    assert (found.min_zoom, found.max_zoom) == (10, 15)
    assert found.contains(*FENHAVEN)
    assert not found.contains(52.52, 13.4)
    assert "roads" in found.layers
    assert found.attribution == "© OpenStreetMap"
    with streets_file.open("rb") as file:
        header = Reader(MmapSource(file)).header()
    assert found.east == header["max_lon_e7"] / 1e7


def test_a_file_that_cannot_be_used_is_refused_with_what_to_do(streets_file: Path, tmp_path: Path) -> None:
    def refused(path: Path) -> str:
        with pytest.raises(StreetsError) as said:
            read_streets(path)
        return str(said.value)

    other = tmp_path / "other"
    other.write_bytes(b"%PDF-1.7")
    assert "is not a PMTiles file" in refused(other)
    other.write_bytes(b"PMTiles\x03")
    assert "8 of 127 bytes" in refused(other)
    other.write_bytes(streets_file.read_bytes()[:-10])
    assert "is not complete" in refused(other)
    write_streets(other, *FENHAVEN, tile_type=TileType.PNG)
    assert "contains PNG pictures; the console draws vector tiles" in refused(other)
    write_streets(other, *FENHAVEN, tile_compression=Compression.ZSTD)
    assert "its tiles are not compressed by gzip" in refused(other)
    write_streets(other, *FENHAVEN, layers=["transportation", "water"])
    assert "no layer `roads` (it has transportation, water)" in refused(other)
    write_streets(other, *FENHAVEN, zooms=(8, 9))
    assert "ends at zoom 9; streets need 12" in refused(other)
    assert "version 2" in refused(changed(streets_file, 7, b"\x02"))
    write_streets(streets_file, *FENHAVEN)
    assert "its metadata cannot be read" in refused(changed(streets_file, 24, (127).to_bytes(8, "little")))
    write_streets(streets_file, *FENHAVEN)
    assert "states no area" in refused(changed(streets_file, 102, b"\xff\xff\xff\x7f"))


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        ("bytes=0-126", (0, 127)),
        ("bytes=5-5", (5, 1)),
        (None, None),
        ("bytes=9-8", None),
        ("bytes=0-", None),
        ("bytes=-5", None),
        ("bytes=0-1,3-4", None),
        (f"bytes=0-{RANGE_BYTES_MAX}", None),
    ],
)
def test_one_range_of_bounded_length_is_answered(header: str | None, wanted: tuple[int, int] | None) -> None:
    assert wanted_range(header) == wanted


def test_the_command_installs_a_good_file_and_leaves_the_former_one_in_place_of_a_bad_one(
    streets_file: Path, tmp_path: Path
) -> None:
    data_dir, bad = tmp_path / "data", tmp_path / "bad.pmtiles"
    installed = data_dir / "map" / "streets.pmtiles"
    said = CliRunner().invoke(app, ["map", "get-ready", str(streets_file), "--data-dir", str(data_dir)])
    assert said.exit_code == 0, said.output
    assert "54.2800, 9.6800 to 54.3200, 9.7200; zoom 10 to 15" in said.stdout
    assert installed.read_bytes() == streets_file.read_bytes()
    bad.write_bytes(b"no map")
    said = CliRunner().invoke(app, ["map", "get-ready", str(bad), "--data-dir", str(data_dir)])
    assert said.exit_code == 1
    assert "Nothing was installed" in said.stderr
    assert "is not a PMTiles file" in said.stderr
    assert installed.read_bytes() == streets_file.read_bytes()
    assert [each.name for each in installed.parent.iterdir()] == ["streets.pmtiles"]
    said = CliRunner().invoke(app, ["map", "get-ready", str(installed), "--json", "--data-dir", str(data_dir)])
    assert said.exit_code == 0, "the installed file is only checked"
    assert json.loads(said.stdout)["bounds"] == [9.68, 54.28, 9.72, 54.32]


@pytest.fixture
async def mapped(tmp_path: Path) -> AsyncIterator[tuple[World, Path]]:
    """A server with a place for a file of streets, and that place, which is empty."""
    path = tmp_path / "streets.pmtiles"
    async with open_world(WorldOptions(resources=ResourceOptions(map_streets_path=path))) as world:
        yield world, path


async def test_a_file_is_served_in_parts_from_the_moment_that_it_is_there(mapped: tuple[World, Path]) -> None:
    world, path = mapped
    assert (await world.http.get("/console/map.json")).json()["streets"] is None
    assert (await world.http.get("/console/streets.pmtiles", headers={"range": "bytes=0-126"})).status_code == 404
    write_streets(path, *FENHAVEN)
    shown = (await world.http.get("/console/map.json")).json()
    assert shown["attribution"] == "© OpenStreetMap"
    streets = shown["streets"]
    assert (streets["minZoom"], streets["maxZoom"]) == (10, 15)
    assert streets["bounds"] == [9.68, 54.28, 9.72, 54.32]
    answer = await world.http.get(streets["url"], headers={"range": "bytes=0-126"})
    size = path.stat().st_size
    assert (answer.status_code, answer.content) == (206, path.read_bytes()[:127])
    assert answer.headers["content-range"] == f"bytes 0-126/{size}"
    end = await world.http.get(streets["url"], headers={"range": f"bytes={size - 5}-{size + 100}"})
    assert end.content == path.read_bytes()[-5:]
    for wrong in ({}, {"range": f"bytes={size}-{size + 1}"}, {"range": "bytes=0-"}):
        assert (await world.http.get(streets["url"], headers=wrong)).status_code == 416
    path.write_bytes(b"PMTiles, but not whole")
    assert (await world.http.get("/console/map.json")).json()["streets"] is None, "the map works on without it"
