"""/mcp: the MCP server of sightline-client, in front of this server's own API and with the caller's API key.

Each tool calls the public API in process, so scopes, limits, rates and log lines are those of every other call. So does
each request to /mcp, before the MCP server sees it: it asks the API whose the key is, which takes a token of the
workspace's rate, or of the address's budget of refused credentials (ADR 0176).
"""

import importlib
from typing import TYPE_CHECKING, Final, final

import orjson
import trio
from msgspec import Struct, field

from sightline.http.pipeline.listener_access import AllowedHosts
from sightline.http.resources.oauth.endpoints import PROTECTED_RESOURCE
from sightline.http.resources.streams import RETRY_AFTER_S, StreamSlots
from sightline.http.server import ASGIApp, Headers, Message, Receive, Scope, Send

if TYPE_CHECKING:
    from sightline.http.asgi.mcp_tools import McpTools

PATH: Final = "/mcp"
TOOLS: Final = "sightline.http.asgi.mcp_tools"
CALLS_MAX: Final = 100
"""Calls of one workspace that may run at once; some of them wait up to 20 s."""
WHO: Final = "/api/v1/me"
BUSY: Final = b'{"error": "The workspace has too many calls in flight; send it again later"}'
NOT_POST: Final = b'{"error": "This endpoint has no sessions and no streams of its own: send POST"}'
BAD_CONFIRM: Final = b'{"error": "confirm is auto, always or never"}'
MISDIRECTED: Final = b'{"error": "This server does not serve the host of the Host header"}'


@final
class McpEndpoint:
    """The public application with /mcp added."""

    def __init__(
        self, api: ASGIApp, public_url: str, hosts: AllowedHosts, state_key: bytes, *, stated_url: str | None = None
    ) -> None:  # fmt: skip
        """Create the endpoint.

        Args:
            stated_url: The public URL that the host has set; None: clients are told the one that they use.
            hosts: The hosts that a Host header may name; another one gets 421.
            state_key: Encrypts what a client sends back with the answer to a question. Servers that share it accept
                each other's.
        """
        self._api = api
        self._hosts = hosts
        self._public_url = public_url
        self._stated_url = stated_url
        self._calls = StreamSlots(CALLS_MAX)
        self._state_key = state_key
        self._loading = trio.Lock()
        self._tools: McpTools | None = None
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the MCP server, once it is loaded, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http" or scope["path"] != PATH:
            await self._api(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        if not self._hosts.admits(headers.get(b"host", "")):
            await _refuse(send, 421, MISDIRECTED)
            return
        who = await self._ask_who(scope)
        if who.workspace_id is None:
            await _send(send, who.status, self._challenging(who, scope, headers), who.body)
        elif scope["method"] != "POST":
            await _refuse(send, 405, NOT_POST, (b"allow", b"POST"))
        elif not self._calls.is_free(who.workspace_id):
            await _refuse(send, 429, BUSY, (b"retry-after", b"%d" % RETRY_AFTER_S))
        else:
            with self._calls.held(who.workspace_id):
                tools = await self._loaded()
                if tools.understands(scope["query_string"]):
                    await tools(scope, receive, send)
                else:
                    await _refuse(send, 400, BAD_CONFIRM)

    async def _loaded(self) -> "McpTools":
        """The MCP server, imported and started at the first call."""
        async with self._loading:
            if self._tools is None:
                assert self._nursery is not None, "not running"
                module = await trio.to_thread.run_sync(importlib.import_module, TOOLS)
                tools: McpTools = module.McpTools(self._api, self._public_url, PATH, self._state_key)
                await self._nursery.start(tools.run)
                self._tools = tools
        return self._tools

    def _challenging(self, who: "_Collected", scope: Scope, sent: dict[bytes, str]) -> Headers:
        """The headers of a refusal; a 401 says where a client learns how to get access.

        Source: RFC 9728, section 5.1; RFC 6750, section 3.
        """
        if who.status != 401:
            return who.headers
        scheme = "https" if scope["scheme"] == "https" else "http"
        base = self._stated_url or f"{scheme}://{sent.get(b'host', '')}"
        error = 'error="invalid_token", ' if b"authorization" in sent else ""
        challenge = f'Bearer {error}resource_metadata="{base}{PROTECTED_RESOURCE}{PATH}"'
        kept = [pair for pair in who.headers if pair[0] != b"www-authenticate"]
        return [*kept, (b"www-authenticate", challenge.encode("latin-1"))]

    async def _ask_who(self, scope: Scope) -> "_Collected":
        """Ask the API whose the key is; the answer of a refused key is the one that its caller gets.

        A request without a key is asked with an empty one, so that it counts as a refused credential of its address.
        """
        kept = [pair for pair in scope["headers"] if pair[0] in (b"host", b"x-request-id", b"authorization")]
        if not any(name == b"authorization" for name, _ in kept):
            kept.append((b"authorization", b"Bearer"))
        asked = {"method": "GET", "path": WHO, "raw_path": WHO.encode(), "query_string": b"", "headers": kept}
        collected = _Collected()
        await self._api({**scope, **asked, "extensions": {}}, collected.receive, collected.send)
        return collected


@final
class _Collected(Struct):
    """A call in process: it has no body, its caller stays, and its answer is kept."""

    is_received: bool = False
    status: int = 0
    headers: Headers = field(default_factory=list)
    body: bytes = b""

    async def receive(self) -> Message:
        """ASGI."""
        if self.is_received:
            await trio.sleep_forever()  # the application waits for the disconnect of its caller
        self.is_received = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(self, message: Message) -> None:
        """ASGI."""
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message["headers"])
        else:
            self.body += message.get("body", b"")

    @property
    def workspace_id(self) -> str | None:
        """The workspace of the key; None if the key was refused."""
        return str(orjson.loads(self.body)["data"]["workspaceId"]) if self.status == 200 else None


async def _refuse(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    length = b"%d" % len(body)
    await _send(send, status, [(b"content-type", b"application/json"), (b"content-length", length), *headers], body)


async def _send(send: Send, status: int, headers: Headers, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
