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
