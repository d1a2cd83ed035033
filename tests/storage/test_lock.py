"""One server per data directory."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sightline.system.lock import DataDirectoryInUseError, lock_directory

HOLDER = """
import sys, threading
from pathlib import Path
from sightline.system.lock import lock_directory
with lock_directory(Path(sys.argv[1])):
    print("held", flush=True)
    threading.Event().wait()
"""


def test_a_second_server_is_refused_and_told_who_the_first_one_is(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(DataDirectoryInUseError, match=f"pid {holder.pid}"), lock_directory(tmp_path):
            raise AssertionError("locked twice")
        os.kill(holder.pid, signal.SIGKILL)
    with lock_directory(tmp_path):
        pass


def test_the_directory_is_made_and_the_lock_is_free_again_afterwards(tmp_path: Path) -> None:
    for _ in range(2):
        with lock_directory(tmp_path / "a" / "b"):
            assert (tmp_path / "a" / "b").is_dir()


def test_children_do_not_hold_the_lock(tmp_path: Path) -> None:
    with lock_directory(tmp_path):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with child, lock_directory(tmp_path):
        assert child.stdin is not None
        child.stdin.close()
        child.kill()
