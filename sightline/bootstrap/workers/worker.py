"""The process of one worker: `python -m sightline.bootstrap.workers.worker`, started by the supervisor.

It reads its `Handover` on stdin, serves on the sockets that it inherited, and stops like a server at SIGTERM when the
supervisor says so. When the supervisor is killed it ends at once.
"""

import os
import socket
import sys
from contextlib import ExitStack

import structlog
import trio

from sightline.bootstrap.failures.errors import check_setting
from sightline.bootstrap.listeners.ports import Ports, reserve_internal
from sightline.bootstrap.process import ServerRun, exit_code_of, raise_open_file_limit, restrict_new_files
from sightline.bootstrap.server_run import RunOptions
from sightline.bootstrap.workers.handover import Handover
from sightline.system.ids import SystemIds
from sightline.system.lock import lock_directory
from sightline.system.logs import configure_logs
from sightline.system.parent import EXIT_FAILED, leave_with_parent, say_ready
from sightline.system.secrets import load_secrets
from sightline.system.server_address_file import write_server_addresses

log = structlog.get_logger("sightline")


def main() -> int:
    """Run the worker; returns its exit code, see `exit_code_of`."""
    handover = Handover.load(_read_line())
    # Without its supervisor there is no database, and the next one needs the locks: end as if killed, which is safe.
    leave_with_parent(if_killed=lambda: os._exit(EXIT_FAILED))
    settings = handover.settings
    configure_logs(settings.log_level)
    runs: list[ServerRun] = []

    def on_ready(internal_url: str) -> None:
        write_server_addresses(handover.directory, url=handover.public_url, internal_url=internal_url)
        log.info("ready", url=handover.public_url, internal_url=internal_url, directory=str(handover.directory))
        say_ready(internal_url)

    def run() -> None:
        with ExitStack() as stack:
            with check_setting(f"SIGHTLINE_DATA_DIR (--data-dir) {handover.directory}"):
                stack.enter_context(lock_directory(handover.directory))
            restrict_new_files()
            raise_open_file_limit()
            public = stack.enter_context(socket.socket(fileno=handover.public_socket))
            if handover.internal_socket is None:
                internal = stack.enter_context(reserve_internal(settings, 0))
            else:
                internal = stack.enter_context(socket.socket(fileno=handover.internal_socket))
            ports = Ports(
                public=public, internal=internal, public_url=handover.public_url, shared_from=handover.directory
            )
            with check_setting(f"The secrets in {settings.secrets_path}"):
                secrets = load_secrets(settings.secrets_path, SystemIds())
            run_of_worker = RunOptions(
                settings=settings,
                secrets=secrets,
                ports=ports,
                public_url=handover.public_url,
                worker_directory=handover.directory,
                incarnation=handover.incarnation,
            )
            runs.append(ServerRun(run_of_worker))
            trio.run(runs[0].run, on_ready)

    return exit_code_of(settings, run, lambda: bool(runs) and runs[0].is_ready)


def _read_line() -> bytes:
    """Read the first line on stdin without a buffer: the rest belongs to `leave_with_parent`."""
    line = b""
    while not line.endswith(b"\n"):
        read = os.read(0, 65_536)
        if not read:
            sys.exit("started without a supervisor")
        line += read
    return line


if __name__ == "__main__":
    sys.exit(main())
