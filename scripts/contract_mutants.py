"""Plant bugs in the Vyper source of SessionEscrow, one at a time, and run the contract's tests on the changed code.

Cosmic Ray reads Python only, so this changes lines of the source by itself: comparisons, arithmetic, `and` and `or`,
`not`, constants of time, and statements and checks that are left out.
"""

import os
import random  # noqa: TID251  a sample of mutants, repeated by its seed
import re
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sightline.domain.value import Value

SOURCE: Final = "contracts/SessionEscrow.vy"
TESTS: Final = tuple(
    f"tests/chain/contracts/test_{name}.py"
    for name in ("escrow_closes", "escrow_opens", "escrow_administration", "thiefs_walk", "escrow_invariants")
)
SWAPS: Final = {
    "<=": "<", "<": "<=", ">=": ">", ">": ">=", "==": "!=", "!=": "==", "+": "-", "-": "+", "*": "//", "//": "*",
    "+=": "-=", "-=": "+=", "and": "or", "or": "and",
}  # fmt: skip
OPERATOR: Final = re.compile(r"(?<= )(" + "|".join(map(re.escape, sorted(SWAPS, key=len, reverse=True))) + ")(?= )")
CONSTANT: Final = re.compile(r"^[A-Z_]+: constant\(uint256\) = [0-9_]+$")
STATEMENT: Final = re.compile(r"^ +(assert |self\.[a-zA-Z]+.* [-+]?= |self\._(pay|pull|require)\w*\(.*\)$|log )")
COMPILE: Final = """
from contracts.build import ARTEFACTS, artefact_text
path = ARTEFACTS / "SessionEscrow.json"
path.write_text(artefact_text("SessionEscrow"), encoding="ascii")
"""


class ContractMutant(Value):
    """One line of the source, and what replaces it."""

    line: int
    before: str
    after: str

    @property
    def name(self) -> str:
        return f"{SOURCE}:{self.line}"

    @property
    def diff(self) -> list[str]:
        return [f"-{' '.join(self.before.split())}", f"+{' '.join(self.after.split())}"]


def make_mutants(source: str) -> Iterator[ContractMutant]:
    """Mutants of the functions and constants, without docstrings, comments and declarations."""
    is_text = is_code = False
    for number, line in enumerate(source.splitlines(), 1):
        is_text ^= line.count('"""') % 2 == 1
        is_code |= line == "@deploy"
        if is_text or '"""' in line or line.lstrip().startswith("#"):
            continue
        if CONSTANT.match(line) and not line.startswith("SESSION_CAP_MAX"):
            yield ContractMutant(number, line, line + " + 1")
        if not is_code or line.startswith(("def ", "@", "    token:", "    mandate:", "    terms:")):
            continue
        code = line.split(' "')[0].split(', "')[0]
        for found in OPERATOR.finditer(code):
            after = line[: found.start()] + SWAPS[found[0]] + line[found.end() :]
            yield ContractMutant(number, line, after)
        if "not self." in code:
            yield ContractMutant(number, line, line.replace("not self.", "self."))
        is_whole = line.count("(") == line.count(")")
        if STATEMENT.match(line) and is_whole:
            yield ContractMutant(number, line, re.sub(r"\S.*", "pass", line))


def run_contracts(tree: Path, options: Namespace, seed: int) -> tuple[int, int, int, list[str]]:
    """Try a sample of the mutants; returns how many there are, were tried and killed, and those that survived.

    Raises:
        SystemExit: If a test fails without a change.
    """
    path = tree / SOURCE
    source = path.read_text(encoding="ascii")
    if _is_killed(tree):
        sys.exit("Tests of the contract fail without a change.")
    mutants = list(make_mutants(source))
    order = random.Random(seed).sample(mutants, len(mutants))  # noqa: S311  a sample
    made, tried, killed, survivors = len(mutants), 0, 0, []
    deadline = time.monotonic() + options.seconds
    for mutant in order:
        if tried >= options.count or time.monotonic() >= deadline:
            break
        if options.only not in mutant.name:
            continue
        lines = source.splitlines(keepends=True)
        lines[mutant.line - 1] = mutant.after + "\n"
        path.write_text("".join(lines), encoding="ascii")
        if (is_killed := _is_killed(tree)) is None:
            made -= 1
            continue
        tried += 1
        killed += is_killed
        if not is_killed:
            survivors.append("\n".join((mutant.name, *(f"    {line}" for line in mutant.diff), "")))
            sys.stdout.write(f"{tried}. {survivors[-1]}")
            sys.stdout.flush()
    path.write_text(source, encoding="ascii")
    return made, tried, killed, survivors


def _is_killed(tree: Path) -> bool | None:
    """Compile the source in the tree and run the tests; None if it does not compile."""
    env = os.environ | {"PYTHONPATH": str(tree)}
    made = subprocess.run([sys.executable, "-c", COMPILE], cwd=tree, env=env, capture_output=True, check=False)  # noqa: S603  own command
    if made.returncode:
        return None
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *TESTS]
    ended = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, check=False)  # noqa: S603  own command
    if ended.returncode not in (0, 1):
        sys.exit(f"The tests of the contract could not be run:\n{ended.stdout[-2_000:]}{ended.stderr[-2_000:]}")
    return ended.returncode == 1
