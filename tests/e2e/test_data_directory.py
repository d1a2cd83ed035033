"""A data directory that lost a part is refused with one line; file permissions of the data directory."""

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
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


def refusal(data: Path, **env: str) -> str:
    """Return what a server prints that must refuse to start on this directory."""
    command = [sys.executable, "-m", "sightline.cli", "serve", "--port", "0", "--internal-port", "0"]
    line, all_env = [*command, "--data-dir", str(data)], os.environ | env
    done = subprocess.run(line, env=all_env, capture_output=True, text=True, check=False, timeout=60)
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
    alone = "take it alone from the newest backup: `tar -xzf FILE -C DIRECTORY secrets.json`"
    whole = "restore a whole backup into a new directory with `sightline restore FILE"
    assert (alone if named == "secrets.json" else whole) in said
    assert not gone.exists()


@pytest.mark.parametrize("damaged", ["secrets.json", "chain/keys.json", "chain/chain.sqlite", "parts.json"])
def test_a_part_that_is_empty_is_named(stopped_server: Server, data_directory: Path, damaged: str) -> None:
    data = data_directory / "data"
    shutil.copytree(stopped_server.directory / "data", data, symlinks=True)
    (data / damaged).write_bytes(b"")
    said = refusal(data)
    assert len(said.splitlines()) == 1
    assert f"{data / damaged} is damaged" in said


def _with_chain_file(stopped_server: Server, data_directory: Path, content: bytes) -> Path:
    """Return a copy of the server's directory whose chain file has this content."""
    data = data_directory / "data"
    subprocess.run(["cp", "-a", stopped_server.directory / "data", data], check=True)  # with the owner of the database
    for each in (data / "chain").glob("chain.sqlite*"):
        each.unlink()
    (data / "chain/chain.sqlite").write_bytes(content)
    return data


def test_a_chain_whose_file_is_no_database_is_refused_before_anything_starts(
    stopped_server: Server, data_directory: Path
) -> None:
    data = _with_chain_file(stopped_server, data_directory, b"no database" * 1_000)
    said = refusal(data)
    assert len(said.splitlines()) == 1
    assert f"{data / 'chain/chain.sqlite'} is damaged, which held every block of the embedded chain" in said
    assert "`sightline restore FILE --data-dir NEW`" in said


def test_a_chain_whose_file_is_damaged_inside_is_named_last_with_the_way_back(
    stopped_server: Server, data_directory: Path
) -> None:
    whole = (stopped_server.directory / "data/chain/chain.sqlite").read_bytes()
    data = _with_chain_file(stopped_server, data_directory, whole[:100] + b"damaged" * 5_000)
    # Parts that start beside the chain may have logged that they are ready by then.
    last = refusal(data).splitlines()[-1]
    assert "The file of the embedded chain is damaged" in last
    assert "`sightline restore FILE --data-dir NEW`" in last


def test_doctor_finds_a_damage_within_the_chains_file(stopped_server: Server, data_directory: Path) -> None:
    data = data_directory / "data"
    subprocess.run(["cp", "-a", stopped_server.directory / "data", data], check=True)
    path = data / "chain/chain.sqlite"
    with closing(sqlite3.connect(path)) as chain:
        chain.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = chain.execute("SELECT rootpage FROM sqlite_master WHERE name = 'kv'").fetchone()
        (size,) = chain.execute("PRAGMA page_size").fetchone()
    whole = bytearray(path.read_bytes())
    whole[(page - 1) * size : (page - 1) * size + 64] = b"damaged." * 8  # of a table that the newest block is not in
    path.write_bytes(bytes(whole))
    for command in (["doctor"], ["chain", "check"]):
        line = [sys.executable, "-m", "sightline.cli", *command, "--data-dir", str(data)]
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 1, command
        (found,) = [line for line in done.stdout.splitlines() if line.startswith("failed")]
        assert f"{path} is damaged" in found, command
        assert "sightline restore" in found, command


def test_another_chain_id_than_that_of_the_first_start_is_refused_with_the_one_to_set(
    stopped_server: Server, data_directory: Path
) -> None:
    data = data_directory / "data"
    subprocess.run(["cp", "-a", stopped_server.directory / "data", data], check=True)
    last = refusal(data, SIGHTLINE_CHAIN_ID="5").splitlines()[-1]
    assert "holds chain 84532001, not 5. Set SIGHTLINE_CHAIN_ID=84532001, or another SIGHTLINE_DATA_DIR." in last
    assert "RPC_URL" not in last


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
