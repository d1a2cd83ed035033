"""Tables at a terminal of 80 columns, and in a pipe."""

import json
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


def test_the_settings_that_are_set_can_be_read_alone() -> None:
    command = [sys.executable, "-m", "sightline.cli", "config", "--set", "--json"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SIGHTLINE_")}
    said = subprocess.run(
        command, env=environment | {"SIGHTLINE_PORT": "8090"}, capture_output=True, text=True, check=True
    ).stdout
    (found,) = map(json.loads, said.splitlines())
    assert (found["variable"], found["value"], found["source"]) == ("SIGHTLINE_PORT", 8090, "environment")


def test_a_table_in_a_pipe_has_plain_columns_and_one_line_a_row() -> None:
    command = [sys.executable, "-m", "sightline.cli", "config"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines[0].split() == ["variable", "value", "source", "meaning"]
    assert all(line.startswith("SIGHTLINE_") for line in lines[1:])
    assert {line[lines[0].index("source") :].split()[0] for line in lines[1:]} <= {"default", "environment"}


def test_no_setting_that_is_set_is_one_sentence() -> None:
    command = [sys.executable, "-m", "sightline.cli", "config", "--set"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SIGHTLINE_")}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert said == "Nothing is set: every setting has its default.\n"
