"""What `sightline serve` prints when it is ready: one line for programs, and a frame for a person at a terminal."""

import os
import pty
import sys
from pathlib import Path

import pytest

from sightline.bootstrap.process import say_ready
from sightline.cli.dev import ready_text
from sightline.http.console.manual import is_manual_built
from tests.cli.terminal import read_all

URL, INTERNAL = "http://127.0.0.1:8080", "http://127.0.0.1:8081"


def test_a_program_reads_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    say_ready(URL, INTERNAL, Path("/data"))
    assert capsys.readouterr().out == f"ready {URL}\n"


@pytest.mark.parametrize(("url", "is_here"), [(URL, True), ("http://[::1]:8080", True), ("https://a.example", False)])
def test_a_person_at_a_terminal_sees_what_to_open_and_whether_other_devices_can(
    monkeypatch: pytest.MonkeyPatch, url: str, is_here: bool
) -> None:
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        say_ready(url, INTERNAL, Path("/data"))
    said = read_all(reader)
    first, *lines = said.strip().splitlines()
    assert first == f"ready {url}"
    framed = [line for line in lines if line]
    assert len({len(line) for line in framed}) == 1, "a frame"
    assert f"Open {url}/" in framed[1]
    assert f"{INTERNAL}/ops" in said
    assert (f"{url}/manual/" in said) == is_manual_built()
    assert ("Other devices" in said) == is_here


def test_dev_names_the_manual_only_where_it_is_built(tmp_path: Path) -> None:
    folder = tmp_path / "manual"
    assert not is_manual_built(folder)
    folder.mkdir()
    assert not is_manual_built(folder)
    (folder / "index.html.gz").touch()
    assert is_manual_built(folder)
    said = dict.fromkeys(("consumerKey", "lat", "lng", "dataDir", "logFile", "consoleUrl"), "") | {"url": URL}
    assert f"Manual: {URL}/manual/\n" in ready_text(said, "", has_manual=True)
    assert "anual" not in ready_text(said, "", has_manual=False)


def test_dev_says_under_which_mandate_its_key_buys_in_escrow() -> None:
    said = dict.fromkeys(("consumerKey", "lat", "lng", "dataDir", "logFile", "consoleUrl"), "") | {"url": URL}
    assert "mandate" not in ready_text(said, "", has_manual=False)
    assert "under a mandate that dev has set: at most 5 USDC a session and a day" in ready_text(
        said, "", has_manual=False, mandate=5_000_000
    )
