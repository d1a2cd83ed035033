"""What a server imports at its start: libraries that few servers need are loaded at their first use."""

import subprocess
import sys
from typing import Final

import pytest

LATE: Final = {"mcp", "httpx2", "sightline_client", "opentelemetry", "c2pa", "eth", "av", "aiortc", "typer"}
"""MCP tools, traces, signatures of frames, the embedded chain and the media workers, the commands."""
AFTER_CHILDREN: Final = LATE | {"quart", "flask", "hypercorn", "numpy", "eth_abi", "eth_utils", "httpx", "asyncpg"}
"""Libraries of the server, which it imports while its database and its chain start."""


@pytest.mark.parametrize(
    ("module", "late"), [("sightline.bootstrap.listen", LATE), ("sightline.bootstrap.run", AFTER_CHILDREN)]
)
def test_a_start_does_not_load_the_libraries_that_are_not_needed_yet(module: str, late: set[str]) -> None:
    program = f"import sys, {module}; print(sorted({late} & {{*sys.modules}}))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"
