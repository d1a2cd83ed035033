"""Operators' commands that name a session or an actor: what is no id is refused, and nothing is sent."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from sightline.cli.operations import NotRunningError, ask, revive_actor, write_off_settlement
from sightline.config import Settings, load_settings
from sightline.system.server_address_file import write_server_addresses

HOSTILE = ("../nodes", "..", "", "a/../b", "a?b=c", "a#b", "a%2Fb", "a\\b", "a\n", "x" * 129)


class Recorder(BaseHTTPRequestHandler):
    """Answers every call with one server, and remembers the paths."""

    asked: list[str]
    url: str

    def _answer(self) -> None:
        self.asked.append(f"{self.command} {self.path}")
        item = f'{{"name":"one","incarnation":"i","url":"{self.url}","valid":true}}'
        body = f'{{"data":{{"items":[{item}]}}}}'.encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = _answer  # noqa: N815  names of the standard library

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[tuple[Settings, list[str]]]:
    server = HTTPServer(("127.0.0.1", 0), Recorder)
    Recorder.asked, Recorder.url = [], f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    write_server_addresses(tmp_path, url=Recorder.url, internal_url=Recorder.url)
    yield Settings(data_dir=tmp_path), Recorder.asked
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("name", HOSTILE)
def test_write_off_sends_nothing_for_what_is_no_id(asked: tuple[Settings, list[str]], name: str) -> None:
    settings, calls = asked
    assert write_off_settlement(settings, name, "lost") == 2
    assert calls == []


@pytest.mark.parametrize("name", ["session", *(f"session/{each}" for each in HOSTILE), "../session/a"])
def test_revive_sends_nothing_for_what_is_no_actor(asked: tuple[Settings, list[str]], name: str) -> None:
    settings, calls = asked
    assert revive_actor(settings, name, node=None) == 2
    assert calls == []


def test_an_id_is_sent_as_it_is(asked: tuple[Settings, list[str]]) -> None:
    settings, calls = asked
    name = "33333333-3333-4333-8333-333333333333"
    assert write_off_settlement(settings, name, "a reason & more") == 0
    assert revive_actor(settings, f"session/{name}", node=None) == 0
    assert [call for call in calls if call.startswith("POST")] == [
        f"POST /internal/settlements/{name}/write-off?reason=a+reason+%26+more",
        f"POST /internal/actors/session/{name}/revive",
    ]


def why_not(settings: Settings) -> str:
    with pytest.raises(NotRunningError) as refused:
        ask(settings, "GET", "/internal/nodes")
    return str(refused.value)


@pytest.fixture
def nothing_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory in which no variable names another data directory."""
    monkeypatch.delenv("SIGHTLINE_DATA_DIR", raising=False)
    monkeypatch.delenv("SIGHTLINE_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_server_that_does_not_run_is_started_on_the_directory_of_the_command(nothing_named: Path) -> None:
    place = nothing_named / "a b"
    start = f"`sightline serve --data-dir '{place}'`"
    assert f"Start one with {start}" in why_not(Settings(data_dir=place))
    place.mkdir()
    write_server_addresses(place, url="http://127.0.0.1:1", internal_url="http://127.0.0.1:1")
    assert f"No server answers at http://127.0.0.1:1. Start it with {start}" in why_not(Settings(data_dir=place))


def test_the_command_names_the_settings_file_of_its_own_command_line_and_no_default_directory(
    nothing_named: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = nothing_named / "sightline-data"
    assert "`sightline serve`" in why_not(Settings())
    (nothing_named / "my.toml").write_text('data_dir = "data"')
    named = load_settings({}, config_file=Path("my.toml")).settings
    start = f"`sightline serve --config {nothing_named / 'my.toml'} --data-dir {nothing_named / 'data'}`"
    assert start in why_not(named)
    monkeypatch.setenv("SIGHTLINE_DATA_DIR", "/elsewhere")
    assert f"`sightline serve --data-dir {place}`" in why_not(Settings(data_dir=place))
