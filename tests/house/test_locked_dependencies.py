"""The runtime's locked dependencies: exact versions with hashes, equal to those the tests run with."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


def pins_of(name: str) -> dict[str, str]:
    """Package and version of each line `package==version` of a file."""
    text = (ROOT / name).read_text()
    return {package.lower().replace("_", "-"): version for package, version in PIN.findall(text)}


def test_locked_versions_are_those_of_the_constraints() -> None:
    locked, constrained = pins_of("requirements.lock"), pins_of("constraints.txt")
    assert {name: constrained.get(name) for name in locked if name in constrained} == {
        name: version for name, version in locked.items() if name in constrained
    }, "run `make lock`"


def test_the_lock_with_the_extra_differs_only_by_its_library() -> None:
    plain, signing = pins_of("requirements.lock"), pins_of("requirements-c2pa.lock")
    assert plain.items() <= signing.items()
    assert "c2pa-python" in signing.keys() - plain.keys()
    assert "c2pa-python" not in plain


def test_every_runtime_dependency_is_locked_with_hashes() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    block = project.partition("dependencies = [")[2].partition("\n]")[0]
    wanted = {name.lower() for name in re.findall(r'^\s+"([A-Za-z0-9._-]+)', block, re.MULTILINE)}
    locked = pins_of("requirements.lock")
    assert wanted - {"sightline-client"} <= set(locked), "run `make lock`"  # the client is installed from the checkout
    entries = re.split(r"\n(?=[A-Za-z0-9])", (ROOT / "requirements.lock").read_text())
    assert not [entry.split("==")[0] for entry in entries if "==" in entry and "--hash=sha256:" not in entry]
