"""A data directory that lost a part is refused with one line; file permissions of the data directory."""

import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.conftest import open_data_directory
from tests.e2e.server import Server, a_tenant


@pytest.fixture(scope="module")
def stopped_server() -> Iterator[Server]:
    """A server that was ready once and has stopped; each test copies its directory."""
    with open_data_directory() as directory:
        made = Server(directory)

        async def start_and_stop() -> None:
            await made.start()
            await a_tenant(made.url, "CONSUMER", "kept")
            assert await made.stop() == 0

        try:
            trio.run(start_and_stop)
            yield made
        finally:
            made.end()


def refusal(data: Path) -> str:
    """Return what a server prints that must refuse to start on this directory."""
    command = [sys.executable, "-m", "sightline.cli", "serve", "--port", "0", "--internal-port", "0"]
    done = subprocess.run([*command, "--data-dir", str(data)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stdout == ""
    return done.stderr.strip()


@pytest.mark.parametrize("has_list", [True, False], ids=["listed", "made by an earlier version"])
@pytest.mark.parametrize(
    ("lost", "named"),
    [
        ("postgres", "postgres/cluster/PG_VERSION"),
        ("postgres/cluster", "postgres/cluster/PG_VERSION"),
        ("secrets.json", "secrets.json"),
        ("chain/keys.json", "chain/keys.json"),
        ("chain/chain.sqlite", "chain/chain.sqlite"),
    ],
)
def test_a_part_that_is_gone_is_named_and_nothing_is_made_in_its_place(
    stopped_server: Server, data_directory: Path, lost: str, named: str, has_list: bool
) -> None:
    data = data_directory / "data"
    shutil.copytree(stopped_server.directory / "data", data, symlinks=True)
    if not has_list:
        (data / "parts.json").unlink()
    gone = data / lost
    if gone.is_dir():
        shutil.rmtree(gone)
    else:
        gone.unlink()
    said = refusal(data)
    assert len(said.splitlines()) == 1
    assert f"{data / named} is missing" in said
    assert "restore it from a backup" in said
    assert not gone.exists()


@pytest.mark.parametrize("damaged", ["secrets.json", "chain/keys.json", "chain/chain.sqlite", "parts.json"])
def test_a_part_that_is_empty_is_named(stopped_server: Server, data_directory: Path, damaged: str) -> None:
    data = data_directory / "data"
    shutil.copytree(stopped_server.directory / "data", data, symlinks=True)
    (data / damaged).write_bytes(b"")
    said = refusal(data)
    assert len(said.splitlines()) == 1
    assert f"{data / damaged} is damaged" in said


@pytest.mark.parametrize("kept_bytes", [1, 100, -3])
def test_secrets_that_were_cut_short_are_refused(stopped_server: Server, data_directory: Path, kept_bytes: int) -> None:
    data = data_directory / "data"
    shutil.copytree(stopped_server.directory / "data", data, symlinks=True)
    whole = (data / "secrets.json").read_bytes()
    (data / "secrets.json").write_bytes(whole[:kept_bytes])
    said = refusal(data)
    assert len(said.splitlines()) == 1
    assert f"{data / 'secrets.json'} is damaged" in said


def test_only_the_account_of_the_server_may_read_what_it_keeps(stopped_server: Server) -> None:
    data = stopped_server.directory / "data"
    readable = [
        str(path.relative_to(data))
        for path in (data, *data.rglob("*"))
        if not path.is_symlink() and stat.S_IMODE(path.stat().st_mode) & 0o066
    ]
    assert readable == []
