"""`make test` and `make test-servers` together run every test, and the smoke tests are there."""

import ast
import subprocess
import sys
from pathlib import Path
from types import FunctionType
from typing import Final

import pytest

from tests.groups import COMMANDS, LONG, SMOKE, names_server

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("claim", SMOKE)
def test_each_smoke_claim_has_its_test(claim: str) -> None:
    file, _, name = SMOKE[claim].partition("::")
    tree = ast.parse((ROOT / file).read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_the_gate_proves_in_another_test_what_a_test_at_night_proves() -> None:
    tests: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        file = path.relative_to(ROOT).as_posix()
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                tests[f"{file}::{node.name}"] = [
                    str(ast.literal_eval(mark.args[0]))
                    for mark in node.decorator_list
                    if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.nightly"
                ]
    at_night = {name: named[0] for name, named in tests.items() if named}
    assert at_night
    assert {name for name, other in at_night.items() if other not in tests or other in at_night} == set()


def a_command() -> list[str]:
    return [sys.executable, "-m", "sightline.cli", "serve"]


@pytest.mark.parametrize("file", LONG)
def test_each_long_file_is_there(file: str) -> None:
    assert (ROOT / file).is_file()


class Harness:
    def start(self) -> list[str]:
        return a_command()


def by_a_class() -> Harness:
    return Harness()


def neither() -> list[str]:
    return [sys.executable, "-m", "sightline.cli", "config"]


# In a list, so that the tests below, which start nothing, do not name the functions.
SEEN: Final = [a_command, by_a_class]


@pytest.mark.parametrize("function", SEEN)
def test_a_function_that_reaches_the_command_line_of_a_server_is_seen(function: FunctionType) -> None:
    assert names_server(function, {})
    assert not names_server(neither, {})


def test_a_server_that_a_test_starts_outside_of_the_group_is_refused() -> None:
    words = [sys.executable, "-c", "", "sightline", *COMMANDS]
    with pytest.raises(AssertionError, match=r"tests/groups\.py"):
        subprocess.run(words, check=False)
