"""Postcodes of GeoNames: read as its files have them, installed by command, and served to the console."""

import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sightline.cli import app
from sightline.http.console.postcodes import read_postcodes
from sightline.http.console.streets import StreetsError
from sightline.http.services import ResourceOptions
from tests.http.world import WorldOptions, open_world

BERLIN = "DE\t10115\tBerlin\tBerlin\tBE\t\t00\tBerlin, Stadt\t11000\t52.5323\t13.3846\t6"
TWICE = "DE\t10115\tBerlin Mitte\tBerlin\tBE\t\t00\tBerlin, Stadt\t11000\t52.5\t13.4\t6"
VIENNA = "AT\t1010\tWien, Innere Stadt\tWien\t09\tWien Stadt\t900\tWien\t90001\t48.2077\t16.3705\t6"


@pytest.fixture
def germany(tmp_path: Path) -> Path:
    path = tmp_path / "DE.txt"
    path.write_text(f"{BERLIN}\n{TWICE}\n")
    return path


@pytest.fixture
def austria(tmp_path: Path) -> Path:
    path = tmp_path / "AT.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "GeoNames Postal Code files")
        archive.writestr("AT.txt", f"{VIENNA}\n")
    return path


def test_each_postcode_is_kept_once_by_country(germany: Path, austria: Path) -> None:
    assert read_postcodes([germany, austria]) == [
        "AT\t1010\tWien, Innere Stadt\t48.2077\t16.3705",
        "DE\t10115\tBerlin\t52.5323\t13.3846",
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"id,name\n1,Berlin\n", "line 1: 1 columns"),
        (BERLIN.replace("52.5323", "north").encode(), "line 1: 'north', '13.3846' are no coordinates"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (b"", "has no postcode"),
    ],
)
def test_another_file_is_refused_with_the_line(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(StreetsError, match=said):
        read_postcodes([path])


async def test_what_the_command_installs_is_served_at_once(germany: Path, austria: Path, tmp_path: Path) -> None:
    path = tmp_path / "data" / "map" / "postcodes.txt.gz"
    async with open_world(WorldOptions(resources=ResourceOptions(map_postcodes_path=path))) as world:
        assert (await world.http.get("/console/map.json")).json()["postcodes"] is None
        assert (await world.http.get("/console/postcodes.txt")).status_code == 404
        command = ["map", "postcodes", str(germany), str(austria), "--data-dir", str(tmp_path / "data")]
        said = CliRunner().invoke(app, command)
        assert said.exit_code == 0, said.output
        assert "2 postcodes are ready" in said.stdout
        url = (await world.http.get("/console/map.json")).json()["postcodes"]
        for encoding in ("gzip", "identity"):
            answer = await world.http.get(url, headers={"accept-encoding": encoding})
            assert answer.text.splitlines() == read_postcodes([germany, austria])
        said = CliRunner().invoke(app, [*command[:2], str(path), *command[4:]])
        assert said.exit_code == 1
        assert "Nothing was installed" in said.stderr
        assert (await world.http.get(url)).status_code == 200
