"""Headless Chromium with a fake camera, driven over its debugging pipe (no websocket, no extra package)."""

import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

PAGE = (
    b"<!doctype html><meta charset=utf-8><title>interop</title>"
    b"<video muted playsinline></video><script src=/clients.js></script>"
)
# The debugging pipe uses descriptors 3 and 4. The descriptors are moved here because some shells cannot redirect
# numbers above 9.
LAUNCH = (
    "import os, sys; a, b = os.dup(int(sys.argv[1])), os.dup(int(sys.argv[2]));"
    "a, b = os.dup(a), os.dup(b); os.dup2(a, 103); os.dup2(b, 104); os.dup2(103, 3); os.dup2(104, 4);"
    "os.execv(sys.argv[3], sys.argv[3:])"
)
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--mute-audio",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    "--autoplay-policy=no-user-gesture-required",
    "--remote-debugging-pipe",
    "--disable-features=WebRtcHideLocalIpsWithMdns",
)


def chromium_path() -> str | None:
    """Return the path of Chromium if it is installed."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page:
    """One browser tab."""

    def __init__(self, browser: "Browser", session: str) -> None:
        self._browser = browser
        self._session = session
        self.errors: list[str] = []

    async def run(self, expression: str, *, within_s: float = 90) -> Any:
        """Evaluate an expression, await its promise, and return its value."""
        with trio.fail_after(within_s):
            reply = await self._browser.call(
                "Runtime.evaluate",
                {"expression": expression, "awaitPromise": True, "returnByValue": True, "userGesture": True},
                self._session,
            )
        if "exceptionDetails" in reply:
            details = reply["exceptionDetails"]
            raise AssertionError(f"{expression}: {details.get('exception', {}).get('description', details)}")
        return reply["result"].get("value")


class Browser:
    """A running Chromium."""

    def __init__(self, write: trio.lowlevel.FdStream, read: trio.lowlevel.FdStream) -> None:
        self._write = write
        self._read = read
        self._ids = itertools.count(1)
        self._waiting: dict[int, tuple[trio.Event, list[dict[str, Any]]]] = {}
        self._pages: dict[str, Page] = {}

    async def pump(self) -> None:
        """Deliver the browser's messages."""
        buffer = b""
        while data := await self._read.receive_some(65536):
            buffer += data
            *whole, buffer = buffer.split(b"\0")
            for text in whole:
                self._deliver(json.loads(text))

    def _deliver(self, message: dict[str, Any]) -> None:
        if "id" in message:
            event, slot = self._waiting.pop(message["id"])
            slot.append(message)
            event.set()
            return
        page = self._pages.get(message.get("sessionId", ""))
        if page is None:
            return
        parameters = message.get("params", {})
        if message["method"] == "Runtime.exceptionThrown":
            page.errors.append(str(parameters["exceptionDetails"].get("exception", {}).get("description")))
        elif message["method"] == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            page.errors.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")
        elif message["method"] == "Runtime.consoleAPICalled" and parameters["type"] == "error":
            page.errors.append(" ".join(str(arg.get("value", arg.get("description"))) for arg in parameters["args"]))

    async def call(self, method: str, parameters: dict[str, Any] | None = None, session: str | None = None) -> Any:
        """Send one command of the DevTools protocol."""
        number = next(self._ids)
        slot: list[dict[str, Any]] = []
        event = trio.Event()
        self._waiting[number] = (event, slot)
        message = {"id": number, "method": method, "params": parameters or {}}
        if session is not None:
            message["sessionId"] = session
        await self._write.send_all(json.dumps(message).encode() + b"\0")
        await event.wait()
        if "error" in slot[0]:
            raise AssertionError(f"{method}: {slot[0]['error']}")
        return slot[0]["result"]

    async def open(self, url: str) -> Page:
        """Open a new tab at a URL and wait until it is loaded."""
        target = await self.call("Target.createTarget", {"url": "about:blank"})
        attached = await self.call("Target.attachToTarget", {"targetId": target["targetId"], "flatten": True})
        session = attached["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Runtime", "Log", "Page"):
            await self.call(f"{domain}.enable", session=session)
        await self.call("Page.navigate", {"url": url}, session)
        with trio.fail_after(90):
            while await page.run("typeof window.watched") != "function":  # noqa: ASYNC110  # a browser has no event
                await trio.sleep(0.05)
        return page


async def _serve_page(script: bytes, stream: trio.SocketStream) -> None:
    async with stream:
        request = b""
        while b"\r\n\r\n" not in request:
            data = await stream.receive_some(4096)
            if not data:
                return
            request += data
        path = request.split(b" ")[1]
        body, kind = (script, b"text/javascript") if path == b"/clients.js" else (PAGE, b"text/html")
        if path == b"/favicon.ico":
            body = b""
        head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
        await stream.send_all(head % (kind, len(body)) + body)


@asynccontextmanager
async def a_browser(
    script: Path,
    *,
    flags: tuple[str, ...] = (),
    host: str = "127.0.0.1",
    port: int = 0,
    public_host: str = "",
    inside: tuple[str, ...] = (),
) -> AsyncIterator[tuple[Browser, str]]:
    """Run Chromium with extra flags and serve the test page to it; gives the browser and the page's URL.

    Args:
        host: Address of this machine by which the browser reaches the page.
        public_host: Address by which the browser reaches it, if it is another.
        inside: Start of the command that runs the browser in a network namespace.
    """
    path = chromium_path()
    assert path is not None, "install Chromium: scripts/interop_video.sh"
    to_child, from_parent = os.pipe()
    from_child, to_parent = os.pipe()
    profile = tempfile.mkdtemp(prefix="interop-chromium-")
    listeners = await trio.open_tcp_listeners(port, host=host)
    authority = f"[{host}]" if ":" in host else public_host or host
    page_url = f"http://{authority}:{listeners[0].socket.getsockname()[1]}"
    command = [*inside, sys.executable, "-c", LAUNCH, str(to_child), str(to_parent), path, *FLAGS]
    process = await trio.lowlevel.open_process(
        [
            *command,
            *flags,
            f"--unsafely-treat-insecure-origin-as-secure={page_url}",  # cameras need a secure context
            f"--user-data-dir={profile}",
            "about:blank",
        ],
        pass_fds=(to_child, to_parent),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_child)
    os.close(to_parent)
    body = await trio.Path(script).read_bytes()
    try:
        async with (
            trio.lowlevel.FdStream(from_parent) as write,
            trio.lowlevel.FdStream(from_child) as read,
            trio.open_nursery() as nursery,
        ):
            browser = Browser(write, read)
            nursery.start_soon(browser.pump)
            nursery.start_soon(trio.serve_listeners, lambda stream: _serve_page(body, stream), listeners)
            yield browser, f"{page_url}/"
            with trio.move_on_after(3):
                await browser.call("Browser.close")
            nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True), trio.move_on_after(5):
            await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()
        shutil.rmtree(profile, ignore_errors=True)
