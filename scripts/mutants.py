"""Plant bugs in the domain, the chain package, the ledgers and the escrow contract, and list those that no test sees.

Usage: python scripts/mutants.py [--group NAME] [--count 300] [--seconds 3600] [--seed 1 ...] [--only TEXT]
       [--tests PATH ...]

Cosmic Ray makes the mutants. A sample of `--count` mutants is taken at random from all mutants of the group; the seed
repeats it, and each further seed takes another one. Each mutant runs in a forked process (scripts/mutant_run.py)
against the tests that execute the changed statement, or against all tests of the group if it runs at import, the
fastest first. docs/ops/mutants.md says what is left out, and holds the results. scripts/equivalent_mutants.toml lists
the mutants that change no behaviour, each with its reason.
"""

import argparse
import ast
import difflib
import math
import os
import random  # noqa: TID251  a sample of mutants, repeated by its seed
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import cosmic_ray.plugins
from contract_mutants import run_contracts
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from mutant_run import Baseline, Host, Mutated, measure, preload, run_imported

from sightline.domain.value import Value

ROOT: Final = Path(__file__).resolve().parent.parent
Place: TypeAlias = tuple[int, int]


class Group(Value):
    """Modules to change, and the tests that should notice."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]
    choice: tuple[str, ...] = ()
    """Options of pytest that leave some of the tests out."""
    is_on_postgres: bool = False


CHAIN_TESTS: Final = (
    "tests/chain/relayer", "tests/chain/watcher",
    *(
        f"tests/chain/escrow/test_{name}.py"
        for name in ("escrow_relayer", "extensions", "meter", "permits", "permit_rules", "verdicts")
    ),
    "tests/chain/contracts/test_journal_of_escrow.py", "tests/chain/test_several_endpoints.py",
    "tests/chain/test_refunds.py",
)  # fmt: skip
LEDGER_TESTS: Final = ("tests/contract/ledger",)
STORE_TESTS: Final = tuple(f"tests/contract/test_{name}.py" for name in ("store_reads", "store_writes", "webhooks"))
SESSION_TESTS: Final = (
    "tests/domain/session",
    *(
        f"tests/domain/test_{name}.py"
        for name in ("copies", "coverage_map", "machine_tables", "operator_life", "records")
    ),
)
RULE_TESTS: Final = (
    "tests/domain/session/test_defaults.py", "tests/domain/session/test_live_enforcement.py",
    "tests/domain/session/test_session_life.py",
    *(
        f"tests/domain/test_{name}.py"
        for name in (
            "charged_time", "copies", "geofence", "meter_laws", "operator_life", "placement", "pricing_and_money",
            "records", "webhook_rules",
        )
    ),
    "tests/identity/test_access_rules.py", "tests/identity/test_consistency_tokens.py",
    "tests/http/money/test_vectors.py",
)  # fmt: skip
GROUPS: Final[dict[str, Group]] = {
    "session": Group(("sightline/domain/session", "sightline/domain/operator"), SESSION_TESTS),
    "domain": Group(("sightline/domain/*.py",), RULE_TESTS),
    "chain": Group(
        (
            "sightline/chain/relayer",
            "sightline/chain/watcher",
            *(f"sightline/chain/{name}.py" for name in ("fees", "gas_key", "permits", "signing_process")),
        ),
        CHAIN_TESTS,
        ("-m", "not interop"),
        is_on_postgres=True,
    ),
    "ledgers": Group(
        ("simulation/memory/ledger.py", "simulation/memory/ledger_outbox.py"),
        (*LEDGER_TESTS, *STORE_TESTS),
        ("-k", "not postgres"),
    ),
    "postgres": Group(
        ("sightline/storage/postgres/money/ledger.py", "sightline/storage/postgres/money/settlements.py"),
        LEDGER_TESTS,
        ("-k", "postgres"),
        is_on_postgres=True,
    ),
}
CONTRACTS: Final = "contracts"
"""The group of the Vyper source, which scripts/contract_mutants.py changes."""
NOT_CHANGES: Final = (
    "core/RemoveDecorator",
    "core/ReplaceComparisonOperator_Is_Eq",
    "core/ReplaceComparisonOperator_IsNot_NotEq",
)
"""Operators that change no behaviour here: decorators are dataclass options and `final`, and `is` compares enums."""


class Mutant(Value):
    """One change of one module. `lines` are the lines of the changed statement; None if it runs at import."""

    module: str
    operator: str
    occurrence: int
    line: int
    lines: tuple[int, ...] | None

    @property
    def name(self) -> str:
        return f"{self.module}:{self.line} {self.operator.removeprefix('core/')}"


@dataclass
class Score:
    """The results of the mutants of one group."""

    made: int
    tried: int = 0
    killed: int = 0
    equivalent: int = 0
    survivors: list[str] = field(default_factory=list)

    def row(self, name: str, seed: int, seconds: float) -> str:
        judged = self.tried - self.equivalent
        share = f"{100 * self.killed / judged:.1f} %" if judged else "-"
        low, high = interval(self.killed, judged)
        cells = (
            name, self.made, self.tried, self.killed, self.equivalent, len(self.survivors), share,
            f"{100 * low:.0f} to {100 * high:.0f} %", seed, round(seconds),
        )  # fmt: skip
        return f"| {' | '.join(map(str, cells))} |\n"


HEAD: Final = (
    "| group | mutants | tried | killed | equivalent | survived | killed of those not equivalent | 95 % interval "
    "| seed | seconds |\n"
)
SLOW_S: Final = 10.0
"""Tests that take longer run only if no faster one executes the statement."""


def interval(killed: int, judged: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a share (Wilson)."""
    if not judged:
        return 0.0, 1.0
    z = 1.96
    middle = killed + z * z / 2
    spread = z * math.sqrt(killed * (judged - killed) / judged + z * z / 4)
    return (middle - spread) / (judged + z * z), (middle + spread) / (judged + z * z)


