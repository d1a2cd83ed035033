"""`sightline secrets accept`: the emergency stop for API keys."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from sightline_client import ApiError
from tests.client.api import Api
from tests.e2e.server import Server, a_tenant, start_line


def replace_secret(server: Server, name: str) -> None:
    path = server.directory / "data" / "secrets.json"
    secrets = json.loads(path.read_text())
    path.write_text(json.dumps(secrets | {name: base64.b64encode(b"n" * 32).decode()}))


async def sightline(server: Server, *arguments: str, said: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "sightline.cli", *arguments, "--data-dir", str(server.directory / "data")]
    return await trio.run_process(
        command, capture_stdout=True, capture_stderr=True, check=False, env=os.environ | server.env, stdin=said
    )


async def test_a_new_pepper_ends_every_api_key_when_it_is_accepted(server: Server) -> None:
    await server.start()
    tenant = await a_tenant(server.url, "CONSUMER", "stopped-keys")
    running = await sightline(server, "secrets", "accept", "--yes")
    assert (running.returncode, b"is in use by another server" in running.stderr) == (1, True)
    assert await server.stop() == 0

    replace_secret(server, "key_pepper")
    assert "If it was replaced on purpose, run `sightline secrets accept`." in await start_line(server)
    unsure = await sightline(server, "secrets", "accept", said=b"n\n")
    assert unsure.returncode == 1
    assert b"a new key_pepper ends every API key" in unsure.stderr
    left = await sightline(server, "secrets", "accept")
    assert (left.returncode, b"Aborted" in left.stderr, b"Traceback" in left.stderr) == (1, True, False)
    assert "`sightline secrets accept`" in await start_line(server)

    done = await sightline(server, "secrets", "accept", "--yes")
    assert (done.returncode, b"accepts the secrets in" in done.stdout) == (0, True), done.stderr
    await server.start()
    async with Api(server.url, key=tenant.key) as api:
        with pytest.raises(ApiError) as refused:
            await api.get("/sessions?view=consumer")
    assert refused.value.status == 401


async def test_a_restore_that_fails_after_it_filled_an_external_database_says_so(
    server: Server, empty_database_dsn: str, tmp_path: Path
) -> None:
    await server.start()
    assert await server.stop() == 0
    backup = tmp_path / "b.tar.gz"
    assert (await sightline(server, "backup", str(backup))).returncode == 0
    lost = {"kind": "suspension", "at_ms": 1, "workspace_id": "no id", "subject": "", "state": "abuse", "actor": "a"}
    (tmp_path / "withdrawals.jsonl").write_text(json.dumps(lost) + "\n")
    other = Server(tmp_path / "other", env={"SIGHTLINE_DATABASE_URL": empty_database_dsn})
    done = await sightline(other, "restore", str(backup), "--withdrawals", str(tmp_path / "withdrawals.jsonl"))
    assert done.returncode == 1
    assert b"Nothing was restored" not in done.stderr
    assert b"The database of SIGHTLINE_DATABASE_URL is filled" in done.stderr
    assert b"start no server on it" in done.stderr


async def test_a_backup_with_damaged_secrets_is_refused_in_words(server: Server, tmp_path: Path) -> None:
    await server.start()
    assert await server.stop() == 0
    path = server.directory / "data" / "secrets.json"
    path.write_text(path.read_text()[:40])
    done = await sightline(server, "backup", str(tmp_path / "b.tar.gz"))
    assert (done.returncode, b"Traceback" in done.stderr) == (1, False)
    assert f"No backup was written: {path} is damaged".encode() in done.stderr


async def test_doctor_says_whether_the_secrets_are_those_of_the_database(
    server: Server, empty_database_dsn: str, tmp_path: Path
) -> None:
    server.env["SIGHTLINE_DATABASE_URL"] = empty_database_dsn

    async def secrets() -> list[str]:
        found = json.loads((await sightline(server, "doctor", "--json")).stdout)
        return [each["level"] for each in found if each["check"] == "secrets"]

    await server.start()
    assert await secrets() == ["ok"]
    (tmp_path / "data").mkdir()
    lent = Server(tmp_path, env=server.env | {"SIGHTLINE_SECRETS_FILE": str(server.directory / "data/secrets.json")})
    shared = await sightline(lent, "secrets", "accept", "--yes")
    assert (shared.returncode, b"A server of this database runs on" in shared.stderr) == (1, True)
    assert await server.stop() == 0
    replace_secret(server, "token_key")
    assert await secrets() == ["failed"]
    assert (await sightline(server, "secrets", "accept", "--yes")).returncode == 0
    assert await secrets() == ["ok"]
