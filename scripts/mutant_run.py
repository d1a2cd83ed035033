"""Run tests on changed modules of Sightline, each in a forked process.

A change inside a function is made in a process that has collected the tests once: a fork of it replaces the code of
the function and runs the chosen tests. A change that takes effect at import needs a new process. It starts within
milliseconds as well, because the parent has imported every library that the tests need, and nothing of Sightline.
No file is changed.
"""

import gc
import importlib.abc
import importlib.machinery
import importlib.util
import json
import math
import multiprocessing
import os
import resource
import signal
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import zip_longest
from multiprocessing.connection import Connection
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final, TypeAlias

import coverage
import pytest

from sightline.domain.value import Value

FORK: Final = multiprocessing.get_context("fork")
OURS: Final = ("sightline", "tests", "__main__", "mutants", "mutant_run")
MEMORY_BYTES_MAX: Final = 6 * 1024**3
IMPORT_S_MAX: Final = 120
"""Time for the imports and the collection of a process."""
TEST_S_MIN: Final = 10
"""Time that each test has; beyond it, ten times what it takes without a change."""
FAILED: Final = frozenset({1, 2, 4})
"""pytest's exit codes for a failed test, for an error in collection and for one in a conftest.py."""
NO_TESTS: Final = 5
"""pytest's exit code when the change has renamed every chosen test by its parameters."""
FAULTY: Final = 99
"""Exit code of a process that could not run the tests."""
Functions: TypeAlias = dict[tuple[str, int], CodeType]
"""Code by qualified name and first line."""


class Mutated(Value):
    """A module by name, its file, and its changed source."""

    name: str
    path: Path
    source: str


class Baseline(Value):
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
    """Runs the chosen tests in their order, each within limits of time, and records how long each one takes."""

    def __init__(self, chosen: Sequence[str] | None = None, known_s: dict[str, float] | None = None) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.recorder: coverage.Coverage | None = None
        self.requests: Connection | None = None
        """Mutants to run, for a process that stays."""
        self._chosen = chosen
        self._known_s = known_s

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self._chosen is not None:
            found = {each.nodeid: each for each in items}
            items[:] = [found[name] for name in self._chosen if name in found]

    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if self.requests is None:
            return None
        items = {each.nodeid: each for each in session.items}
        while (request := self.requests.recv()) is not None:
            mutated, chosen = request
            run = partial(_run_changed, session, [items[name] for name in chosen], mutated)
            self.requests.send(Child(run, broken=FAULTY).outcome())
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        if self.recorder is not None:
            self.recorder.switch_context(item.nodeid)
        if self._known_s is not None:
            _limit_time(TEST_S_MIN + 10 * self._known_s.get(item.nodeid, 0))
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration


def _limit_time(seconds: float) -> None:
    """End this process when it uses so much processor time, or has waited twice as long."""
    cpu_s = math.ceil(time.process_time() + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, resource.RLIM_INFINITY))
    signal.setitimer(signal.ITIMER_REAL, 2 * seconds)


def _run_pytest(tree: Path, tests: Sequence[str], plugin: Plugin) -> int:
    import hypothesis

    # A failure is enough: do not look for the smallest one.
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("mutants", phases=phases, database=None)
    hypothesis.settings.load_profile("mutants")
    os.chdir(tree)
    sys.path[:] = [str(tree), *(each for each in sys.path if Path(each or ".").name != "scripts")]
    os.environ["PYTHONPATH"] = str(tree)
    options = ["-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
    options += [f"--basetemp={tree / 'temporary'}"]
    # The libraries are already imported, so pytest cannot rewrite their assertions.
    return int(pytest.main([*options, "-W", "ignore::pytest.PytestAssertRewriteWarning", *tests], plugins=[plugin]))


def _redirect(output: Path) -> None:
    log = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)


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
    _redirect(tree / "baseline.log")
    recorder = coverage.Coverage(data_file=None, config_file=False, include=[str(file) for file in files])
    plugin = Plugin()
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
        # Some names are attributes that a library entered in sys.modules, and no modules that can be imported.
        with suppress(ImportError):
            importlib.import_module(name)


