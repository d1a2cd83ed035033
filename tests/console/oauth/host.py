"""A host of MCP in a thread of its own: the official client with its OAuth provider, and its loopback redirect."""

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import trio
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

PATIENCE_S = 60


@dataclass
class Kept:
    """What the host keeps of its access."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


@dataclass
class AgentHost:
    """Runs tools when it is told to, and asks for a browser when the server wants a sign-in."""

    url: str
    redirect_uri: str
    kept: Kept = field(default_factory=Kept)
    said: "queue.Queue[Any]" = field(default_factory=queue.Queue)
    """URLs that the host wants a browser to open, results of calls, and errors, in order."""
    answers: "queue.Queue[dict[str, list[str]]]" = field(default_factory=queue.Queue)
    """What the browser brought to the redirect URI."""
    calls: "queue.Queue[tuple[str, dict[str, Any]] | None]" = field(default_factory=queue.Queue)

    def call(self, tool: str, **arguments: Any) -> None:
        """Call a tool; `result` returns what it answers."""
        self.calls.put((tool, arguments))

    def result(self) -> Any:
        """The answer of the next call; raises what the client raised."""
        found = self.next()
        assert not isinstance(found, str), f"the host asks for a sign-in: {found}"
        assert not found.is_error, found.content
        return found

    def browse(self) -> str:
        """The URL that the host asks a browser to open."""
        found = self.next()
        assert isinstance(found, str), found
        return found

    def next(self) -> Any:
        """A URL to open, or the result of a call."""
        found = self.said.get(timeout=PATIENCE_S)
        if isinstance(found, BaseException):
            raise found
        return found

    async def run(self) -> None:
        async def open_browser(url: str) -> None:
            self.said.put(url)

        async def wait_for_answer() -> AuthorizationCodeResult:
            fields = await trio.to_thread.run_sync(self.answers.get, abandon_on_cancel=True)
            first = {name: values[0] for name, values in fields.items()}
            return AuthorizationCodeResult(code=first.get("code", ""), state=first.get("state"), iss=first.get("iss"))

        described = {"client_name": "Harbour agent", "redirect_uris": [self.redirect_uri]}
        metadata = OAuthClientMetadata.model_validate(described)
        provider = OAuthClientProvider(f"{self.url}/mcp", metadata, self.kept, open_browser, wait_for_answer)
        try:
            async with (
                httpx2.AsyncClient(auth=provider, timeout=PATIENCE_S) as http,
                Client(streamable_http_client(f"{self.url}/mcp?confirm=never", http_client=http)) as client,
            ):
                while (call := await trio.to_thread.run_sync(self.calls.get, abandon_on_cancel=True)) is not None:
                    self.said.put(await client.call_tool(*call))
        except BaseException as error:  # noqa: BLE001  raised by `result` in the test's thread
            self.said.put(error)


def text_of(result: Any) -> dict[str, Any]:
    """The JSON that a tool has answered."""
    found: dict[str, Any] = json.loads(result.content[-1].text)
    return found


@contextmanager
def an_agent_host(url: str) -> Iterator[AgentHost]:
    """Run a host. Its redirect URI is a page of its own on this machine."""
    host = AgentHost(url, "")

    class Answered(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<link rel=icon href='data:,'><p id=back>The agent goes on.</p>")
            host.answers.put(parse_qs(urlsplit(self.path).query))

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name of the base class
            """Print nothing."""

    listener = HTTPServer(("127.0.0.1", 0), Answered)
    host.redirect_uri = f"http://127.0.0.1:{listener.server_port}/callback"
    serving = threading.Thread(target=listener.serve_forever)
    running = threading.Thread(target=trio.run, args=(host.run,), daemon=True)
    serving.start()
    running.start()
    try:
        yield host
    finally:
        host.calls.put(None)
        host.answers.put({})  # a host that still waits for a browser gives up
        running.join(PATIENCE_S)
        listener.shutdown()
        serving.join()
        listener.server_close()
