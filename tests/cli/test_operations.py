"""Operators' commands that name a session or an actor: what is no id is refused, and nothing is sent."""

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sightline.cli.operations import (
    RECONCILIATION,
    UNKNOWN_PAYMENTS,
    NotRunningError,
    ask,
    print_actors,
    print_nodes,
    print_settlements,
    reconcile_payments,
    revive_actor,
    write_off_settlement,
)
from sightline.config import Settings, load_settings
from sightline.system.ids import SystemIds
from sightline.system.secrets import load_secrets
from sightline.system.server_address_file import write_server_addresses
from tests.cli.accounts import as_another_account

HOSTILE = ("../nodes", "..", "", "a/../b", "a?b=c", "a#b", "a%2Fb", "a\\b", "a\n", "x" * 129)


class Recorder(BaseHTTPRequestHandler):
    """Answers every call with one server, or what a test wants at a path, and remembers the paths."""

    asked: list[str]
    url: str
    answers: ClassVar[dict[str, Any]] = {}
    refusal: ClassVar[dict[str, Any] | None] = None

    def _answer(self) -> None:
        self.asked.append(f"{self.command} {self.path}")
        one = {"items": [{"name": "one", "incarnation": "i", "url": self.url, "valid": True}]}
        body = json.dumps(self.refusal or {"data": self.answers.get(self.path, one)}).encode()
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
    Recorder.answers.clear()
    Recorder.refusal = None
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("name", ["server.json", "secrets.json"])
def test_a_file_that_this_account_cannot_read_is_named_with_what_to_do(
    asked: tuple[Settings, list[str]], name: str
) -> None:
    settings, _ = asked
    load_secrets(settings.secrets_path, SystemIds())
    Recorder.refusal = {"code": "NOT_AUTHENTICATED", "message": "no", "detail": "internal:token"}
    for path in (settings.data_dir, *settings.data_dir.parents):
        with suppress(PermissionError):
            path.chmod(path.stat().st_mode | 0o011)
    # Under a umask of 077 every file of a server is private: only the named one is here.
    (settings.data_dir / "server.json").chmod(0o644)
    with as_another_account(settings.data_dir / name), pytest.raises(NotRunningError) as said:
        ask(settings, "GET", "/internal/nodes")
    assert str(said.value) == f"{settings.data_dir / name} cannot be read. Run this as the account of the server."


@pytest.mark.parametrize("is_written", [True, False])
def test_a_token_that_the_server_refuses_names_the_secrets_file_too(
    asked: tuple[Settings, list[str]], is_written: bool
) -> None:
    settings, _ = asked
    if is_written:
        load_secrets(settings.secrets_path, SystemIds())
    Recorder.refusal = {"code": "NOT_AUTHENTICATED", "message": "no", "detail": "internal:token"}
    with pytest.raises(NotRunningError, match="another SIGHTLINE_INTERNAL_TOKEN or SIGHTLINE_SECRETS_FILE than is set"):
        ask(settings, "GET", "/internal/nodes")


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


def test_amounts_are_usdc_for_people_and_micro_usdc_in_json(
    asked: tuple[Settings, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    settings, _ = asked
    amount = {"amountMicroUsdc": "7875"}
    settlement = {"sessionId": "s", "state": "WAITING", "tries": 1, "retryAt": None, "txHash": None, "reason": None}
    Recorder.answers["/internal/settlements"] = {"items": [settlement | amount]}
    assert print_settlements(settings, as_json=False) == 0
    titles, row = capsys.readouterr().out.splitlines()
    assert (titles.split()[2], row.split()[2]) == ("USDC", "0.007875")
    assert print_settlements(settings, as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["amountMicroUsdc"] == "7875"

    payment = {"blockNumber": 3, "sessionIdHash": "0x1", "from": "0x2", "to": "0x3", "txHash": "0x4"}
    payments = {"items": [payment | {"toAmount": "7000", "feeAmount": "875"}], "unknown": {"payments": 1} | amount}
    sums = {name: {"payments": 2, "amountMicroUsdc": "1904250"} for name in ("settled", "adopted")}
    Recorder.answers[UNKNOWN_PAYMENTS] = payments | sums
    Recorder.answers[RECONCILIATION] = {"items": [], "events": 2, "throughBlock": 3, "differences": 0}
    questions: list[str] = []

    def confirm(question: str) -> bool:
        questions.append(question)
        return False

    assert reconcile_payments(settings, operator="ada", reason=None, confirm=confirm, as_json=False) == 1
    said = capsys.readouterr().out
    assert said.splitlines()[1].split() == ["3", "0x1", "0x2", "0x3", "0.007875", "0x4"]
    assert "in the database and on the chain: 2 payments, 1.90425 USDC" in said
    assert "micro" not in said
    assert reconcile_payments(settings, operator="ada", reason="noon", confirm=confirm, as_json=False) == 1
    assert questions == ["Adopt 1 payments of 0.007875 USDC, through block 3, into the journal for good?"]


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


def test_two_servers_of_one_machine_have_different_names(
    asked: tuple[Settings, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    settings, _ = asked
    one = {
        "name": "vm", "incarnation": "1a2b3c4d-0", "version": "1", "renewedMsAgo": 0, "valid": True, "shards": 130,
        "roles": [], "loopDelayMs": 0, "reportedMsAgo": 0, "url": "", "clockOffsetMs": 0, "connected": True,
    }  # fmt: skip
    other = one | {"incarnation": "5e6f7a8b-0"}
    Recorder.answers["/internal/nodes"] = {"items": [one, other], "unownedShards": 0}
    assert print_nodes(settings, as_json=False) == 0
    said = capsys.readouterr().out
    for name in ("vm (1a2b3c4d)", "vm (5e6f7a8b)"):
        assert name in said
    assert print_actors(settings, as_json=True, node="vm") == 1
    assert "The servers are: vm (1a2b3c4d), vm (5e6f7a8b)." in capsys.readouterr().err
