"""What a handler gets and what it may give back. Nothing here knows a framework or a socket."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol, TypeAlias, final

import trio

from sightline.actors.types import Answer as Answer
from sightline.actors.types import Caller
from sightline.domain.access import Principal
from sightline.http.pipeline.headers import Headers
from sightline.http.pipeline.routes import AnyRoute, RateClass
from sightline.ports.store import IdempotencyKey

TextHeaders: TypeAlias = tuple[tuple[str, str], ...]
Emit: TypeAlias = Callable[[bytes], Awaitable[None]]


@final
@dataclass(frozen=True, slots=True)
class Reply:
    """The success envelope with headers of its own. `at_ms` None: now.

    An `etag` that the caller's If-None-Match names turns a GET's answer into 304.
    """

    data: Mapping[str, object]
    at_ms: int | None = None
    headers: TextHeaders = ()


@final
@dataclass(slots=True)
class Raw:
    """An answer without envelope: pictures, pages, SDP, JSON-RPC."""

    status: int = 200
    headers: TextHeaders = ()
    body: bytes = b""


@final
@dataclass(frozen=True, slots=True)
class Stream:
    """An answer without declared end. `write` runs until it returns and is cancelled when the client leaves."""

    write: Callable[[Emit], Awaitable[None]]
    headers: TextHeaders = ()


class SocketClosedError(Exception):
    """The WebSocket has ended."""

    def __init__(self, code: int) -> None:
        super().__init__(f"closed with {code}")
        self.code = code


class Socket(Protocol):
    """An accepted WebSocket."""

    async def receive(self) -> str | bytes:
        """The next message. Raises SocketClosedError."""
        ...

    async def send(self, text: str) -> None:
        """Send a message. Raises SocketClosedError."""
        ...

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Say goodbye."""
        ...


@final
@dataclass(slots=True, kw_only=True)
class Call:
    """One call, admitted: the credential may make it, and its parts are valid.

    Never changed once made. Not frozen all the same, nor are Raw and the pipeline's Outgoing: each call makes one, and
    to make a frozen one takes four times as long.
    """

    route: AnyRoute
    method: str
    path: str
    params: Mapping[str, str]
    query: Any
    body: Any
    raw_body: bytes
    headers: Headers
    principal: Principal | None
    request_id: str
    idempotency_key: str | None
    base_url: str
    client_ip: str
    take: Callable[[RateClass, str, int], object]
    rate_wait_s: Callable[[RateClass, str], float]

    @property
    def workspace_id(self) -> str:
        """The principal's workspace. Only for routes whose operation needs one."""
        assert self.principal is not None
        assert self.principal.workspace_id is not None
        return self.principal.workspace_id

    @property
    def consistency_token(self) -> str | None:
        """What an earlier answer said must be seen."""
        return self.headers.get("x-svc-consistency-token")

    def idempotency(self, scope: str) -> IdempotencyKey | None:
        """The key that makes a repeat of this call the same call, within `scope` (a workspace, or a wallet)."""
        if self.idempotency_key is None:
            return None
        return IdempotencyKey(
            workspace_id=scope,
            method=self.method,
            path=self.path,
            key=self.idempotency_key,
            body_hash=sha256(self.raw_body).hexdigest(),
        )

    def caller(self) -> Caller:
        """On whose behalf the actors act."""
        return Caller(workspace_id=self.workspace_id, idempotency=self.idempotency(self.workspace_id))

    def limit_rate(self, rate: RateClass, key: str, cost: int = 1) -> None:
        """Take tokens inside a handler, for example for each message of a WebSocket.

        Raises:
            ApiError: RATE_LIMITED.
        """
        self.take(rate, key, cost)

    async def pace_rate(self, rate: RateClass, key: str, wait_ms: int) -> None:
        """Take a token, after waiting for it if it comes within `wait_ms`.

        Raises:
            ApiError: RATE_LIMITED if it does not.
        """
        wait_s = self.rate_wait_s(rate, key)
        if 0 < wait_s <= wait_ms / 1_000:
            await trio.sleep(wait_s)
        self.take(rate, key, 1)
