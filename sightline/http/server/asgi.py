"""Type names of ASGI 3.0 (asgi.readthedocs.io)."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

Scope: TypeAlias = dict[str, Any]
Message: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers: TypeAlias = list[tuple[bytes, bytes]]

DISCONNECT: Message = {"type": "http.disconnect"}


class ClientGoneError(OSError):
    """The client closed the connection while a response was being written."""
