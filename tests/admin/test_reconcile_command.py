"""`sightline reconcile` on a real server: silent while the books agree with the chain, a line and exit code 1 else."""

import csv
import io
import json
import subprocess
import sys

import asyncpg
import httpx
import trio

from sightline.storage.embedded.postgres_child import find_binaries, lay_out
from sightline.system.server_address_file import read_server_addresses
from tests.conftest import on_server
from tests.e2e.server import Server, until


async def sightline(server: Server, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "sightline.cli", *arguments]
    data_dir = ["--data-dir", str(server.directory / "data")]
    return await trio.run_process([*command, *data_dir], check=False, capture_stdout=True, capture_stderr=True)


async def test_a_difference_is_a_line_with_what_to_do_a_metric_and_the_exit_code(server: Server) -> None:
    await server.start()
    where = read_server_addresses(server.directory / "data")
    assert where is not None

    async def metrics() -> str:
        async with httpx.AsyncClient() as http:
            return (await http.get(where.internal_url + "/metrics")).text

    # The server compares by itself soon after its first start.
    await until(metrics, lambda text: "\nsightline_books_differences 0" in text, "the books were compared")
    clean = await sightline(server, "reconcile", "--json")
    assert clean.returncode == 0, clean.stderr
    assert json.loads(clean.stdout)["books"]["differences"] == 0

    async def plant(connection: asyncpg.Connection) -> None:
        await connection.execute("""
        INSERT INTO journal_entry (kind, tx_hash, log_index, block_number, block_hash, block_at_ms, accounts,
          currencies, amounts, recorded_at_ms)
        VALUES ('STRAY', '0xt', 0, 0, '0xbad', 0, ARRAY['escrow', 'stray'], ARRAY['micro-USDC', 'micro-USDC'],
          ARRAY[5, -5], 0)
        """)

    dsn = lay_out(server.directory / "data" / "postgres", find_binaries()).dsn
    await trio.to_thread.run_sync(on_server, dsn, plant)
    found = await sightline(server, "reconcile", "--json")
    assert found.returncode == 1
    books = json.loads(found.stdout)["books"]
    assert {each["kind"] for each in books["items"]} == {"entry of a block that is not on the chain", "wrong balance"}
    said = await sightline(server, "reconcile")
    assert said.returncode == 1
    lines = said.stdout.decode().splitlines()
    assert sum(line.startswith("entry of a block that is not on the chain: STRAY in block 0") for line in lines) == 1
    assert "2 differences" in lines[-1]
    assert "micro-USDC" in lines[-2], "the unit of the accounts"
    assert "on the chain and not in the database: 0 payments, 0 USDC" in lines
    await until(metrics, lambda text: "\nsightline_books_differences 2" in text, "the metric tells it")
    # The journal comes as JSON lines or as CSV.
    [entry] = [json.loads(line) for line in (await sightline(server, "admin", "journal")).stdout.splitlines()]
    assert (entry["kind"], entry["lines"][0]) == (
        "STRAY", {"account": "escrow", "currency": "micro-USDC", "amount": "5"},
    )  # fmt: skip
    table = (await sightline(server, "admin", "journal", "--csv")).stdout.decode()
    assert [(row["txHash"], row["account"], row["amount"]) for row in csv.DictReader(io.StringIO(table))] == [
        ("0xt", "escrow", "5"), ("0xt", "stray", "-5"),
    ]  # fmt: skip
    assert (await sightline(server, "admin", "journal", "--after", str(entry["id"]))).stdout == b""
