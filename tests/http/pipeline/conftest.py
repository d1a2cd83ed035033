"""A tiny route table behind the real pipeline and the real server."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import httpx
import pytest
import trio
from pydantic import Field

from sightline.domain.access import ApiKeyPrincipal, Operation, Principal, Role, Scope, WalletPrincipal, may_call
from sightline.domain.errors import (
    AuthzUnavailableError,
    OutcomeUnknownError,
    RefusedError,
    StoreUnavailableError,
    VideoUnavailableError,
)
from sightline.domain.refusal import Code, Refusal
from sightline.http.asgi.app import PipelineOptions, PipelineServices, build_app
from sightline.http.budgets import RateLimits
from sightline.http.pipeline.call import Call, Raw, Reply, Socket, Stream
from sightline.http.pipeline.errors import render_fault
from sightline.http.pipeline.headers import Headers
from sightline.http.pipeline.listener_access import ListenerAccess
from sightline.http.pipeline.routes import AnyRoute, Link, Param, RateClass, Route, SocketRoute
from sightline.http.schemas.base import Input, Output, Query
from sightline.http.server import Bound, ListenerOptions, ServerOptions, serve

NOW_MS = 1_700_000_000_123
WORKSPACE = "11111111-1111-4111-8111-111111111111"
FOREIGN = Refusal(Code.NOT_AUTHORIZED, "auth:origin")


class ThingInput(Input):
    AREA: ClassVar[str] = "thing"
    name: str = Field(min_length=1)
    size: int = Field(default=3, ge=1)


class ThingQuery(Query):
    AREA: ClassVar[str] = "thing"
    color: str | None = None
    tag: tuple[str, ...] = ()


class Thing(Output):
    id: str
    name: str


class TestIds:
    """Predictable ids."""

    __test__ = False

    def __init__(self) -> None:
        self.count = 0

    def uuid(self) -> str:
        self.count += 1
        return f"00000000-0000-4000-8000-{self.count:012d}"

    def token_bytes(self, count: int) -> bytes:
        return bytes(count)


class FixedClock:
    def now_ms(self) -> int:
        return NOW_MS


PRINCIPALS: dict[str, Principal] = {
    "reader": ApiKeyPrincipal(workspace_id=WORKSPACE, key_id="key-1", scopes=frozenset({Scope.SESSIONS_READ})),
    "creator": ApiKeyPrincipal(workspace_id=WORKSPACE, key_id="key-2", scopes=frozenset({Scope.SESSIONS_CREATE})),
    "unselected": WalletPrincipal(
        session_id="00000000-0000-4000-8000-00000000000a",
        wallet_address="0xWallet",
        workspace_id=None,
        role=None,
        signed_in_at_ms=0,
        expires_at_ms=9,
    ),
    "viewer": WalletPrincipal(
        session_id="00000000-0000-4000-8000-00000000000a",
        wallet_address="0xWallet",
        workspace_id=WORKSPACE,
        role=Role.VIEWER,
        signed_in_at_ms=0,
        expires_at_ms=9,
    ),
    "owner": WalletPrincipal(
        session_id="00000000-0000-4000-8000-00000000000a",
        wallet_address="0xWallet",
        workspace_id=WORKSPACE,
        role=Role.OWNER,
        signed_in_at_ms=0,
        expires_at_ms=9,
    ),
}


async def authenticate(headers: Headers) -> Principal:
    principal = PRINCIPALS.get((headers.get("authorization") or "").removeprefix("Bearer "))
    if principal is None:
        raise RefusedError(Refusal(Code.NOT_AUTHENTICATED))
    return principal


async def authorize(principal: Principal, operation: Operation) -> Principal:
    refusal = may_call(principal, operation)
    if refusal is not None:
        raise RefusedError(refusal)
    return principal


def check_origin(
    principal: Principal | None, method: str, headers: Headers, own: frozenset[str], is_websocket: bool
) -> Refusal | None:
    origin = headers.get("origin")
    if isinstance(principal, ApiKeyPrincipal) or origin is None or origin in own:
        return None
    return FOREIGN


@dataclass
class Stage:
    """What the handlers of the table meet and tell."""

    seen: list[Call] = field(default_factory=list)
    entered: trio.Event = field(default_factory=trio.Event)
    go: trio.Event = field(default_factory=trio.Event)
    finished: trio.Event = field(default_factory=trio.Event)
    cancelled: trio.Event = field(default_factory=trio.Event)
    calls: list[tuple[str, str, int]] = field(default_factory=list)
    observed: trio.Event = field(default_factory=trio.Event)

    def table(self) -> list[AnyRoute]:
        both = [self._things(prefix, is_hot=hot) for prefix, hot in (("quart", False), ("hot", True))]
        return [route for routes in both for route in routes] + [
            SocketRoute(
                path="/socket/{id}", operation_id="socket", tag="s", summary="s", handler=self.talk,
                operation=Operation.READ_SESSION,
            )
        ]  # fmt: skip

    def _things(self, prefix: str, *, is_hot: bool) -> list[AnyRoute]:
        make = partial(Route, tag="things", summary="A thing", is_hot=is_hot)
        return [
            make(method="GET", path=f"/{prefix}/public", operation_id=f"{prefix}Public", handler=self.echo,
                 query=ThingQuery, output=Thing, rate=RateClass.NONE),
            make(method="GET", path=f"/{prefix}/limited", operation_id=f"{prefix}Limited", handler=self.echo,
                 rate=RateClass.LIST),
            make(method="POST", path=f"/{prefix}/things", operation_id=f"{prefix}Create", handler=self.create,
                 operation=Operation.CREATE_SESSION, body=ThingInput, output=Thing, rate=RateClass.NONE,
                 links=(Link(f"{prefix}Get", {"id": "$response.body#/data/id"}),)),
            make(method="GET", path=f"/{prefix}/things/{{id}}", operation_id=f"{prefix}Get", handler=self.echo,
                 operation=Operation.READ_SESSION, output=Thing, rate=RateClass.NONE,
                 errors=(Code.SESSION_NOT_FOUND,)),
            make(method="GET", path=f"/{prefix}/tagged", operation_id=f"{prefix}Tagged", handler=self.tagged,
                 rate=RateClass.NONE),
            make(method="GET", path=f"/{prefix}/raise/{{what}}", operation_id=f"{prefix}Raise",
                 handler=self.fail, params={"what": Param.TEXT}, rate=RateClass.NONE),
            make(method="POST", path=f"/{prefix}/raise/{{what}}", operation_id=f"{prefix}RaisePost",
                 handler=self.fail, params={"what": Param.TEXT}, rate=RateClass.NONE),
            make(method="POST", path=f"/{prefix}/slow", operation_id=f"{prefix}Slow", handler=self.slow,
                 rate=RateClass.NONE),
            make(method="GET", path=f"/{prefix}/stream", operation_id=f"{prefix}Stream", handler=self.stream,
                 media_type="text/event-stream", rate=RateClass.NONE),
            make(method="POST", path=f"/{prefix}/sdp", operation_id=f"{prefix}Sdp", handler=self.raw,
                 raw_body=("application/sdp",), media_type="application/sdp", rate=RateClass.NONE),
        ]  # fmt: skip

    async def echo(self, call: Call) -> Reply:
        self.seen.append(call)
        query = None if call.query is None else {"color": call.query.color, "tag": list(call.query.tag)}
        return Reply({"params": dict(call.params), "query": query, "baseUrl": call.base_url()})

    async def create(self, call: Call) -> Reply:
        self.seen.append(call)
        return Reply({"name": call.body.name, "size": call.body.size}, 1000)

    async def tagged(self, call: Call) -> Reply:
        return Reply({"x": 1}, headers=(("ETag", '"7"'),))

    async def raw(self, call: Call) -> Raw:
        return Raw(201, (("content-type", "application/sdp"), ("location", "/x")), call.raw_body[::-1])

    async def fail(self, call: Call) -> Reply:
        errors: dict[str, Exception] = {
            "bug": ValueError("secret"),
            "store": StoreUnavailableError("secret"),
            "video": VideoUnavailableError("secret", retry_after_s=7),
            "authz": AuthzUnavailableError("secret"),
            "unknown": OutcomeUnknownError("secret"),
            "refused": RefusedError(Refusal(Code.CONFLICT, "thing:taken", "It is taken", 4)),
            "group": ExceptionGroup("secret", [RefusedError(Refusal(Code.CONFLICT, "thing:taken"))]),
        }
        raise errors[call.params["what"]]

    async def slow(self, call: Call) -> Reply:
        self.entered.set()
        await self.go.wait()
        self.finished.set()
        return Reply({})

    async def stream(self, call: Call) -> Stream:
        async def write(emit: Any) -> None:
            try:
                await emit(b"data: 1\n\n")
                await self.go.wait()
                await emit(b"data: 2\n\n")
                await trio.sleep_forever()
            finally:
                self.cancelled.set()

        return Stream(write, (("content-type", "text/event-stream"),))

    async def talk(self, call: Call, socket: Socket) -> None:
        while True:
            text = await socket.receive()
            if text == "refuse":
                raise RefusedError(Refusal(Code.CONFLICT, "thing:taken"))
            await socket.send(f"{call.params['id'][:2]}:{text!r}")


@dataclass
class Running:
    http: httpx.AsyncClient
    bound: Bound
    stage: Stage
    shutdown: trio.Event


@asynccontextmanager
async def _running(
    *,
    rate_limits: RateLimits | None = None,
    public_url: str | None = None,
    h2c: bool = False,
    strict_transport_s: int | None = None,
    access: ListenerAccess | None = None,
    owns_data: bool = True,
) -> AsyncIterator[Running]:
    stage, ids, clock = Stage(), TestIds(), FixedClock()

    def observe(route: str, method: str, status: int, seconds: float) -> None:
        stage.calls.append((route, method, status))
        stage.observed.set()

    edge = PipelineServices(
        authenticate=authenticate,
        authorize=authorize,
        check_origin=check_origin,
        clock=clock,
        ids=ids,
        observe=observe,
        owns_data=lambda: owns_data,
    )
    options = PipelineOptions(
        rate_limits=rate_limits or RateLimits(),
        public_url=public_url,
        strict_transport_s=strict_transport_s,
        access=access or ListenerAccess(),
    )
    app = build_app(stage.table(), edge, options)
    server = ServerOptions(
        listeners=(ListenerOptions(port=0, h2c=h2c),),
        render_fault=render_fault(clock, ids, strict_transport_s),
        clock=clock,
        sweep_s=0.02,
    )
    shutdown = trio.Event()
    async with trio.open_nursery() as nursery:
        bounds: list[Bound] = await nursery.start(partial(serve, app, server, shutdown=shutdown))
        with trio.fail_after(20):
            async with httpx.AsyncClient(base_url=bounds[0].url, verify=False) as http:
                yield Running(http, bounds[0], stage, shutdown)
        nursery.cancel_scope.cancel()


StartApp = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture
def running() -> StartApp:
    """Start the table: `async with running() as app`."""
    return _running


@pytest.fixture(params=["quart", "hot"])
def door(request: pytest.FixtureRequest) -> str:
    """Every claim holds through both doors."""
    return str(request.param)
