"""Run a server: `sightline serve`."""

import structlog
import trio

from sightline.bootstrap.process import ServerRun, exit_code_of, prepare, say_url
from sightline.config import Settings
from sightline.system.logs import configure_logs
from sightline.system.server_address_file import write_server_addresses

log = structlog.get_logger("sightline")


def run_server(settings: Settings) -> int:
    """Run a server until SIGTERM or SIGINT. Prints `ready URL` on stdout when it accepts calls.

    Returns:
        The exit code, see `exit_code_of`.
    """
    configure_logs(settings.log_level)
    runs: list[ServerRun] = []

    def run() -> None:
        with prepare(settings) as prepared:
            url, data_dir = prepared.public_url, prepared.settings.data_dir

            def on_ready(internal_url: str) -> None:
                write_server_addresses(data_dir, url=url, internal_url=internal_url)
                prepared.note_ready()
                log.info("ready", url=url, internal_url=internal_url, data_dir=str(data_dir))
                say_url(url)

            runs.append(ServerRun(prepared.settings, prepared.secrets, prepared.ports, url))
            trio.run(runs[0].run, on_ready)

    return exit_code_of(settings, run, lambda: bool(runs) and runs[0].is_ready)
