"""What a server imports at its start: libraries that few servers need are loaded at their first use."""

import subprocess
import sys
from typing import Final

LATE: Final = {"mcp", "httpx2", "sightline_client", "opentelemetry", "c2pa", "eth", "av", "aiortc", "typer"}
"""MCP tools, traces, signatures of frames, the embedded chain and the media workers, the commands."""
PRINT: Final = f"import sys, sightline.bootstrap.listen; print(sorted({LATE} & {{*sys.modules}}))"


def test_a_start_does_not_load_the_libraries_that_few_servers_need() -> None:
    loaded = subprocess.run([sys.executable, "-c", PRINT], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"