def copy_tree(target: Path) -> None:
    """Copy the files that git knows, and new ones that it does not ignore."""
    git = shutil.which("git") or "git"
    command = [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout  # noqa: S603  own files
    for name in listed.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def find_modules(group: Group, tree: Path) -> Iterator[Path]:
    """Paths of the modules of a group, relative to the tree."""
    for pattern in group.modules:
        found = (tree / pattern).rglob("*.py") if (tree / pattern).is_dir() else tree.glob(pattern)
        yield from sorted(path.relative_to(tree) for path in found)


def make_mutants(module: Path, tree: Path) -> Iterator[Mutant]:
    """Mutants of one module, without those whose change is a matter of types or decorators."""
    source = (tree / module).read_text()
    statements = Statements(source)
    nodes = get_ast(source)
    for name in sorted(cosmic_ray.plugins.operator_names()):
        operator_class = cosmic_ray.plugins.get_operator(name)
        if operator_class.arguments() or name.startswith(NOT_CHANGES):
            continue
        operator = operator_class()
        places = ((node, start) for node in ast_nodes(nodes) for start, _ in operator.mutation_positions(node))
        for occurrence, (node, start) in enumerate(places):
            # The `*` before keyword-only parameters looks like an operator.
            if node.parent.type != "parameters" and not statements.is_type(start):
                yield Mutant(str(module), name, occurrence, start[0], statements.lines_of(start))


class Statements:
    """Where the statements of a module are, and its annotations, decorators and arguments without effect."""

    def __init__(self, source: str) -> None:
        self._statements: list[tuple[Place, Place, tuple[int, ...] | None]] = []
        self._types: list[tuple[Place, Place]] = []
        self._visit(ast.parse(source), is_in_function=False)

    def _visit(self, node: ast.AST, *, is_in_function: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                body = getattr(child, "body", None)
                last = max(child.lineno, body[0].lineno - 1) if body else child.end_lineno
                lines = tuple(range(child.lineno, (last or child.lineno) + 1)) if is_in_function else None
                self._statements.append((*self._span(child), lines))
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self._types += map(self._span, child.decorator_list)
            types = [getattr(child, name, None) for name in ("annotation", "returns")]
            if isinstance(child, ast.AnnAssign) and ast.unparse(child.annotation) == "TypeAlias":
                types.append(child.value)
            if isinstance(child, ast.Call):
                types += _without_effect(child)
            self._types += [self._span(each) for each in types if each is not None]
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            self._visit(child, is_in_function=is_in_function or is_function)

    @staticmethod
    def _span(node: ast.AST) -> tuple[Place, Place]:
        return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]  # every node with a place

    def is_type(self, place: Place) -> bool:
        return any(start <= place < end for start, end in self._types)

    def lines_of(self, place: Place) -> tuple[int, ...] | None:
        """Lines of the innermost statement that holds the place; of a compound statement, its head."""
        holding = [(start, lines) for start, end, lines in self._statements if start <= place < end]
        return max(holding, key=lambda each: each[0])[1] if holding else None


def _without_effect(call: ast.Call) -> list[ast.expr]:
    """Arguments that change no result: those of log calls, and `strict`, which guards against our own bugs."""
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and call.func.value.id == "log":
        return [*call.args, *(each.value for each in call.keywords)]
    return [each.value for each in call.keywords if each.arg == "strict"]


def apply(mutant: Mutant, tree: Path) -> tuple[Mutated, list[str]] | None:
    """The changed module and its changed lines; None if the code means the same or does not compile."""
    path = tree / mutant.module
    source = path.read_text()
    changed = mutate_code(source, cosmic_ray.plugins.get_operator(mutant.operator)(), mutant.occurrence)
    try:
        if changed is None or ast.dump(ast.parse(changed)) == ast.dump(ast.parse(source)):
            return None
    except SyntaxError:
        return None
    pair = difflib.unified_diff(source.splitlines(), changed.splitlines(), lineterm="", n=0)
    diff = [line[0] + " ".join(line[1:].split()) for line in pair if line[:3] not in ("---", "+++") and line[0] in "+-"]
    return Mutated(module_name(Path(mutant.module)), path, changed), diff


def load_equivalents() -> dict[tuple[str, tuple[str, ...]], str]:
    """Reasons by module and changed lines."""
    entries = tomllib.loads((ROOT / "scripts" / "equivalent_mutants.toml").read_text())["mutant"]
    return {(each["module"], tuple(each["diff"])): each["reason"] for each in entries}


def run_group(name: str, tree: Path, options: argparse.Namespace) -> Iterator[tuple[int, Score, float]]:
    """Run the samples of a group of Python modules. They share the run without a change."""
    group, started = GROUPS[name], time.monotonic()
    modules, tests = list(find_modules(group, tree)), (*(options.tests or group.tests), *group.choice)
    baseline = measure(tree, tests, [tree / module for module in modules])
    preload(baseline.libraries)
    host = Host(tree, tests, baseline)
    require_survival(modules[0], tree, baseline, host)
    mutants = [mutant for module in modules for mutant in make_mutants(module, tree)]
    for seed in options.seed:
        order = random.Random(seed).sample(mutants, len(mutants))  # noqa: S311  a sample
        score = run_sample(order, tree, baseline, host, options)
        yield seed, score, time.monotonic() - started
        started = time.monotonic()
    host.close()


def run_samples(name: str, tree: Path, options: argparse.Namespace) -> Iterator[tuple[int, Score, float]]:
    """Run a sample of one group's mutants for each seed; yields the seed, the score and the seconds that it took."""
    if name in GROUPS:
        with serve_postgres(tree) if GROUPS[name].is_on_postgres else nullcontext():
            yield from run_group(name, tree, options)
        return
    for seed in options.seed:
        started = time.monotonic()
        made, tried, killed, survivors = run_contracts(tree, options, seed)
        yield seed, Score(made, tried, killed, survivors=survivors), time.monotonic() - started


def run_sample(order: list[Mutant], tree: Path, baseline: Baseline, host: Host, options: argparse.Namespace) -> Score:
    """Run mutants in this order until the sample is complete or its time is over."""
    equivalents = load_equivalents()
    score, deadline = Score(made=len(order)), time.monotonic() + options.seconds
    for mutant in order:
        if score.tried >= options.count or time.monotonic() >= deadline:
            break
        if options.only not in mutant.name:
            continue
        if (found := apply(mutant, tree)) is None:
            score.made -= 1
            continue
        mutated, diff = found
        score.tried += 1
        if (mutant.module, tuple(diff)) in equivalents:
            score.equivalent += 1
            continue
        chosen = select(mutant, tree, baseline)
        is_killed = None if mutant.lines is None or not chosen else host.is_killed(mutated, chosen)
        if is_killed is None:
            is_killed = bool(chosen) and run_imported(tree, mutated, chosen, baseline)
        score.killed += is_killed
        if not is_killed:
            text = "\n".join(f"    {line}" for line in diff)
            score.survivors.append(f"{mutant.name}\n{text}\n")
            sys.stdout.write(f"{score.tried}. {score.survivors[-1]}")
            sys.stdout.flush()
    return score


def require_survival(module: Path, tree: Path, baseline: Baseline, host: Host) -> None:
    """Run some tests without a change in both kinds of process: a failure there would count as a kill.

    Raises:
        SystemExit: If a test fails.
    """
    fastest = sorted(baseline.seconds, key=lambda test: baseline.seconds[test])[:100]
    unchanged = Mutated(module_name(module), tree / module, (tree / module).read_text())
    if host.is_killed(None, fastest) is not False or run_imported(tree, unchanged, fastest, baseline):
        sys.exit("Tests fail on an unchanged module in the process that runs the mutants.")


def module_name(module: Path) -> str:
    """Return the dotted name of a module by its path in the tree."""
    return str(module).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def select(mutant: Mutant, tree: Path, baseline: Baseline) -> list[str]:
    """Tests that execute the changed statement, or all tests, those first that reach the module; the fastest first."""
    reached = baseline.reached.get(str(tree / mutant.module), {})
    lines = reached if mutant.lines is None else mutant.lines
    near = {test for line in lines for test in reached.get(line, ())}
    found = near if mutant.lines is not None else set(baseline.seconds)
    fast = [test for test in found if baseline.seconds[test] <= SLOW_S]
    return sorted(fast or found, key=lambda test: (test not in near, baseline.seconds[test], test))


@contextmanager
def serve_postgres(tree: Path) -> Iterator[None]:
    """Run one Postgres with a migrated database for all mutants of a group, in memory where that is possible."""
    code = (
        "import sys, tests.conftest as own\n"
        "with own.run_postgres() as dsn, own.create_template(dsn) as name:\n"
        "    print(dsn, name, flush=True)\n"
        "    sys.stdin.read()"
    )
    command = [sys.executable, "-c", code]
    memory = {"TMPDIR": "/dev/shm"} if os.access("/dev/shm", os.W_OK) else {}  # noqa: S108  a directory in memory
    env = os.environ | memory
    with subprocess.Popen(  # noqa: S603  own command
        command, cwd=tree, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        # The migrations write log lines to the same output.
        lines = process.stdout or ()
        found = next((line for line in lines if line.startswith("postgresql://")), "")
        dsn, _, template = found.strip().partition(" ")
        os.environ |= {"SIGHTLINE_TEST_DSN": dsn, "SIGHTLINE_TEST_TEMPLATE": template}
        try:
            yield
        finally:
            del os.environ["SIGHTLINE_TEST_DSN"], os.environ["SIGHTLINE_TEST_TEMPLATE"]
            process.communicate()


def main() -> int:
    """Run the groups one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--group", choices=sorted([*GROUPS, CONTRACTS]), help="one group; default: all of them")
    parser.add_argument("--count", type=int, default=300, help="mutants to try in each group")
    parser.add_argument("--seconds", type=float, default=3600, help="time for each group")
    parser.add_argument("--seed", type=int, nargs="+", default=[1], help="a sample for each seed")
    parser.add_argument("--only", default="", help="only mutants whose `path:line operator` contains this text")
    parser.add_argument("--tests", nargs="+", default=(), help="these tests instead of the group's")
    options = parser.parse_args()
    rows, is_clean = [HEAD, f"|{'---|' * HEAD.count(' | ')}---|\n"], True
    with tempfile.TemporaryDirectory(prefix="sightline-mutants-") as directory:
        tree = Path(directory)
        copy_tree(tree)
        for name in [options.group] if options.group else [*GROUPS, CONTRACTS]:
            sys.stdout.write(f"\n{name}\n")
            for seed, score, seconds in run_samples(name, tree, options):
                rows.append(score.row(name, seed, seconds))
                sys.stdout.write(rows[-1])
                sys.stdout.flush()
                is_clean &= not score.survivors
    sys.stdout.write("\n" + "".join(rows))
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
