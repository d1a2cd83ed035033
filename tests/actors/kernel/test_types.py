"""The kernel is typed: no signature says Any, and mypy refuses a message that an actor does not handle."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

KERNEL = Path(__file__).parents[3] / "sightline" / "actors" / "kernel"


def names_in(annotation):
    """All names of an annotation, those in strings included."""
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from names_in(ast.parse(node.value, mode="eval"))


def annotations_of(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield node.annotation
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            yield node.returns


def test_no_signature_of_the_kernel_says_any():
    found = [
        f"{path.name}:{annotation.lineno}"
        for path in KERNEL.glob("*.py")
        for annotation in annotations_of(ast.parse(path.read_text()))
        if "Any" in names_in(annotation)
    ]
    assert found == []


HEAD = """
from typing import assert_never
from sightline.actors.deps import SESSION, WORKSPACE
from sightline.actors.kernel import Registry
from sightline.actors.messages import *
from sightline.domain.operator.model import Workspace
from sightline.domain.session.messages import Tick
"""


ANSWER_OF_ANOTHER_TYPE = """
async def f(r: Registry) -> int:
    answer = await r.ref(SESSION, "x").ask(GetSession(), timeout_s=1)
    return answer
"""
COMMAND_OF_ANOTHER_KIND = """
async def f(r: Registry) -> None:
    await r.ref(WORKSPACE, "x").ask(GetSession(), timeout_s=1)
"""
FACT_OF_ANOTHER_KIND = """
def f(r: Registry) -> None:
    r.ref(WORKSPACE, "x").tell(Tick())
"""
SNAPSHOT_OF_ANOTHER_KIND = """
def f(r: Registry) -> Workspace | None:
    return r.peek(SESSION, "x")
"""
UNHANDLED_MESSAGE = """
def f(m: DispatcherMessage) -> None:
    match m:
        case PickOperator() | CountOperators():
            pass
        case _:
            assert_never(m)
"""


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (ANSWER_OF_ANOTHER_TYPE, "return-value"),
        (COMMAND_OF_ANOTHER_KIND, "arg-type"),
        (FACT_OF_ANOTHER_KIND, "arg-type"),
        (SNAPSHOT_OF_ANOTHER_KIND, "return-value"),
        (UNHANDLED_MESSAGE, "arg-type"),
    ],
)
def test_mypy_refuses_a_wrong_message_and_a_wrong_answer(tmp_path, body, error):
    script = tmp_path / "wrong.py"
    script.write_text(HEAD + body)
    command = [sys.executable, "-m", "mypy", "--strict", "--hide-error-context", str(script)]
    outcome = subprocess.run(command, cwd=KERNEL.parents[2], capture_output=True, text=True, check=False)
    lines = [line for line in outcome.stdout.splitlines() if line.startswith(str(script)) and "error:" in line]
    assert len(lines) == 1, outcome.stdout
    assert f"[{error}" in lines[0]
