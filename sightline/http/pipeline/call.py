"""What a handler gets and what it may return. Nothing here depends on a framework or a socket."""

from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Any, Protocol, TypeAlias, TypeVar, final

import trio

from sightline.actors.types import Answer, Caller
from sightline.domain.access import Principal, budget_of, may_publish
from sightline.domain.value import Value
from sightline.http.budgets import RateClass
from sightline.http.pipeline.headers import Headers
from sightline.ports.store import IdempotencyKey

T = TypeVar("T")
JsonObject: TypeAlias = Mapping[str, object]
TextHeaders: TypeAlias = tuple[tuple[str, str], ...]
Emit: TypeAlias = Callable[[bytes], Awaitable[None]]


@final
class Reply(Value):
    """`data` of the success envelope, its timestamp (None: now), and additional headers.

    A GET whose If-None-Match names the reply's `etag` header is answered 304.
    """

    data: JsonObject
    at_ms: int | None = None
    headers: TextHeaders = ()


def reply(answer: Answer[T], present: Callable[[T], JsonObject]) -> Reply:
    """Present the value of an answer as JSON."""
    return Reply(present(answer.value), answer.at_ms)


@final
class Raw(Value):
    """A response without envelope: images, pages, SDP, JSON-RPC."""

    status: int = 200
    headers: TextHeaders = ()
    body: bytes = b""


@final
class Stream(Value):
    """A response of unknown length. `write` runs until it returns; it is cancelled when the client disconnects."""

    write: Callable[[Emit], Awaitable[None]]
    headers: TextHeaders = ()


class SocketClosedError(Exception):
    """The WebSocket is closed."""

    def __init__(self, code: int) -> None:
        super().__init__(f"closed with {code}")
        self.code = code


class Socket(Protocol):
    """An accepted WebSocket."""

    async def receive(self) -> str | bytes:
        """Return the next message. Raises SocketClosedError."""
        ...

    async def send(self, text: str) -> None:
        """Send a message. Raises SocketClosedError."""
        ...

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close with a status code (RFC 6455, section 7.4)."""
        ...


@final
class Call(Value, kw_only=True):
    """One admitted call: its credential is authorized, and its parameters, query and body are valid."""

    method: str
    path: str
    query_string: bytes
    params: Mapping[str, str]
    query: Any
    body: Any
    raw_body: bytes
    headers: Headers
    principal: Principal | None
    request_id: str
    idempotency_key: str | None
    base_url: Callable[[], str]
    """How the caller reached us."""
    client: tuple[str, int]
    """Address and port; behind a proxy the port is 0."""
    take: Callable[[RateClass, str, int], object]
    charge_rate: Callable[[RateClass, str, int], object]
    """Take tokens for what a call turned out to cost, even if there are too few."""
    rate_wait_s: Callable[[RateClass, str], float]

    @property
    def client_ip(self) -> str:
        """The client's address."""
        return self.client[0]

    @property
    def workspace_id(self) -> str:
        """The principal's workspace. Only for routes whose operation requires one."""
        assert self.principal is not None
        assert self.principal.workspace_id is not None
        return self.principal.workspace_id

    @property
    def budget(self) -> str:
        """What the call's own rates are counted against. Only for routes whose operation requires a workspace."""
        assert self.principal is not None
        return budget_of(self.principal) or self.workspace_id

    @property
    def may_publish(self) -> bool:
        """Whether the caller may see the publish URL of its workspace's sessions."""
        return self.principal is not None and may_publish(self.principal)

    def idempotency(self, scope: str) -> IdempotencyKey | None:
        """The idempotency key of this call within `scope` (a workspace id, or a wallet address)."""
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
        """The workspace and idempotency key under which the actors run the command."""
        return Caller(workspace_id=self.workspace_id, idempotency=self.idempotency(self.workspace_id))

    def limit_rate(self, rate: RateClass, key: str) -> None:
        """Take a token inside a handler, for example for each message of a WebSocket.

        Raises:
            ApiError: RATE_LIMITED.
        """
        self.take(rate, key, 1)

    async def pace_rate(self, rate: RateClass, key: str, wait_ms: int) -> None:
        """Take a token, after waiting for it if it comes within `wait_ms`.

        Raises:
            ApiError: RATE_LIMITED if it does not.
        """
        wait_s = self.rate_wait_s(rate, key)
        if 0 < wait_s <= wait_ms / 1_000:
            await trio.sleep(wait_s)
        self.take(rate, key, 1)
