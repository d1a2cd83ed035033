"""Runs the command `sightline` of the client against a world."""

import os
import subprocess
import sys

import trio

from tests.http.world import Party, World


async def sightline(world: World, party: Party | None, *words: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """Run it with the key of a party, or without a key. Other variables of the caller are passed on."""
    known = {"SIGHTLINE_URL": world.base_url, "SIGHTLINE_API_KEY": "" if party is None else party.plaintext}
    done = await trio.run_process(
        [sys.executable, "-m", "sightline_client", *words],
        env=os.environ | known | env, capture_stdout=True, capture_stderr=True, check=False,
    )  # fmt: skip
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())
