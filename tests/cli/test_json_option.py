"""Every command that prints data prints it as JSON on request, and what is wrong with its command line too."""

import json
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from sightline.cli import app
from sightline_client import commands
from sightline_client.commands import application

WITHOUT = {
    "serve": "prints one line, `ready URL`",
    "publish": "prints no data",
    "device": "prints no data; its log is JSON",
    "write-off": "prints no data",
    "backup": "writes a file",
    "restore": "writes a directory",
    "secrets accept": "asks a person, and prints one line",
    "demo": "is for people",
    "claim": "prints one line, the hash of the transaction",
    "reclaim": "prints one line, the hash of the transaction",
    "admin token": "prints one line, the token",
    "admin audit": "prints JSON lines always",
    "admin journal": "prints JSON lines or CSV",
}
"""Commands without the option, and why."""


def test_every_command_that_prints_data_takes_json() -> None:
    root = typer.main.get_command(application(app))
    assert isinstance(root, TyperGroup)
    without = set()
    for name, command in root.commands.items():
        parts = command.commands if isinstance(command, TyperGroup) else {"": command}
        for part, each in parts.items():
            if not any("--json" in parameter.opts for parameter in each.params):
                without.add(f"{name} {part}".strip())
    assert without == WITHOUT.keys()


def test_a_client_without_the_server_says_which_package_has_its_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "installed_commands", list)
    run = CliRunner().invoke(application(), ["dev", "--json"])
    assert "sightline-live" in json.loads(run.stderr)["message"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("watch 52.5 13.4 --json --cuont 3", "No such option: --cuont"),
        ("watch --json", "Missing argument 'lat'. `sightline watch --help` shows what it takes."),
        ("watch 52.5 13.4 --json --seconds many", "'--seconds'"),
        ("keys mint --json", "`sightline keys mint --help`"),
        ("wacth 52.5 13.4 --json", "No such command 'wacth'"),
        ("dev --json --lat 99", "'--lat'"),
        ("dev --json --port 65536", "'--port'"),
        ("faucet --json 0x12 1", "0x12 is not the address of a wallet"),
        ("faucet --json 0xE7f1725E7734CE288F8367e1Bb143E90bb3F0512 1", "the checksum does not fit"),
        ("faucet --json 0xe7f1725E7734CE288F8367e1Bb143E90bb3F0512 -3", "-3 is not an amount of USDC: at least 0"),
        ("faucet --json 0xe7f1725E7734CE288F8367e1Bb143E90bb3F0512 0", "The amount must be above 0."),
        ("approve --json -3", "-3 is not an amount of USDC: at least 0"),
        ("extend --json 3fe8a2b0-1c1f-4a6e-9d61-0c9a8d7e6f50 -3", "must be at least 1"),
        ("admin session --json word", "'word' is not the id of a session"),
        ("admin end --json word --as Ada --reason because", "'word' is not the id of a session"),
        ("admin refund --json word 1 --as Ada --reason because", "'word' is not the id of a session"),
        ("admin sessions --json --state lively", "'lively' is not one of REQUESTED, ASSIGNED, LIVE"),
        ("admin sessions --json --workspace a_word", "'a_word' is neither the id nor the slug of a workspace"),
    ],
)
def test_a_wrong_command_line_is_answered_in_json_if_it_asks_for_json(words: str, said: str) -> None:
    run = CliRunner().invoke(application(app), words.split(), prog_name="sightline")
    assert (run.exit_code, run.stdout) == (2, "")
    [line] = run.stderr.splitlines()
    found = json.loads(line)
    assert found["code"] == "UsageError"
    assert said in found["message"]
    plain = CliRunner().invoke(application(app), words.replace(" --json", "").split(), prog_name="sightline")
    assert plain.exit_code == 2
    assert "Usage: sightline" in plain.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("settlements --json", "NotRunningError", "No server was ever ready on"),
        ("reconcile --json", "NotRunningError", "No server was ever ready on"),
        ("nodes --json", "NotRunningError", "No server was ever ready on"),
        ("actors --json", "NotRunningError", "No server was ever ready on"),
        ("actors --json --revive session/..", "InvalidIdError", ".."),
        ("admin sessions --json --state live", "NotRunningError", "No server was ever ready on"),
        ("admin workspaces --json", "NotRunningError", "No server was ever ready on"),
        ("map get-ready --json no-such-file", "FileNotFoundError", "Nothing was installed"),
        ("map postcodes --json no-such-file", "FileNotFoundError", "Nothing was installed"),
        ("settlements --json --config CONFIG", "SettingsError", "sightline.toml"),
        ("config --json --config CONFIG", "SettingsError", "sightline.toml"),
    ],
)
def test_an_error_of_a_host_command_is_a_json_line_if_it_is_asked_for_json(
    words: str, code: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIGHTLINE_DATA_DIR", str(tmp_path))
    wrong = tmp_path / "sightline.toml"
    wrong.write_text('port = "many"\n')
    run = CliRunner().invoke(application(app), words.replace("CONFIG", str(wrong)).split(), prog_name="sightline")
    assert (run.exit_code, run.stdout) == (2 if code == "InvalidIdError" else 1, "")
    (line,) = run.stderr.splitlines()
    answered = json.loads(line)
    assert answered["code"] == code
    assert said in answered["message"]
    plain = CliRunner().invoke(
        application(app), words.replace(" --json", "").replace("CONFIG", str(wrong)).split(), prog_name="sightline"
    )
    assert plain.stderr.splitlines() == [answered["message"]]