class Child:
    """A process that runs tests on one mutant."""

    def __init__(self, run: Callable[[], int], *, broken: int) -> None:
        """`broken` is the exit code of an exception that no test has caught."""
        self._process = FORK.Process(target=self._run, args=(run, broken))
        self._process.start()

    @staticmethod
    def _run(run: Callable[[], int], broken: int) -> None:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
        _limit_time(IMPORT_S_MAX)
        try:
            code = run()
        except BaseException:  # noqa: BLE001  a broken module may raise anything at import
            traceback.print_exc()
            code = broken
        os._exit(code)

    def outcome(self) -> bool | None:
        """Wait for the process; return whether a test failed or a limit ended it, or None if it could not run them."""
        self._process.join()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid or 0, signal.SIGKILL)  # what the tests have started
        code = self._process.exitcode or 0
        return None if code > 0 and code not in (*FAILED, NO_TESTS) else code not in (0, NO_TESTS)


def run_imported(tree: Path, mutated: Mutated, chosen: Sequence[str], baseline: Baseline) -> bool:
    """Run tests on a module that is changed before it is imported; return whether the mutant was killed.

    Raises:
        RuntimeError: If pytest could not run them, for example because it found no test.
    """

    def run() -> int:
        _redirect(tree / "mutant.log")
        sys.meta_path.insert(0, Finder(mutated))
        files = sorted({each.split("::")[0] for each in chosen})
        return _run_pytest(tree, files, Plugin(chosen, baseline.seconds))

    killed = Child(run, broken=min(FAILED)).outcome()
    if killed is None:
        msg = f"the tests of {mutated.name} could not be run: {(tree / 'mutant.log').read_text()[-2000:]}"
        raise RuntimeError(msg)
    return killed


class Host:
    """A process that has collected the tests of a group, and runs them on changed functions, one mutant at a time."""

    def __init__(self, tree: Path, tests: Sequence[str], baseline: Baseline) -> None:
        self._requests, theirs = FORK.Pipe()
        self._process = FORK.Process(target=self._serve, args=(tree, tests, baseline, theirs))
        self._process.start()
        theirs.close()

    @staticmethod
    def _serve(tree: Path, tests: Sequence[str], baseline: Baseline, requests: Connection) -> None:
        _redirect(tree / "host.log")
        plugin = Plugin(known_s=baseline.seconds)
        plugin.requests = requests
        _run_pytest(tree, tests, plugin)

    def is_killed(self, mutated: Mutated | None, chosen: Sequence[str]) -> bool | None:
        """Run tests on a changed function, or without a change; return whether a test failed.

        None: the code of the function cannot be replaced, for example because it has other variables of its closure.
        """
        self._requests.send((mutated, chosen))
        outcome: bool | None = self._requests.recv()
        return outcome

    def close(self) -> None:
        """End the process."""
        self._requests.send(None)
        self._process.join()


def _run_changed(session: pytest.Session, items: Sequence[pytest.Item], mutated: Mutated | None) -> int:
    if mutated is not None:
        _replace_code(mutated)
    for item, following in zip_longest(items, items[1:]):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return 1
    return 0


def _replace_code(mutated: Mutated) -> None:
    """Give the functions of a loaded module their changed code.

    Raises:
        LookupError: If no function is changed.
    """
    before, after = (
        _functions(compile(source, str(mutated.path), "exec", dont_inherit=True))
        for source in (mutated.path.read_text(), mutated.source)
    )
    changed = {place: code for place, code in after.items() if code != before.get(place)}
    functions = [
        each
        for each in gc.get_objects()
        if isinstance(each, FunctionType)
        and each.__code__.co_filename == str(mutated.path)
        and (each.__code__.co_qualname, each.__code__.co_firstlineno) in changed
    ]
    if not functions:
        msg = f"no function of {mutated.name} is changed"
        raise LookupError(msg)
    for function in functions:
        function.__code__ = changed[function.__code__.co_qualname, function.__code__.co_firstlineno]


def _functions(code: CodeType) -> Functions:
    found: Functions = {}
    for each in code.co_consts:
        if isinstance(each, CodeType):
            found[each.co_qualname, each.co_firstlineno] = each
            found |= _functions(each)
    return found
