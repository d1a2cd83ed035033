"""The directory of `sightline dev` stands for the data directory in it, for every command."""

from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sightline.cli import app
from sightline.system.data_directory import directory_of_server
from sightline.system.server_address_file import write_server_addresses
from sightline_client.commands import application
from tests.cli.accounts import as_another_account


def a_server_was_ready_on(directory: Path) -> None:
    directory.mkdir()
    write_server_addresses(directory, url="http://127.0.0.1:9", internal_url="http://127.0.0.1:9")


def test_a_directory_with_the_data_of_a_server_in_it_stands_for_that(tmp_path: Path) -> None:
    of_dev, own, empty = (tmp_path / name for name in ("dev", "own", "empty"))
    for directory in (of_dev, empty):
        directory.mkdir()
        (directory / "data").mkdir(exist_ok=True)
    (of_dev / "data").rmdir()
    a_server_was_ready_on(of_dev / "data")
    a_server_was_ready_on(own)
    a_server_was_ready_on(own / "data")
    assert directory_of_server(of_dev) == of_dev / "data"
    for directory in (own, empty, tmp_path / "missing", of_dev / "data"):
        assert directory_of_server(directory) == directory


def test_a_command_of_another_account_than_the_servers_ends_in_one_line(tmp_path: Path) -> None:
    a_server_was_ready_on(tmp_path / "data")
    for path in (tmp_path, *tmp_path.parents):
        with suppress(PermissionError):
            path.chmod(path.stat().st_mode | 0o011)
    with as_another_account(tmp_path / "data"):
        for directory in (tmp_path, tmp_path / "data"):
            run = CliRunner().invoke(application(app), ["nodes", "--data-dir", str(directory)])
            assert (run.exit_code, run.exception.__class__) == (1, SystemExit), directory
            assert run.stderr.count("\n") == 1
    refused = f"{tmp_path / 'data' / 'server.json'} cannot be read. Run this as the account of the server.\n"
    assert run.stderr == refused


@pytest.mark.parametrize("words", ["settlements", "nodes", "actors", "reconcile", "admin sessions"])
def test_host_commands_find_the_server_of_dev(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_server_was_ready_on(tmp_path / "data")
    by_option = CliRunner().invoke(application(app), [*words.split(), "--data-dir", str(tmp_path)])
    monkeypatch.setenv("SIGHTLINE_DATA_DIR", str(tmp_path))
    by_variable = CliRunner().invoke(application(app), words.split())
    for run in (by_option, by_variable):
        assert "No server answers at http://127.0.0.1:9" in run.stderr
        assert f"--data-dir {tmp_path / 'data'}" in run.stderr
