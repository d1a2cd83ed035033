"""Which tests start a server: `make test-servers` runs them, `make test` all others and those of SMOKE.

A test is of the group `servers` if it, a fixture of it, or a function or class of `tests` that one of them names, has
the command line of a server. Nobody has to mark a test; a test that starts a server outside of the group fails.
"""

import sys
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType
from typing import Any, Final

import pytest

COMMANDS: Final = frozenset({"serve", "dev", "demo"})
"""Commands of `sightline` that start a server."""
SMOKE: Final = {
    "start: a stopped server leaves nothing behind, and a restart has all data": (
        "tests/bootstrap/test_server_process.py::test_sigterm_stops_everything_it_started_and_a_restart_has_all_data"
    ),
    "kill: a LIVE session goes on after kill -9, and is settled": (
        "tests/e2e/test_kill.py::test_a_live_session_goes_on_after_kill_9_and_is_settled"
    ),
    "two servers: a device at one films for a consumer at the other": (
        "tests/cluster/test_video.py::test_a_device_at_one_server_films_for_a_consumer_at_another_who_is_charged"
    ),
    "video: the demo films, serves frames and pays": (
        "tests/e2e/test_demo.py::test_demo_does_the_main_job_and_leaves_a_console_that_knows_its_consumer"
    ),
}
"""The claims about running servers that `make test` proves too, each with its test."""
LONG: Final = (
    "tests/http/test_schemathesis.py",
    "tests/video/test_backends.py",
    "tests/http/test_access_matrix.py",
    "tests/video/pictures/test_shapes.py",
    "tests/video/test_live.py",
    "tests/sim/test_planted_bugs.py",
    "tests/video/test_tcp.py",
    "tests/video/test_signalling.py",
    "tests/video/test_loss.py",
    "tests/chain/contracts/test_escrow_planted_bugs.py",
    "tests/http/server/test_wire_fuzz.py",
    "tests/storage/test_sqlstates.py",
    "tests/video/pictures/test_formats.py",
    "tests/video/test_many_watch.py",
    "tests/chain/test_embedded_chain.py",
    "tests/storage/test_store_adversity.py",
    "tests/cluster/test_demo.py",
    "tests/cluster/test_cluster.py",
    "tests/client/agents/test_mcp.py",
    "tests/e2e/test_durability.py",
    "tests/cluster/test_versions.py",
    "tests/cluster/test_video.py",
    "tests/e2e/test_crash.py",
    "tests/e2e/test_fencing.py",
    "tests/e2e/test_data_directory.py",
    "tests/bootstrap/test_start_failures.py",
    "tests/bootstrap/test_workers.py",
    "tests/bootstrap/test_failover.py",
)
"""Files that take longest. They run first, in this order, so that no process works alone at the end."""
_FIRST: Final = {file: place for place, file in enumerate(LONG)}


def rest_at_night(values: Iterable[Any], *, gate: int) -> list[Any]:
    """Return the values of a parameter: the first `gate` of them run in the gate, the others in `make nightly`."""
    assert gate >= 1
    night = [pytest.mark.nightly("the same test, with the first of its values")]
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=[] if place < gate else night)
        for place, value in enumerate(values)
    ]


def pytest_configure(config: pytest.Config) -> None:
    running = _Running()
    config.pluginmanager.register(running)
    sys.addaudithook(running.check)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    smoke = frozenset(SMOKE.values())
    known: dict[Any, bool] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.nodeid not in smoke and _starts_server(item, known):
            item.add_marker(pytest.mark.servers)
    items.sort(key=lambda item: _FIRST.get(item.nodeid.partition("::")[0], len(LONG)))


def _starts_server(item: pytest.Function, known: dict[Any, bool]) -> bool:
    fixtures = item._fixtureinfo.name2fixturedefs.values()
    functions = [item.function, *(definition.func for definitions in fixtures for definition in definitions)]
    return any(names_server(function, known) for function in functions)


def names_server(value: Any, known: dict[Any, bool]) -> bool:
    """Say whether a function or class of the tests has, or names one that has, the command line of a server."""
    value = getattr(value, "__wrapped__", value)
    if not isinstance(value, FunctionType | type) or not value.__module__.startswith("tests."):
        return False
    if value not in known:
        known[value] = False  # ends circles
        known[value] = any(
            not COMMANDS.isdisjoint(_strings_of(code))
            or any(names_server(named, known) for named in _named(code, scope))
            for code, scope in _codes_of(value)
        )
    return known[value]


def _codes_of(value: FunctionType | type) -> Iterator[tuple[CodeType, dict[str, Any]]]:
    """Yield the code of a function, or of each function of a class, with the names that it can use."""
    for member in [value] if isinstance(value, FunctionType) else tuple(vars(value).values()):
        function = getattr(member, "__wrapped__", getattr(member, "__func__", member))
        if isinstance(function, FunctionType):
            yield function.__code__, function.__globals__


def _named(code: CodeType, scope: dict[str, Any]) -> Iterator[Any]:
    yield from (scope[name] for name in code.co_names if name in scope)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _named(constant, scope)


def _strings_of(code: CodeType) -> Iterator[str]:
    for constant in code.co_consts:
        match constant:
            case str():
                yield constant
            case tuple():
                yield from (word for word in constant if isinstance(word, str))
            case CodeType():
                yield from _strings_of(constant)


class _Running:
    """Refuses a server's start by a test that is not in the group."""

    def __init__(self) -> None:
        self._refuses_servers = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        is_allowed = any(item.get_closest_marker(mark) for mark in ("servers", "interop"))
        self._refuses_servers = not is_allowed and item.nodeid not in SMOKE.values()
        try:
            return (yield)
        finally:
            self._refuses_servers = False

    def check(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "subprocess.Popen" or not self._refuses_servers or isinstance(arguments[1], str | bytes):
            return
        words = [str(word) for word in arguments[1]]
        if not COMMANDS.isdisjoint(words) and any("sightline" in word for word in words):
            raise AssertionError("This test starts a server. tests/groups.py does not see it: name what starts it.")
