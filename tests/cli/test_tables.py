"""Tables at a terminal of 80 columns."""

import os
import pty
import subprocess
import sys

from tests.cli.terminal import read_all


def test_a_table_leaves_nothing_out_at_80_columns() -> None:
    reader, writer = pty.openpty()
    command = [sys.executable, "-m", "sightline.cli", "config"]
    with subprocess.Popen(command, env=os.environ | {"COLUMNS": "80"}, stdout=writer) as process:
        os.close(writer)
        text = read_all(reader)
    assert process.returncode == 0
    assert max(map(len, text.splitlines()[-20:])) <= 80
    assert "SIGHTLINE_INTERNAL_H" in text
    assert "…" not in text
