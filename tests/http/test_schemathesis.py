"""Schemathesis against the running server: every check, with each kind of credential."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from tests.groups import rest_at_night
from tests.http.world import Party, World

EXAMPLES = {"api-key": 6, "nothing": 2, "wallet-session": 4}
"""Generated calls for each operation, by credential: an operation does the same for a key and for a cookie.

With the seed, and without a limit of time, every run sends the same calls.
"""
IS_LONG = os.environ.get("SIGHTLINE_API_LONG") == "1"
"""`make nightly` sends 12 with each credential, in every phase."""
ALL_PHASES = "examples,coverage,fuzzing,stateful"
FEWER_PHASES = "examples,fuzzing,stateful"
"""Without the phase that sends the same 3,600 calls whatever the credential."""
CONFIG = Path(__file__).with_name("schemathesis.toml")


async def credentials(world: World, kind: str) -> str:
    """Those of a workspace that is both sides, with others to dispatch to, as Schemathesis takes them."""
    party: Party = await world.party("CONSUMER", "SUPPLIER")
    for _ in range(3):
        await (await world.party("SUPPLIER")).go_online()
    await party.go_online()
    match kind:
        case "api-key":
            return f'[auth.openapi.apiKey]\nbearer = "{party.plaintext}"\n'
        case "wallet-session":
            return f'[auth.openapi.walletSession]\napi_key = "{party.cookie.partition("=")[2]}"\n'
        case _:
            return ""


@pytest.mark.parametrize("kind", rest_at_night(EXAMPLES, gate=2))
async def test_the_server_does_what_its_document_says(world: World, kind: str, tmp_path: Path) -> None:
    config = tmp_path / "schemathesis.toml"
    config.write_text(CONFIG.read_text() + "\n" + await credentials(world, kind))
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        "--config-file",
        str(config),
        "run",
        f"{world.base_url}/openapi.json",
        "--checks",
        "all",
        "--seed",
        "20261121",
        "--max-examples",
        str(12 if IS_LONG else EXAMPLES[kind]),
        "--phases",
        ALL_PHASES if IS_LONG or kind == "api-key" else FEWER_PHASES,
        "--continue-on-failure",
        "--warnings",
        "off",
        "--output-sanitize",
        "false",
    ]
    done = await trio.run_process(command, capture_stdout=True, stderr=subprocess.STDOUT, check=False, cwd=tmp_path)
    report = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout.decode())
    assert done.returncode == 0, report[max(0, report.find("= FAILURES")) :]
