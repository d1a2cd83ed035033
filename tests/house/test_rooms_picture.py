"""The picture of who imports whom is the contract that is enforced."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_picture_in_architecture_shows_the_layers_in_their_enforced_order() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    picture = (ROOT / "ARCHITECTURE.md").read_text().split("## Packages and their imports")[1].split("```")[1]
    drawn = [line for line in picture.splitlines() if re.match(r"[a-z]", line)]
    assert [re.match(r"[a-z |]+[a-z]", line)[0].split("  ")[0].strip() for line in drawn] == layers  # type: ignore[index]
