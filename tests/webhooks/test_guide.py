"""docs/guides/webhooks.md: its receiver runs, verifies what the service sends, and refuses what it did not sign."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import trio

from sightline.domain.value import replace
from sightline.domain.webhooks import RETRY_SECONDS
from sightline.system.clock import SystemClock
from sightline.webhooks.http_client import SendOutcome, WebhookClient, WebhookClientOptions
from tests.webhooks.test_signing import ENDPOINT, MESSAGE, SIGNER

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "webhooks.md").read_text()
PATIENCE_S = 60


def free_port() -> int:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port: int = reserved.getsockname()[1]
        return port


def spawn(command: list[str], env: dict[str, str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


async def first_answer(client: WebhookClient, url: str, body: str) -> SendOutcome:
    """Send a message, again while the receiver is starting."""
    headers = SIGNER.headers(ENDPOINT, MESSAGE, SystemClock().now_ms())
    with trio.fail_after(PATIENCE_S):
        while True:
            outcome = await client.post(url, headers, body)
            if outcome.error != "connect_failed":
                return outcome
            await trio.sleep(0.05)


async def test_the_receiver_of_the_guide_takes_a_message_once_and_refuses_a_forged_one(tmp_path: Path) -> None:
    found = re.search(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    assert found is not None
    (tmp_path / "receiver.py").write_text(found[1])
    port = free_port()
    env = os.environ | {"WEBHOOK_SECRET": SIGNER.secret_text(ENDPOINT), "PORT": str(port)}
    client = WebhookClient(SystemClock(), WebhookClientOptions(allows_loopback=True))
    command = [sys.executable, str(tmp_path / "receiver.py")]
    process = spawn(command, env)
    try:
        url = f"http://127.0.0.1:{port}/"
        assert (await first_answer(client, url, MESSAGE.body)).status == 204
        assert (await first_answer(client, url, MESSAGE.body)).status == 204
        forged = replace(MESSAGE, body=MESSAGE.body + " ")
        assert (await first_answer(client, url, forged.body)).status == 401
        await client.close()
    finally:
        process.terminate()
        printed, _ = await trio.to_thread.run_sync(process.communicate)
    assert printed.decode().splitlines() == ['session.live {"name": "\\u00fcn\\u00ef"}']


def test_the_guide_names_the_waits_of_the_schedule() -> None:
    shown = "5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h and 24 h"
    assert shown in GUIDE
    units = {"s": 1, "min": 60, "h": 3_600}
    numbers = re.findall(r"(\d+) (s|min|h)", shown)
    assert tuple(int(number) * units[unit] for number, unit in numbers) == RETRY_SECONDS
