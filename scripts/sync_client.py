"""Generates the sync half of sightline-client from its async half.

`--check` compares instead, and fails on a difference.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import unasync

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "packages" / "sightline-client" / "src" / "sightline_client"
REPLACED = {
    "_async": "_sync",
    "aclose": "close",
    "aiter": "iter",
    "anext": "next",
    "aread": "read",
    "async_finish": "sync_finish",
    "async_sleep": "sync_sleep",
    "AsyncGenerator": "Generator",
    "AsyncIterator": "Iterator",
    "StopAsyncIteration": "StopIteration",
}
TEXTS = {
    "`async with ": "`with ",
    "The async client, written by hand. `sightline_client._sync` is generated from it: `make sdk`.": (
        "The sync client, generated from `sightline_client._async`. Do not edit; run `make sdk`."
    ),
}


def generate(directory: Path) -> None:
    """Write the sync modules below `directory`/_sync."""
    source = directory / "_async"
    source.mkdir()
    modules = sorted((PACKAGE / "_async").glob("*.py"))
    names = {name for path in modules for name in re.findall(r"\bAsync[A-Z]\w+", path.read_text())}
    replaced = {name: name.removeprefix("Async") for name in names} | REPLACED
    for path in modules:
        text = path.read_text()
        for old, new in TEXTS.items():
            text = text.replace(old, new)
        (source / path.name).write_text(text)
    rule = unasync.Rule("/_async/", "/_sync/", additional_replacements=replaced)
    unasync.unasync_files([str(source / path.name) for path in modules], [rule])
    made = directory / "_sync"
    ruff = [sys.executable, "-m", "ruff"]
    config = ["--config", str(ROOT / "pyproject.toml")]
    # S603: the arguments are constants and a temporary directory.
    subprocess.run([*ruff, "check", "-q", "--select", "I,F401", "--fix", *config, str(made)], check=True)  # noqa: S603
    subprocess.run([*ruff, "format", "-q", *config, str(made)], check=True)  # noqa: S603


def made_files() -> dict[Path, str]:
    """Generate every file. Returns the text of each by its path."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        generate(directory)
        return {PACKAGE / "_sync" / path.name: path.read_text() for path in (directory / "_sync").glob("*.py")}


def main() -> int:
    """Generate, or with `--check` compare. Returns the exit code."""
    made = made_files()
    kept = {path: path.read_text() for path in (PACKAGE / "_sync").glob("*.py")}
    stale = sorted(path for path in made.keys() | kept.keys() if made.get(path) != kept.get(path))
    if "--check" in sys.argv[1:]:
        for path in stale:
            sys.stderr.write(f"{path.relative_to(ROOT)} differs from its source. Run: make sdk\n")
        return 1 if stale else 0
    for path in stale:
        if path in made:
            path.parent.mkdir(exist_ok=True)
            path.write_text(made[path])
        else:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
