"""Streets of one file on the console's map: drawn in the page, from this server alone, in both themes."""

import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, expect
from typer.testing import CliRunner

from sightline.cli import app
from sightline.domain.geofence import distance_m
from tests.console.people import PATIENCE_MS, ConsoleServer, Tab, a_tab, sign_up
from tests.console.review import Review
from tests.http.console.street_file import write_streets

FENHAVEN = (54.300000, 9.700000)
DRAWN = """() => {
  const tiles = [...document.querySelectorAll(".map-streets canvas.leaflet-tile-loaded")];
  const inked = (canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const colours = new Set();
    for (let at = 0; at < data.length; at += 4 * 7) colours.add(`${data[at]} ${data[at + 1]} ${data[at + 2]}`);
    return colours.size > 100;
  };
  return tiles.some(inked);
}"""


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleServer]:
    """A server of its own, whose data directory gets a file of streets by the command while it runs."""
    directory = tmp_path_factory.mktemp("streets")
    server = ConsoleServer(directory)
    server.start()
    write_streets(directory / "town.pmtiles", *FENHAVEN, span=0.08)
    command = ["map", "get-ready", str(directory / "town.pmtiles"), "--data-dir", str(server.data_dir)]
    said = CliRunner().invoke(app, command)
    assert said.exit_code == 0, said.output
    codes = directory / "DE.txt"
    codes.write_text("DE\t24768\tFenhaven\tNorth\tSH\t\t00\t\t\t54.3\t9.7\t6\n")
    said = CliRunner().invoke(app, ["map", "postcodes", str(codes), "--data-dir", str(server.data_dir)])
    assert said.exit_code == 0, said.output
    yield server
    server.end()


def colours(tab: Tab) -> int:
    """How many colours the map's picture has: a map of streets has many."""
    picture = Image.open(io.BytesIO(tab.page.locator(".map").screenshot())).convert("RGB")
    return len(picture.getcolors(1_000_000) or ())


@pytest.mark.nightly("tests/console/streets/test_streets_shown.py::test_a_place_is_found_by_its_postcode")
def test_the_map_shows_the_streets_of_the_file_and_calls_nobody_else(
    browser: Browser, mapped: ConsoleServer, tmp_path: Path
):
    review = Review()
    with a_tab(browser, mapped.url, place=FENHAVEN) as tab:
        sign_up(tab, "Harbour Watch", "CONSUMER")
        tab.go("buy")
        tab.page.fill("#place", f"{FENHAVEN[0]}, {FENHAVEN[1]}")
        tab.shows("[data-map=ready] .map-fence")
        tab.until(DRAWN)
        tab.shows(".leaflet-control-attribution", "OpenStreetMap")
        assert colours(tab) > 200
        review.look(tab, "buy-streets")
        tab.page.emulate_media(color_scheme="dark")
        tab.page.reload()
        tab.page.fill("#place", f"{FENHAVEN[0]}, {FENHAVEN[1]}")
        tab.until(DRAWN)
        review.look(tab, "buy-streets-dark")
        review.done(tab)


def test_a_place_is_found_by_its_postcode(browser: Browser, mapped: ConsoleServer):
    with a_tab(browser, mapped.url, place=FENHAVEN) as tab:
        sign_up(tab, "Harbour Watch", "CONSUMER")
        tab.go("buy")
        tab.page.fill("#place", "24768")
        tab.shows("[role=option]", "24768 Fenhaven, Germany")
        tab.page.press("#place", "Enter")
        expect(tab.page.locator("#place")).to_have_value("24768 Fenhaven, Germany")
        tab.shows("#place-hint", "54.30000, 9.70000")
        tab.shows(".price")
        assert tab.problems == []


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("Harbour Avenue 12, Rendsburg", "Harbour Avenue, Rendsburg, Schleswig-Holstein, Germany"),
        ("harbour ave rendsburg", "Harbour Avenue, Rendsburg, Schleswig-Holstein, Germany"),
        ("North Street 3", "North Street 3, Rendsburg, Schleswig-Holstein, Germany"),
    ],
)
@pytest.mark.nightly("tests/console/streets/test_streets_shown.py::test_a_place_is_found_by_its_postcode")
def test_a_street_is_found_by_its_name_with_and_without_its_town(
    browser: Browser, mapped: ConsoleServer, text: str, label: str
):
    with a_tab(browser, mapped.url, place=FENHAVEN) as tab:
        sign_up(tab, "Harbour Watch", "CONSUMER")
        tab.go("buy")
        tab.page.fill("#place", text)
        tab.page.press("#place", "Enter")
        expect(tab.page.locator("#place")).to_have_value(label, timeout=PATIENCE_MS)
        found = re.match(r"\u2066?([\d.]+), ([\d.]+)", tab.page.locator("#place-hint").inner_text())
        assert found is not None
        assert distance_m(*map(float, found.groups()), *FENHAVEN) < 12_000
        tab.shows(".price")
        assert tab.problems == []


@pytest.mark.nightly("tests/console/test_map.py::test_without_the_map_the_form_stays")
def test_a_map_whose_streets_do_not_arrive_shows_land_and_place(browser: Browser, mapped: ConsoleServer):
    with a_tab(browser, mapped.url, place=FENHAVEN) as tab:
        tab.allowed = (r"ERR_FAILED",)
        tab.page.route("**/streets-*.js", lambda route: route.abort())
        sign_up(tab, "Harbour Watch", "CONSUMER")
        tab.go("buy")
        tab.page.fill("#place", f"{FENHAVEN[0]}, {FENHAVEN[1]}")
        tab.shows("[data-map=ready] .map-fence")
        tab.shows(".price")
        assert tab.problems == []
