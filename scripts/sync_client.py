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
    "async_shield": "sync_shield",
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


def main() -> int:
    """Generate, or with `--check` compare. Returns the exit code."""
    target = PACKAGE / "_sync"
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        generate(directory)
        made = {path.name: path.read_text() for path in sorted((directory / "_sync").glob("*.py"))}
    kept = {path.name: path.read_text() for path in sorted(target.glob("*.py"))}
    if "--check" in sys.argv[1:]:
        stale = sorted(name for name in made.keys() | kept.keys() if made.get(name) != kept.get(name))
        if stale:
            sys.stderr.write(f"{target} differs from _async in {', '.join(stale)}. Run: make sdk\n")
        return 1 if stale else 0
    target.mkdir(exist_ok=True)
    for path in target.glob("*.py"):
        path.unlink()
    for name, text in made.items():
        (target / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
