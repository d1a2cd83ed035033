"""Runs the invariants of SessionEscrow in forge, from this folder. See scripts/interop_forge.sh."""

import json
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from sightline.chain.contracts.artefacts import artefact

INSTALLED: Final = Path(__file__).parents[4] / ".interop"
PROJECT: Final = Path(__file__).parent
DEPTH: Final = 100
"""Calls in a sequence; each sequence starts with new contracts."""


def run_forge(*, calls: int, seed: int, code: bytes | None = None, only: str = "") -> dict[str, tuple[int, str]]:
    """Check the invariants, by random calls on the committed contract or on other creation code.

    Args:
        calls: Of each invariant.
        only: The number of the one invariant to check, such as I3; all by default.

    Returns:
        For each invariant the calls that were made, and how it was broken: empty if it was not.
    """
    forge = INSTALLED / "forge" / "forge"
    assert forge.exists(), "forge is not here: run scripts/interop_forge.sh"
    with tempfile.TemporaryDirectory(prefix="sightline-") as directory:
        # What forge compiled is used again; the failures that it found before are not tried again.
        env = os.environ | {
            "FOUNDRY_OUT": str(INSTALLED / "forge-out"),
            "FOUNDRY_CACHE_PATH": str(INSTALLED / "forge-out" / "cache"),
            "FOUNDRY_INVARIANT_RUNS": str(calls // DEPTH),
            "FOUNDRY_INVARIANT_DEPTH": str(DEPTH),
            "FOUNDRY_INVARIANT_FAILURE_PERSIST_DIR": directory,
            "ESCROW_CODE": "0x" + (code or artefact("SessionEscrow").bytecode).hex(),
            "TOKEN_CODE": "0x" + artefact("TestUSDC").bytecode.hex(),
        }
        command = [str(forge), "test", "--offline", "--json", "--use", str(INSTALLED / "forge" / "solc")]
        command += ["--fuzz-seed", str(seed), "--match-test", f"^invariant_{only or 'I[0-9]+'}_"]
        ended = subprocess.run(command, cwd=PROJECT, env=env, capture_output=True, text=True, check=False)
    lines = [line for line in ended.stdout.splitlines() if line.startswith('{"test/')]
    assert lines, ended.stdout[-2_000:] + ended.stderr[-2_000:]
    ((_, suite),) = json.loads(lines[-1]).items()
    found = {}
    for name, result in suite["test_results"].items():
        number = re.match(r"invariant_(I\d+)_", name)
        assert number, f"{name}: {result['reason']}"
        is_whole = result["status"] == "Success"
        found[number[1]] = (result["kind"]["Invariant"]["calls"], "" if is_whole else result["reason"] or "broken")
    return found
