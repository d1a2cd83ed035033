"""The embedded nats-server: private, on one port, restarted, and never left behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import trio

from sightline.cluster.bus.nats import NatsOptions, open_nats_bus
from sightline.cluster.bus.server import CONFIG, EmbeddedNatsOptions, run_embedded_nats
from sightline.system.ids import SystemIds

from .nats_process import until


def nats_pid() -> int:
    """The nats-server of the wrapper; a fixture's server has this process as its parent."""
    found = [child for child in psutil.Process().children(recursive=True) if child.name() == "nats-server"]
    (child,) = [child for child in found if child.ppid() != os.getpid()]
    return int(child.pid)


def is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


async def test_it_is_restarted_on_its_port_with_its_token_and_stops_with_its_task(tmp_path: Path) -> None:
    options = EmbeddedNatsOptions(directory=tmp_path / "nats", log_path=tmp_path / "log" / "nats.log")
    async with trio.open_nursery() as nursery:
        url = await nursery.start(run_embedded_nats, options, SystemIds())
        token = url.partition("//")[2].partition("@")[0]
        assert (tmp_path / "nats" / CONFIG).stat().st_mode & 0o777 == 0o600
        pid = nats_pid()
        assert not any(token in argument for argument in psutil.Process(pid).cmdline())
        async with open_nats_bus(NatsOptions(servers=(url,), cluster="test", key=b"k" * 32, incarnation="one")) as bus:
            os.kill(pid, signal.SIGKILL)
            await until(lambda: bus.is_connected and bus.statistics().connections == 2)
        again = nats_pid()
        assert again != pid
        nursery.cancel_scope.cancel()
    assert not psutil.pid_exists(again)


async def test_it_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, trio\nfrom pathlib import Path\n"
        "from sightline.cluster.bus.server import EmbeddedNatsOptions, run_embedded_nats\n"
        "from sightline.system.ids import SystemIds\n"
        "async def main():\n"
        "    here = Path(sys.argv[1])\n"
        "    async with trio.open_nursery() as nursery:\n"
        "        options = EmbeddedNatsOptions(directory=here, log_path=here / 'log')\n"
        "        await nursery.start(run_embedded_nats, options, SystemIds())\n"
        "        print('ready', flush=True)\n"
        "trio.run(main)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE)  # noqa: ASYNC220
    assert parent.stdout is not None
    with trio.fail_after(60):
        assert await trio.to_thread.run_sync(parent.stdout.readline) == b"ready\n"
        children = psutil.Process(parent.pid).children(recursive=True)
        assert {"nats-server"} < {child.name() for child in children}
        parent.kill()
        parent.wait()
        await until(lambda: not any(is_alive(child) for child in children))
    parent.stdout.close()
