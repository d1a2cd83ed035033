"""The code of another commit, to run servers of two versions in one service."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.conftest import open_data_directory

ROOT: Final = Path(__file__).parents[3]
CLIENT: Final = Path("packages", "sightline-client", "src")


def python_path(code: Path) -> dict[str, str]:
    """Environment variables with which Python imports Sightline from a checkout instead of the installed package."""
    return {"PYTHONPATH": os.pathsep.join(str(path) for path in (code, code / CLIENT))}


@contextmanager
def open_checkout(commit: str) -> Iterator[Path]:
    """The files of a commit, in a directory of their own until the end of the block."""
    with open_data_directory() as directory:
        packed = subprocess.run(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE, check=True)
        subprocess.run(["tar", "--extract", "--directory", str(directory)], input=packed.stdout, check=True)
        # An embedded process may run under another account.
        directory.chmod(0o755)
        show = "import sightline, sightline_client; print(sightline.__file__, sightline_client.__file__)"
        env = os.environ | python_path(directory)
        shown = subprocess.run([sys.executable, "-c", show], cwd=directory, env=env, stdout=subprocess.PIPE, check=True)
        found = [Path(path) for path in shown.stdout.decode().split()]
        assert all(path.is_relative_to(directory) for path in found), f"{commit}: Python imports {found}"
        yield directory
