"""The MCP server behind /mcp: the tools of sightline-client on this server's own API.

Imported at the first call to /mcp: the MCP library costs half a second of CPU, and many servers are never asked.
"""

from hashlib import sha256
from typing import Any, Final, final
from urllib.parse import parse_qs

import httpx2
import trio
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import Context
from mcp.server.request_state import RequestStateSecurity
from mcp.server.transport_security import TransportSecuritySettings

from sightline.http.server import ASGIApp, Receive, Scope, Send
from sightline_client import AsyncSightline
from sightline_client.mcp_confirm import Confirm
from sightline_client.mcp_server import build_server

BODY_BYTES_MAX: Final = 65_536
# McpEndpoint checks the Host header itself, by the list of the whole listener.
SECURITY: Final = TransportSecuritySettings(enable_dns_rebinding_protection=False)


@final
class McpTools:
    """An MCP server whose tools call the API in process, with the API key of their caller."""

    def __init__(self, api: ASGIApp, public_url: str, path: str, state_key: bytes) -> None:
        """Create the server; it answers while `run` runs.

        Args:
            path: Path of the endpoint.
            state_key: Encrypts what a client sends back with the answer to a question. Servers that share it accept
                each other's.
        """
        self._api = api
        self._public_url = public_url
        security = RequestStateSecurity(keys=[state_key], bind_principal=_caller_of)
        self._server = build_server(self._connect, _confirm_of_context, security)
        self._mcp = self._server.streamable_http_app(
            streamable_http_path=path,
            json_response=True,
            stateless_http=True,
            max_request_body_size=BODY_BYTES_MAX,
            transport_security=SECURITY,
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the tasks of MCP requests until cancelled."""
        async with self._server.session_manager.run():
            task_status.started()
            await trio.sleep_forever()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        await self._mcp(scope, receive, send)  # type: ignore[arg-type]  # a plain dict is a scope

    def understands(self, query: bytes) -> bool:
        """Return whether the `confirm` of a URL's query is one of the known values, or absent."""
        return _confirm_of(query.decode("latin-1")) is not None

    def _connect(self, ctx: Context[Any, Any]) -> "OwnApi":
        request = ctx.request_context.request
        address = request.client if request is not None else None
        key = bearer_token((ctx.headers or {}).get("authorization", ""))
        return OwnApi(self._api, self._public_url, key or "", tuple(address) if address else ("127.0.0.1", 0))


@final
class OwnApi:
    """Opens a client whose calls stay in this process. They count for the address of the MCP caller."""

    def __init__(self, api: ASGIApp, public_url: str, key: str, address: tuple[str, int]) -> None:
        transport = httpx2.ASGITransport(app=api, raise_app_exceptions=False, client=address)  # type: ignore[arg-type]
        self._http = httpx2.AsyncClient(transport=transport)
        self._client = AsyncSightline(public_url, key, http=self._http)

    async def __aenter__(self) -> AsyncSightline:
        return self._client

    async def __aexit__(self, *_error: object) -> None:
        await self._http.aclose()


def bearer_token(header: str) -> str | None:
    """Return the token of an Authorization header; None if it has none."""
    scheme, _, token = header.partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def _confirm_of(query: str) -> Confirm | None:
    """Read `confirm` of the URL that the user gave to the host; None if it is none of the known values."""
    said = parse_qs(query, keep_blank_values=True).get("confirm", [Confirm.AUTO])[-1]
    return Confirm(said) if said in set(Confirm) else None


def _confirm_of_context(ctx: Context[Any, Any]) -> Confirm:
    request = ctx.request_context.request
    return (_confirm_of(request.url.query) if request is not None else None) or Confirm.ALWAYS


def _caller_of(ctx: ServerRequestContext[Any, Any]) -> str | None:
    """Bind a pending confirmation, which the client sends back with its answer, to the API key that started it."""
    token = bearer_token(ctx.request.headers.get("authorization", "")) if ctx.request is not None else None
    return None if token is None else sha256(token.encode()).hexdigest()
