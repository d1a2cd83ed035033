"""Tables at a terminal of 80 columns."""

import os
import pty
import subprocess
import sys


def test_a_table_leaves_nothing_out_at_80_columns() -> None:
    reader, writer = pty.openpty()
    command = [sys.executable, "-m", "sightline.cli", "config"]
    with subprocess.Popen(command, env=os.environ | {"COLUMNS": "80"}, stdout=writer) as process:
        os.close(writer)
        said = b""
        try:
            while chunk := os.read(reader, 65_536):
                said += chunk
        except OSError:  # the terminal has no writer any more
            pass
    os.close(reader)
    assert process.returncode == 0
    text = said.decode()
    assert max(map(len, text.splitlines()[-20:])) <= 80
    assert "SIGHTLINE_INTERNAL_H" in text
    assert "…" not in text
