"""Run pytest in forked processes, each with one changed module of Sightline.

The parent imports every library that the tests need, and nothing of Sightline. A child therefore starts within
milliseconds, imports Sightline itself with the changed module in place of the file, and runs the tests. No file is
changed, so several children can run at the same time.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import json
import multiprocessing
import multiprocessing.connection
import os
import resource
import signal
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any, Final

import coverage
import pytest

FORK: Final = multiprocessing.get_context("fork")
OURS: Final = ("sightline", "tests", "__main__", "mutants", "mutant_run")
MEMORY_BYTES_MAX: Final = 6 * 1024**3
CPU_S_MIN: Final = 20
"""Processor time that each mutant has; beyond it, ten times what the tests need without a change."""
WALL_S_MIN: Final = 90
FAILED: Final = frozenset({1, 2, 4})
"""pytest's exit codes for a failed test, for an error in collection and for one in a conftest.py."""


@dataclass(frozen=True)
class Mutated:
    """A module by name, its file, and its changed source."""

    name: str
    path: Path
    source: str


@dataclass(frozen=True)
class Baseline:
    """The tests of a group without a change: durations, the tests that reach each line, the libraries imported."""

    seconds: dict[str, float]
    reached: dict[str, dict[int, list[str]]]
    libraries: list[str]


class Finder(importlib.abc.MetaPathFinder, importlib.machinery.SourceFileLoader):
    """Loads one module from its changed source."""

    def __init__(self, mutated: Mutated) -> None:
        super().__init__(mutated.name, str(mutated.path))
        self._mutated = mutated

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> Any:
        if fullname != self._mutated.name:
            return None
        return importlib.util.spec_from_file_location(fullname, self._mutated.path, loader=self)

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._mutated.source, str(self._mutated.path), "exec", dont_inherit=True)


class Plugin:
    """Keeps the chosen tests, the fastest first, and records how long each one takes."""

    def __init__(self, chosen: Collection[str] | None, seconds: dict[str, float]) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.recorder: coverage.Coverage | None = None
        self._chosen = chosen
        self._known = seconds

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self._chosen is not None:
            items[:] = [each for each in items if each.nodeid in self._chosen]
        total: dict[str, float] = defaultdict(float)
        for each in items:
            total[str(each.path)] += self._known.get(each.nodeid, 0)
        items.sort(key=lambda each: total[str(each.path)])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        if self.recorder is not None:
            self.recorder.switch_context(item.nodeid)
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration


def _run_pytest(tree: Path, tests: Sequence[str], plugin: Plugin) -> int:
    import hypothesis

    # A failure is enough: do not look for the smallest one.
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("mutants", phases=phases, database=None)
    hypothesis.settings.load_profile("mutants")
    os.chdir(tree)
    options = ["-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
    # The libraries are already imported, so pytest cannot rewrite their assertions.
    return int(pytest.main([*options, "-W", "ignore::pytest.PytestAssertRewriteWarning", *tests], plugins=[plugin]))


def _enter(tree: Path, output: Path) -> None:
    os.setsid()
    log = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    sys.path[:] = [str(tree), *(each for each in sys.path if Path(each or ".").name != "scripts")]
    os.environ["PYTHONPATH"] = str(tree)


def measure(tree: Path, tests: Sequence[str], files: list[Path]) -> Baseline:
    """Run the tests of a group without a change, and note which tests execute which lines.

    Raises:
        SystemExit: If a test fails.
    """
    result = tree / "baseline.json"
    child = FORK.Process(target=_measure, args=(tree, tests, files, result))
    child.start()
    child.join()
    if child.exitcode != 0:
        sys.exit(f"The tests fail without a change:\n{(tree / 'baseline.log').read_text()[-4000:]}")
    content = json.loads(result.read_text())
    reached = {file: {int(line): names for line, names in lines.items()} for file, lines in content["reached"].items()}
    return Baseline(content["seconds"], reached, content["libraries"])


def _measure(tree: Path, tests: Sequence[str], files: list[Path], result: Path) -> None:
    _enter(tree, tree / "baseline.log")
    recorder = coverage.Coverage(data_file=None, config_file=False, include=[str(file) for file in files])
    plugin = Plugin(None, {})
    plugin.recorder = recorder
    recorder.start()
    code = _run_pytest(tree, tests, plugin)
    recorder.stop()
    data = recorder.get_data()
    reached = {
        str(file): {
            line: [name for name in names if name] for line, names in data.contexts_by_lineno(str(file)).items()
        }
        for file in files
    }
    libraries = [name for name in sys.modules if name.split(".")[0] not in OURS]
    content = {"seconds": plugin.seconds, "reached": reached, "libraries": libraries}
    result.write_text(json.dumps(content))
    os._exit(code)


def preload(libraries: list[str]) -> None:
    """Import libraries into this process, which its children then share."""
    for name in libraries:
        with suppress(Exception):
            importlib.import_module(name)


class Child:
    """A process that runs tests on a mutant."""

    def __init__(
        self, tree: Path, tests: Sequence[str], mutated: Mutated, chosen: frozenset[str] | None, baseline: Baseline
    ) -> None:
        self.mutated = mutated
        self.tests = chosen
        needed_s = sum(baseline.seconds.get(each, 0) for each in (chosen or baseline.seconds))
        self._cpu_s = int(CPU_S_MIN + 10 * needed_s)
        self._deadline = time.monotonic() + WALL_S_MIN + 20 * needed_s
        targets = list(tests)
        if chosen is not None:
            files = sorted({each.split("::")[0] for each in chosen})
            targets = [*files, *targets[_count_paths(targets) :]]
        self._process = FORK.Process(target=self._run, args=(tree, targets, baseline.seconds))
        self._process.start()

    def _run(self, tree: Path, targets: list[str], seconds: dict[str, float]) -> None:
        _enter(tree, tree / f"mutant-{os.getpid()}.log")
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (self._cpu_s, self._cpu_s))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
            sys.meta_path.insert(0, Finder(self.mutated))
            code = _run_pytest(tree, targets, Plugin(self.tests, seconds))
        except BaseException:  # noqa: BLE001  a broken module may raise anything at import
            traceback.print_exc()
            code = 2
        (tree / f"mutant-{os.getpid()}.log").unlink()
        os._exit(code)

    @property
    def sentinel(self) -> int:
        return self._process.sentinel

    def is_over(self) -> bool:
        """Whether the process has ended; ends it after its deadline."""
        if self._process.is_alive() and time.monotonic() < self._deadline:
            return False
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid or 0, signal.SIGKILL)
        self._process.join()
        return True

    @property
    def is_killed(self) -> bool:
        """Whether a test failed, or the process was ended by a limit.

        Raises:
            RuntimeError: If pytest ended in another way, for example because it found no test.
        """
        code = self._process.exitcode
        if code is None or code == 0:
            return False
        if code < 0 or code in FAILED:
            return True
        msg = f"pytest ended with {code} for {self.mutated.name}"
        raise RuntimeError(msg)


def _count_paths(tests: Sequence[str]) -> int:
    return next((number for number, each in enumerate(tests) if each.startswith("-")), len(tests))


def wait_for_any(children: Collection[Child]) -> Child:
    """Wait until one of the processes has ended, and return it."""
    while True:
        for child in children:
            if child.is_over():
                return child
        multiprocessing.connection.wait([child.sentinel for child in children], timeout=1)
