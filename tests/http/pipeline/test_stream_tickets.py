"""Stream tickets: each opens one stream of one path once, within 30 seconds, with the rights of its key."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from sightline.domain.errors import RefusedError
from sightline.http.pipeline.stream_tickets import StreamTickets
from tests.http.socket_client import RefusedSocketError, open_socket
from tests.http.stream_client import open_stream
from tests.http.world import BERLIN, Client, Party, World, WorldOptions, data_of, error_of, open_world

BAD = (401, "auth:ticket")


async def issue(client: Client, path: str) -> str:
    made = data_of(await client.post("/api/v1/stream-tickets", {"path": path}))
    return str(made["ticket"])


@asynccontextmanager
async def followed(world: World, path: str, ticket: str) -> AsyncIterator[tuple[int, dict[str, str]]]:
    async with open_stream(world.base_url, f"{path}?ticket={ticket}", {}) as answer:
        yield answer.status, answer.headers


async def refusal(world: World, path: str, ticket: str) -> tuple[int, Any]:
    status, _, detail = error_of(await Client(world).get(f"{path}?ticket={ticket}"))
    return status, detail


@pytest.fixture
async def consumer(world: World) -> Party:
    return await world.party("CONSUMER")


async def test_a_ticket_opens_one_event_stream_once(world: World, consumer: Party) -> None:
    path = f"{consumer.path}/events"
    ticket = await issue(await consumer.mint("sessions:read"), path)
    async with followed(world, path, ticket) as (status, headers):
        assert status == 200
        assert headers["content-type"].startswith("text/event-stream")
    assert await refusal(world, path, ticket) == BAD


async def test_a_ticket_of_another_server_opens_a_stream_once(world: World, consumer: Party) -> None:
    path, other = f"{consumer.path}/events", StreamTickets(world.identity, world.clock, world.ids)
    ticket = (await other.issue(path, consumer.key.headers["authorization"])).text
    async with followed(world, path, ticket) as (status, _):
        assert status == 200
    assert await refusal(world, path, ticket) == BAD
    with pytest.raises(RefusedError):
        await other.redeem(ticket, path)


async def test_a_ticket_is_refused_on_another_path_and_is_then_used(world: World, consumer: Party) -> None:
    session = await world.request(consumer)
    path = f"/api/v1/sessions/{session['id']}/events"
    ticket = await issue(consumer.key, path)
    assert await refusal(world, f"{consumer.path}/events", ticket) == BAD
    assert await refusal(world, path, ticket) == BAD


async def test_a_ticket_is_refused_after_30_seconds(world: World, consumer: Party) -> None:
    path = f"{consumer.path}/events"
    late, timely = await issue(consumer.key, path), await issue(consumer.key, path)
    world.clock.advance(20)
    async with followed(world, path, timely) as (status, _):
        assert status == 200
    world.clock.advance(10)
    assert await refusal(world, path, late) == BAD


async def test_a_ticket_gives_no_more_than_its_key(world: World, consumer: Party) -> None:
    other, path = await world.party("CONSUMER"), f"{consumer.path}/events"
    weak = await issue(await consumer.mint("pricing:read"), path)
    assert await refusal(world, path, weak) == (403, "apiKey:scope")
    foreign = await issue(other.key, path)
    answer = await Client(world).get(f"{path}?ticket={foreign}")
    assert error_of(answer)[0] in (403, 404)
    assert await refusal(world, path, "x" * 43) == BAD


async def test_a_ticket_among_more_fields_than_a_query_may_have_is_bad_input(world: World, consumer: Party) -> None:
    many = "&".join(f"f{number}=1" for number in range(300))
    answer = await Client(world).get(f"{consumer.path}/events?ticket=x&{many}")
    assert error_of(answer) == (400, "INVALID_INPUT", "query:encoding")


async def test_a_ticket_opens_only_streams(world: World, consumer: Party) -> None:
    ticket = await issue(consumer.key, "/api/v1/me")
    assert await refusal(world, "/api/v1/me", ticket) == (401, "auth:missing")


async def test_a_cookie_gets_no_ticket_and_a_malformed_path_is_refused(world: World, consumer: Party) -> None:
    answer = await consumer.wallet.having(origin=world.base_url).post("/api/v1/stream-tickets", {"path": "/api/v1/x"})
    assert error_of(answer) == (403, "NOT_AUTHORIZED", "auth:apiKeyRequired")
    for path in ("", "/etc", "https://evil.example/api/v1/x", "/api/v1/a b", 7, None):
        answer = await consumer.key.post("/api/v1/stream-tickets", {"path": path})
        assert error_of(answer) == (400, "INVALID_INPUT", "ticket:path")


async def test_a_ticket_opens_the_socket_of_a_device_from_any_origin(world: World) -> None:
    operator = await world.party("SUPPLIER")
    path = f"{operator.path}/location/stream"
    ticket = await issue(operator.key, path)
    foreign = {"origin": "https://app.example.com"}
    async with open_socket(world.base_url, f"{path}?ticket={ticket}", foreign) as socket:
        assert await socket.ask(BERLIN | {"sequence": 1}) == {"sequence": 1, "ok": True}
    with pytest.raises(RefusedSocketError) as refused:
        async with open_socket(world.base_url, f"{path}?ticket={ticket}", foreign):
            pass
    assert refused.value.status == 401


async def test_the_stream_of_a_ticket_ends_when_its_key_ends() -> None:
    async with open_world(WorldOptions(recheck_s=0.05)) as world:
        consumer = await world.party("CONSUMER")
        minted = data_of(
            await consumer.wallet.post(
                f"{consumer.path}/api-keys", {"label": "t", "environment": "TEST", "scopes": ["sessions:read"]}
            )
        )
        key = Client(world, {"authorization": f"Bearer {minted['plaintext']}"})
        path = f"{consumer.path}/events"
        ticket = await issue(key, path)
        async with open_stream(world.base_url, f"{path}?ticket={ticket}", {}) as answer:
            data_of(await consumer.wallet.post(f"{consumer.path}/api-keys/{minted['keyId']}/revoke"))
            world.clock.advance(120)
            with trio.fail_after(60):
                while await answer.piece() is not None:
                    continue
