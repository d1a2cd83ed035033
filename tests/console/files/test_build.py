"""The committed files of the console: built from the sources, and small."""

import gzip
import json
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
BUILT = ROOT / "sightline" / "web"
KB = 1024


def node(*arguments: str) -> str:
    """Run a script of web/."""
    done = subprocess.run(
        ["node", *arguments], cwd=ROOT / "web", capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def sizes() -> dict[str, int]:
    return {path.name.removesuffix(".gz"): path.stat().st_size for path in BUILT.glob("*.gz")}


def loaded_with(name: str) -> set[str]:
    """A file and the files that it imports at once."""
    found, queue = set[str](), [name]
    while queue:
        current = queue.pop()
        if current not in found:
            found.add(current)
            source = gzip.decompress((BUILT / f"{current}.gz").read_bytes()).decode()
            queue += re.findall(r'(?:from|import)\s*"(?:\./|/console/)([\w-]+\.js)"', source)
    return found


def test_the_sources_give_exactly_the_committed_files(tmp_path: Path):
    node("build.mjs", str(tmp_path))
    built = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    committed = {path.name: path.read_bytes() for path in BUILT.glob("*.gz")}
    assert built.keys() == committed.keys(), "run make web and commit sightline/web"
    assert [name for name in built if built[name] != committed[name]] == []


def test_the_map_names_a_capital_before_larger_cities_but_a_tiny_one_after_them():
    (path,) = BUILT.glob("cities.gen-*.json.gz")
    names = [name for name, *_ in json.loads(gzip.decompress(path.read_bytes()))]
    for first, second in (("Bern", "Zürich"), ("Canberra", "Sydney"), ("Ankara", "Istanbul"), ("Zürich", "Vaduz")):
        assert names.index(first) < names.index(second), first


def test_the_first_load_every_screen_and_the_map_are_small():
    size = sizes()
    page = gzip.decompress((BUILT / "index.html.gz").read_bytes()).decode()
    first = {"index.html", *re.findall(r'(?:href|src)="/console/([\w.-]+)"', page)}
    first -= {"manifest.webmanifest", "icon-180.png"}  # of the app: no screen waits for them
    (main,) = [name for name in first if name.startswith("main-") and name.endswith(".js")]
    (start,) = [name for name in size if name.startswith("start-")]
    first |= loaded_with(main) | loaded_with(start)
    assert sum(size[name] for name in first) < 60 * KB, first
    for screen in ("start", "buy", "watch", "sessions", "receipt", "wallet", "operate", "camera", "team", "ops"):
        (name,) = [each for each in size if each.startswith(f"{screen}-") and each.endswith(".js")]
        assert sum(size[each] for each in loaded_with(name) - loaded_with(main)) < 25 * KB, screen
    (atlas,) = [name for name in size if name.startswith("atlas-")]
    assert sum(size[each] for each in loaded_with(atlas) - loaded_with(main)) < 60 * KB
    assert sum(size[each] for each in size if each.endswith(".json")) < 360 * KB
    (places,) = [name for name in size if name.startswith("places.")]
    assert size[places] < 1_100 * KB  # loaded when somebody types a name
    assert sum(size.values()) < 1_800 * KB
