"""Calls through a proxy that loses requests and answers: no session is created twice, and none stays open.

SDK_CALLS sets the number of calls of each client; the gate makes about 100 in all.
"""

import os
from collections import Counter
from collections.abc import Callable
from functools import partial

import anyio
import pytest
import trio

from sightline_client import AsyncSightline, RetryPolicy, Sightline, SightlineError
from tests.client.api import Api
from tests.client.losing_proxy import LosingProxy, losing_proxy
from tests.e2e.server import Server, Tenant, a_tenant, go_online
from tests.groups import rest_at_night

CALLS = int(os.environ.get("SDK_CALLS", "35"))
PLACES = {"trio": (1.0, 1.0), "asyncio": (2.0, 2.0), "sync": (3.0, 3.0), "cancelled": (4.0, 4.0)}
"""Each client has an operator of its own, which covers its place only."""
PERSISTENT = RetryPolicy(attempts=40, budget_s=60, first_delay_s=0.01, longest_delay_s=0.05)


async def watch_async(proxy: LosingProxy, key: str, enough: int, name: str) -> int:
    """Enter and leave views until the proxy has seen enough requests. Returns the number of views."""
    views = 0
    async with AsyncSightline(proxy.url, key, retry=PERSISTENT) as sl:
        while proxy.requests < enough:
            async with sl.view(*PLACES[name], seconds=60, instructions=f"{name} {views}") as view:
                views += 1
                assert view.session.state == "LIVE"
            assert view.session.state == "ENDED"
    return views


def watch_sync(proxy: LosingProxy, key: str, enough: int, name: str) -> int:
    """The same without an event loop."""
    views = 0
    with Sightline(proxy.url, key, retry=PERSISTENT) as sl:
        while proxy.requests < enough:
            with sl.view(*PLACES[name], seconds=60, instructions=f"{name} {views}") as view:
                views += 1
                assert view.session.state == "LIVE"
            assert view.session.state == "ENDED"
    return views


def on(backend: str) -> Callable[[LosingProxy, str, int, str], int]:
    return lambda *arguments: anyio.run(partial(watch_async, *arguments), backend=backend)


CLIENTS = {"trio": on("trio"), "asyncio": on("asyncio"), "sync": watch_sync}


async def start_assigned(url: str, operator: Tenant) -> None:
    """Start every session that is assigned to the operator, through the proxy too."""
    async with AsyncSightline(url, operator.key, retry=PERSISTENT) as sl:
        while True:
            try:
                for session in (await sl.sessions.page(view="operator", state=["ASSIGNED"])).items:
                    await sl.sessions.start(session.id)
            except SightlineError:
                continue  # the consumer ended it in between
            await trio.sleep(0.05)


@pytest.mark.parametrize("client", rest_at_night(CLIENTS, gate=1))
@pytest.mark.timeout(1800)
async def test_lost_requests_and_answers_neither_double_a_session_nor_leave_one_open(
    running_server: Server, client: str, record_property: Callable[[str, object], None]
) -> None:
    consumer = await a_tenant(running_server.url, "CONSUMER", f"losing-{client}")
    operator = await a_tenant(running_server.url, "SUPPLIER", f"keeping-{client}")
    await go_online(running_server.url, operator, PLACES[client])
    async with (
        losing_proxy(running_server.url, client) as proxy,
        losing_proxy(running_server.url, f"{client} operator") as operators,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(start_assigned, operators.url, operator)
        views = await trio.to_thread.run_sync(CLIENTS[client], proxy, consumer.key, CALLS, client)
        nursery.cancel_scope.cancel()
    assert min(proxy.lost_requests, proxy.lost_answers) > 0
    async with Api(running_server.url, key=consumer.key) as api:
        sessions = [session async for session in api.sessions.list(limit=100)]
    made = Counter(session.instructions for session in sessions)
    assert made == {f"{client} {number}": 1 for number in range(views)}
    assert {session.state for session in sessions} == {"ENDED"}
    record_property("requests", proxy.requests)
    record_property("lost requests", proxy.lost_requests)
    record_property("lost answers", proxy.lost_answers)
    record_property("views", views)


async def test_a_view_that_is_cancelled_at_any_point_leaves_nothing_open(running_server: Server) -> None:
    """The scope is cancelled after 0, 1, 2, ... requests have reached the server, until one view gets through."""
    consumer = await a_tenant(running_server.url, "CONSUMER", "cancelled")
    operator = await a_tenant(running_server.url, "SUPPLIER", "cancelling")
    await go_online(running_server.url, operator, PLACES["cancelled"])
    entered = 0
    async with losing_proxy(running_server.url, "no loss", share_lost=0) as proxy, trio.open_nursery() as nursery:
        nursery.start_soon(start_assigned, running_server.url, operator)
        for stop_at in range(1, 30):
            before = proxy.requests
            with trio.CancelScope() as scope:
                nursery.start_soon(cancel_after, proxy, before + stop_at, scope)
                async with AsyncSightline(proxy.url, consumer.key) as sl, sl.view(*PLACES["cancelled"], seconds=60):
                    entered += 1
            proxy.requests = max(proxy.requests, before + stop_at)  # ends cancel_after
            if entered:
                break
        nursery.cancel_scope.cancel()
    assert entered == 1
    async with Api(running_server.url, key=consumer.key) as api:
        states = {session.state async for session in api.sessions.list()}
    assert "CANCELLED" in states
    assert states <= {"CANCELLED", "ENDED"}


async def cancel_after(proxy: LosingProxy, requests: int, scope: trio.CancelScope) -> None:
    while proxy.requests < requests:  # noqa: ASYNC110  the proxy has no event of its own
        await trio.sleep(0.001)
    scope.cancel()
