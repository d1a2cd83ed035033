"""Attacks by another account of the machine on which an operator's device runs."""

import os
import sys
from contextlib import suppress

import psutil
import trio

from sightline_client.video.assets import clip_path
from tests.attack.catalogue import attack
from tests.attack.target import Target
from tests.client.api import Api
from tests.e2e.server import PLACE


def command_lines(pid: int) -> list[str]:
    """What `ps` shows of a process and its children."""
    main = psutil.Process(pid)
    shown = []
    for each in (main, *main.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            shown.append(" ".join(each.cmdline()))
    return shown


@attack("C1", "`ps` while a device publishes", before="the WHIP URL, with which anybody can take over the input")
async def process_list(target: Target) -> str:
    operator, consumer = await target.operator(), await target.tenant("CONSUMER")
    place = ["--lat", str(PLACE[0]), "--lng", str(PLACE[1])]
    command = [sys.executable, "-m", "sightline.cli", "device", "--api", target.url, *place]
    env = os.environ | {"SIGHTLINE_API_KEY": operator.key, "SIGHTLINE_SOURCE": str(clip_path())}
    device = await trio.lowlevel.open_process(command, env=env)
    try:
        async with Api(target.url, key=consumer.key) as buyer:
            session = await buyer.post("/sessions", lat=PLACE[0], lng=PLACE[1], maxDurationSeconds=300)
            with trio.fail_after(60):
                dispatch = f"/sessions/{session['id']}/dispatch"
                while (await target.call("POST", dispatch, consumer.key)).status_code == 503:  # noqa: ASYNC110
                    await trio.sleep(0.2)
                while not any("sightline_client.video.publish" in line for line in command_lines(device.pid)):  # noqa: ASYNC110
                    await trio.sleep(0.05)
        shown = [*command_lines(device.pid), *command_lines(os.getpid())]
        leaks = [line for line in shown if "/whip/" in line or operator.key in line]
        assert leaks == [], f"{len(leaks)} command lines show a secret"
        return f"{len(shown)} command lines without a secret"
    finally:
        device.terminate()
        await device.wait()
