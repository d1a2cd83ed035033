"""Rules of the source tree that no linter knows: folder sizes, class names, types of the kernel, hooks."""

import ast
import os
import re
from collections import defaultdict
from pathlib import Path
from typing import Final

import yaml

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "sightline"

MODULES_MAX: Final = 16
"""Python modules in one folder, `__init__.py` left out."""
LARGE: Final = {
    "tests/http": 17, "tests/storage": 17,
}  # fmt: skip
"""Folders that are still larger. May only shrink."""

WIRE_SCHEMAS: Final = PACKAGE / "http" / "schemas"
"""Their class names are the component names of the OpenAPI document, which is public."""
HOMONYMS: Final[frozenset[str]] = frozenset()
"""Class names that are still defined twice. May only shrink."""

KERNEL_ANY_MAX: Final = 0
"""Uses of Any in the signatures of the actor kernel."""


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def test_no_folder_has_too_many_modules() -> None:
    counts: dict[str, int] = defaultdict(int)
    for path in [*modules(), *(ROOT / "tests").rglob("*.py")]:
        if path.name != "__init__.py":
            counts[str(path.parent.relative_to(ROOT))] += 1
    assert len(counts) > 20
    assert {folder: n for folder, n in counts.items() if n > LARGE.get(folder, MODULES_MAX)} == {}


def test_no_two_classes_have_one_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        if WIRE_SCHEMAS not in path.parents:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(str(path.relative_to(ROOT)))
    assert len(places) > 200
    assert {name: found for name, found in places.items() if len(found) > 1 and name not in HOMONYMS} == {}


def test_any_is_not_spreading_in_the_signatures_of_the_kernel() -> None:
    found = []
    for path in sorted((PACKAGE / "actors" / "kernel").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = [argument.annotation for argument in ast.walk(node.args) if isinstance(argument, ast.arg)]
                for annotation in [*given, node.returns]:
                    text = "" if annotation is None else ast.unparse(annotation)
                    found += [f"{path.name}:{node.lineno} {text}"] * len(re.findall(r"\bAny\b", text))
    assert len(found) <= KERNEL_ANY_MAX, "\n".join(found)


def test_the_commit_hooks_run_what_make_check_runs() -> None:
    recipe = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    checked = [line.strip().removeprefix("$(BIN)/") for line in recipe[1].splitlines()]
    hooks = [
        hook
        for repo in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
        for hook in repo["hooks"]
    ]
    assert [hook["entry"].removeprefix(".venv/bin/") for hook in hooks] == checked


def test_scripts_that_the_makefile_calls_by_name_are_executable() -> None:
    called = set(re.findall(r"\./(scripts/\w+\.sh)", (ROOT / "Makefile").read_text()))
    assert len(called) > 4
    assert {name for name in called if not os.access(ROOT / name, os.X_OK)} == set()
