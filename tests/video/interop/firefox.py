"""Headless Firefox with a fake camera, which opens one page; the page runs a script and reports its result by HTTP."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from tests.video.support.http_server import Reply, listen, serve

PREFERENCES = {
    "media.navigator.streams.fake": True,
    "media.navigator.permission.disabled": True,
    "media.devices.insecure.enabled": True,
    "media.getusermedia.insecure.enabled": True,
    "media.peerconnection.ice.obfuscate_host_addresses": False,
    "media.autoplay.default": 0,
    "datareporting.policy.dataSubmissionEnabled": False,
    "app.update.disabledForTesting": True,
    # Otherwise a network without a default route may count as down, and no RTCPeerConnection can be made.
    "network.manage-offline-status": False,
}
PAGE = """<!doctype html><meta charset=utf-8><video muted playsinline></video><script src=/clients.js></script>
<script>
(async () => {
  let report;
  try { report = { value: await (%s) }; } catch (error) { report = { error: String(error) }; }
  await fetch("/report", { method: "POST", body: JSON.stringify(report) });
})();
</script>"""


@asynccontextmanager
async def a_firefox(
    clients: Path, script: str, *, host: str, port: int = 0, public_host: str = "", inside: tuple[str, ...]
) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
    """Run Firefox on a page with the clients and a script; gives a function that waits for the script's value.

    Args:
        host: Address of this machine by which Firefox reaches the page.
        public_host: Address by which Firefox reaches it, if it is another.
        inside: Start of the command that runs Firefox in a network namespace.
    """
    path = shutil.which("firefox-esr") or shutil.which("firefox")
    assert path is not None, "install Firefox: scripts/interop_video.sh"
    reported = trio.Event()
    reports: list[dict[str, Any]] = []
    library = await trio.Path(clients).read_bytes()

    async def handle(method: str, target: str, headers: dict[str, str], body: bytes) -> Reply:
        del headers
        if method == "POST":
            reports.append(json.loads(body))
            reported.set()
            return 204, [], b""
        if target == "/clients.js":
            return 200, [("Content-Type", "text/javascript")], library
        return 200, [("Content-Type", "text/html")], (PAGE % script).encode()

    async def report() -> Any:
        with trio.fail_after(90):
            await reported.wait()
        assert "value" in reports[0], reports[0]
        return reports[0]["value"]

    profile = tempfile.mkdtemp(prefix="interop-firefox-")
    lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in PREFERENCES.items()]
    await trio.Path(profile, "user.js").write_text("\n".join(lines))
    listeners, url = await listen(host, port)
    url = url.replace(host, public_host or host)
    async with trio.open_nursery() as nursery:
        serve(nursery, listeners, handle)
        process = await trio.lowlevel.open_process(
            [*inside, path, "--headless", "--no-remote", "--profile", profile, url],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield report
        finally:
            process.terminate()
            with trio.CancelScope(shield=True):
                with trio.move_on_after(10):
                    await process.wait()
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            shutil.rmtree(profile, ignore_errors=True)
            nursery.cancel_scope.cancel()
