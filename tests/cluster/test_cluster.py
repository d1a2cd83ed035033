"""Several servers form one service: any of them answers, and any of them may die."""

import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

import httpx
import pytest
import trio

from sightline.storage.database.bridge import DatabaseOptions, open_database
from sightline.storage.database.pool import PoolOptions
from sightline.system.server_address_file import read_server_addresses
from sightline_client import NoOperatorError, NotAuthorizedError, UnavailableError
from tests.client.api import Api
from tests.cluster.servers import POOL, Cluster, a_cluster, internal
from tests.e2e.server import PLACE, Server, Tenant, a_tenant, go_online, until

DEPLOY = Path(__file__).parents[2] / "deploy"
TAKE_OVER_S = 60.0
"""A lease of 6 s, the look at the database, and a very busy machine."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three servers shared by the tests of this module; the last test kills one."""
    with a_cluster(3) as cluster:
        trio.run(cluster.start)
        yield cluster


@pytest.fixture
def proxy(cluster: Cluster) -> Iterator[str]:
    """The URL of Caddy with deploy/Caddyfile in front of all servers."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = found.getsockname()
    url = f"http://127.0.0.1:{address[1]}"
    servers = " ".join(server.url.removeprefix("http://") for server in cluster.servers)
    command = [str(Path(sys.executable).with_name("caddy")), "run", "--adapter", "caddyfile", "--config"]
    env = os.environ | {"SIGHTLINE_SITE": url, "SIGHTLINE_SERVERS": servers}
    caddy = subprocess.Popen([*command, str(DEPLOY / "Caddyfile")], env=env, stderr=subprocess.DEVNULL)
    try:
        while not _accepts(address):
            assert caddy.poll() is None, "Caddy has ended"
            time.sleep(0.05)
        yield url
    finally:
        caddy.terminate()
        caddy.wait()


def _accepts(address: tuple[str, int]) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(address) == 0


async def a_session(at: Server, consumer: Tenant, place: tuple[float, float] = PLACE) -> str:
    async with Api(at.url, key=consumer.key) as watcher:
        made = await watcher.post("/sessions", lat=place[0], lng=place[1], maxDurationSeconds=600)
        return str(made["id"])


async def beat(device: Api, workspace_id: str, sequence: int) -> None:
    fix = {"lat": PLACE[0], "lng": PLACE[1], "accuracyMeters": 5, "sequence": sequence}
    await device.post(f"/workspaces/{workspace_id}/location", **fix)


async def test_a_consumer_at_one_server_and_an_operator_at_another_hold_a_session(cluster: Cluster) -> None:
    one, two, three = cluster.servers
    consumer = await a_tenant(one.url, "CONSUMER", "consumer")
    operator = await a_tenant(two.url, "SUPPLIER", "operator")
    await go_online(two.url, operator)
    async with Api(one.url, key=consumer.key) as watcher, Api(two.url, key=operator.key) as device:
        session_id = await a_session(one, consumer)
        assigned = await watcher.post(f"/sessions/{session_id}/dispatch")
        assert assigned["operatorWorkspaceId"] == operator.workspace_id
        started = await device.post(f"/sessions/{session_id}/start")
        assert started["session"]["state"] == "LIVE"
        await beat(device, operator.workspace_id, 1)
        for server in cluster.servers:
            async with Api(server.url, key=consumer.key) as reader:
                assert (await reader.get(f"/sessions/{session_id}"))["state"] == "LIVE"
                listed = await reader.get("/sessions", view="consumer")
                assert [each["state"] for each in listed["items"]] == ["LIVE"]
        async with Api(three.url, key=consumer.key) as third:
            assert (await third.post(f"/sessions/{session_id}/end"))["state"] == "ENDED"
        await until(lambda: device.get(f"/sessions/{session_id}"), lambda found: found["settlementTxHash"], "settled")


async def test_streams_at_every_server_show_what_happens_at_another(cluster: Cluster) -> None:
    one, two, _ = cluster.servers
    place = (PLACE[0] + 3, PLACE[1])
    consumer = await a_tenant(one.url, "CONSUMER", "streams-consumer")
    operator = await a_tenant(two.url, "SUPPLIER", "streams-operator")
    await go_online(two.url, operator, place)
    session_id = await a_session(one, consumer, place)
    seen: dict[str, list[str]] = {server.url: [] for server in cluster.servers}

    async with AsyncExitStack() as stack, trio.open_nursery() as nursery:

        async def follow(server: Server) -> None:
            api = await stack.enter_async_context(Api(server.url, key=consumer.key))
            async for state in states(api, session_id):
                seen[server.url].append(state)

        for server in cluster.servers:
            nursery.start_soon(follow, server)
        await until(lambda: read(seen), lambda all_seen: all(all_seen.values()), "the first state at each server")
        async with Api(one.url, key=consumer.key) as watcher, Api(two.url, key=operator.key) as device:
            await watcher.post(f"/sessions/{session_id}/dispatch")
            await device.post(f"/sessions/{session_id}/start")
            await device.post(f"/sessions/{session_id}/end")
        await until(lambda: read(seen), lambda all_seen: all("ENDED" in each for each in all_seen.values()), "the end")
        nursery.cancel_scope.cancel()
    for told in seen.values():
        assert told[0] == "REQUESTED"
        assert told[-1] == "ENDED"


async def read(seen: dict[str, list[str]]) -> dict[str, list[str]]:
    return seen


async def states(api: Api, session_id: str) -> AsyncIterator[str]:
    """The states of the session as its event stream tells them."""
    async with api.sessions.events(session_id) as events:
        async for event in events:
            if event.name == "session":
                yield event.data["state"]


async def test_parallel_dispatches_over_all_servers_take_every_operator_once_and_the_longest_idle_first(
    cluster: Cluster,
) -> None:
    place, one_by_one, at_once = (PLACE[0] - 3, PLACE[1]), 5, 195
    operators: dict[int, Tenant] = {}
    consumers: dict[int, Tenant] = {}
    # Meanwhile the first server hands shards to the others: a call may be refused, but its outcome is never unknown.

    def server(number: int) -> Server:
        return cluster.servers[number % len(cluster.servers)]

    async def sign_up(tenants: dict[int, Tenant], role: str, number: int) -> None:
        tenants[number] = await a_tenant(server(number).url, role, f"parallel-{role.lower()}-{number}")

    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(sign_up, operators, "SUPPLIER", number)
        for number in range(3):
            nursery.start_soon(sign_up, consumers, "CONSUMER", number)
    ids = [operators[number].workspace_id for number in range(50)]
    for number in range(50):
        await go_online(server(number).url, operators[number], place)
    assigned: list[str] = []

    async def dispatch(number: int) -> None:
        consumer = consumers[number % 3]
        async with Api(server(number + 1).url, key=consumer.key) as watcher:
            with suppress(NoOperatorError, UnavailableError):
                session_id = await a_session(server(number), consumer, place)
                assigned.append((await watcher.post(f"/sessions/{session_id}/dispatch"))["operatorWorkspaceId"])

    for number in range(one_by_one):
        await dispatch(number)
    assert assigned == ids[:one_by_one]
    async with trio.open_nursery() as nursery:
        for number in range(at_once):
            nursery.start_soon(dispatch, number)
    assert len(assigned) == len(set(assigned))
    # Operators of other tests, who are far away, are taken when no other one is left.
    assert set(ids) <= set(assigned)


async def runs(server: Server, role: str) -> bool:
    return f'owned_role{{role="{role}"}} 1' in (await internal(server, "/metrics")).text


async def test_each_role_runs_on_one_server_and_every_server_is_ready(cluster: Cluster) -> None:
    await cluster.until_balanced()
    for role in ("dispatcher", "relayer", "watcher", "housekeeping"):
        assert sum([await runs(server, role) for server in cluster.servers]) == 1
    for server in cluster.servers:
        assert (await internal(server, "/readyz")).status_code == 200
        found = (await internal(server, "/internal/nodes")).json()["data"]
        assert sum(item["shards"] for item in found["items"]) == 256
        assert (len(found["items"]), found["unownedShards"]) == (3, 0)


async def test_a_stream_ticket_of_one_server_opens_a_stream_at_another_once(cluster: Cluster) -> None:
    one, two, three = cluster.servers
    consumer = await a_tenant(one.url, "CONSUMER", "ticket-consumer")
    path = f"/api/v1/workspaces/{consumer.workspace_id}/events"
    async with Api(one.url, key=consumer.key) as watcher, httpx.AsyncClient() as browser:
        ticket = (await watcher.call("POST", "/stream-tickets", {"path": path}))["ticket"]
        async with browser.stream("GET", f"{two.url}{path}?ticket={ticket}") as answer:
            assert answer.status_code == 200
        assert (await browser.get(f"{three.url}{path}?ticket={ticket}")).status_code == 401


async def test_a_suspension_at_one_server_holds_at_once_at_another(cluster: Cluster) -> None:
    one, two, _ = cluster.servers
    consumer = await a_tenant(one.url, "CONSUMER", "suspended-consumer")
    addresses = read_server_addresses(one.directory / "data")
    assert addresses is not None
    async with httpx.AsyncClient() as admin, Api(two.url, key=consumer.key) as caller:
        body = {"operator": "Ada", "reason": "fraud"}
        url = f"{addresses.internal_url}/internal/admin/workspaces/{consumer.workspace_id}/suspend"
        assert (await admin.post(url, json=body, headers=one.internal_headers())).status_code == 200

        async def is_refused() -> bool:
            try:
                await caller.get("/me")
            except NotAuthorizedError:
                return True
            return False

        with trio.fail_after(4.5):
            await until(is_refused, bool, "refused")


async def test_reads_from_memory_go_on_while_all_database_connections_are_busy(cluster: Cluster) -> None:
    await cluster.until_balanced()  # a shard cannot be moved while its rows cannot be read
    consumer = await a_tenant(cluster.servers[0].url, "CONSUMER", "busy")
    session_id = await a_session(cluster.servers[0], consumer)
    pool = PoolOptions(dsn=cluster.servers[0].env["SIGHTLINE_DATABASE_URL"])
    seen: Counter[int] = Counter()
    headers = {"authorization": f"Bearer {consumer.key}"}
    async with (
        open_database(DatabaseOptions(pool=pool)) as database,
        httpx.AsyncClient(headers=headers, timeout=30) as http,
        trio.open_nursery() as nursery,
    ):

        async def ask(server: Server, path: str, answers: Counter[int]) -> None:
            while True:
                answers[(await http.get(f"{server.url}/api/v1{path}")).status_code] += 1
                await trio.sleep(0.1)

        for server in cluster.servers:  # from here on each of them knows the key and who may read the session
            assert (await http.get(f"{server.url}/api/v1/sessions/{session_id}")).status_code == 200
        for server in cluster.servers:
            nursery.start_soon(ask, server, f"/sessions/{session_id}", seen)
            for _ in range(2 * POOL):
                nursery.start_soon(ask, server, "/sessions", Counter())
        lock = "DO $$ BEGIN LOCK TABLE session; PERFORM pg_sleep(9); END $$"
        await database.run(lambda connection: connection.execute(lock), deadline_ms=30_000)
        nursery.cancel_scope.cancel()
    assert seen.keys() == {200}, "a lease of 6 s that is not renewed does not allow it"


async def test_a_server_that_is_killed_is_replaced_and_its_live_sessions_go_on(cluster: Cluster, proxy: str) -> None:
    await cluster.until_balanced()
    relays = [await runs(server, "relayer") for server in cluster.servers]
    owner, two, three = sorted(cluster.servers, key=lambda server: not relays[cluster.servers.index(server)])
    place = (PLACE[0], PLACE[1] + 3)
    pairs: list[tuple[Tenant, Tenant, str]] = []
    for number in range(6):
        consumer = await a_tenant(owner.url, "CONSUMER", f"kill-consumer-{number}")
        operator = await a_tenant(two.url, "SUPPLIER", f"kill-operator-{number}")
        await go_online(two.url, operator, place)
        session_id = await a_session(two, consumer, place)
        async with Api(two.url, key=consumer.key) as watcher, Api(three.url, key=operator.key) as device:
            await watcher.post(f"/sessions/{session_id}/dispatch")
            await device.post(f"/sessions/{session_id}/start")
            await beat(device, operator.workspace_id, 1)
        pairs.append((consumer, operator, session_id))
    await owner.kill()
    with trio.fail_after(TAKE_OVER_S):
        for consumer, operator, session_id in pairs:
            # The proxy has the server that was killed in its list.
            async with Api(proxy, key=consumer.key) as watcher, Api(three.url, key=operator.key) as device:
                assert await until(partial(answered, watcher, session_id), bool, "an answer") == "LIVE"
                heartbeat = partial(beat, device, operator.workspace_id, 2)
                await until(partial(is_done, heartbeat), bool, "a heartbeat at the new owner of the workspace")
                assert (await watcher.post(f"/sessions/{session_id}/end"))["state"] == "ENDED"
    # The relayer ran on the server that was killed.
    async with Api(two.url, key=consumer.key) as watcher:
        read = partial(watcher.get, f"/sessions/{session_id}")
        await until(read, lambda session: session["settlementTxHash"], "settled")


async def is_done(call: Callable[[], Awaitable[object]]) -> bool:
    """Whether the call was done; not while its shard has no owner."""
    try:
        await call()
    except UnavailableError:
        return False
    return True


async def answered(watcher: Api, session_id: str) -> str | None:
    """The state of the session; None while its shard has no owner."""
    try:
        return str((await watcher.get(f"/sessions/{session_id}"))["state"])
    except UnavailableError:
        return None
