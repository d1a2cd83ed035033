"""Access that is withdrawn ends at once for changes, and at the next check for open streams.

Findings H1 and M2 of the audit: the role in a cookie served every change for 12 hours, and open streams of a revoked
credential went on for an hour.
"""

from collections.abc import AsyncIterator

import pytest
import trio

from tests.http.socket_client import SocketClosedByServerError, open_socket
from tests.http.stream_client import open_stream
from tests.http.world import Client, Party, World, WorldOptions, data_of, error_of, open_world

MINT = {"label": "everything", "environment": "TEST", "scopes": ["sessions:read", "sessions:operate"]}


@pytest.fixture
async def impatient_world() -> AsyncIterator[World]:
    """A server that checks the credentials of open streams again every 50 ms."""
    async with open_world(WorldOptions(recheck_s=0.05)) as world:
        yield world


async def a_member(party: Party, role: str) -> tuple[str, Client]:
    """A new wallet with this role, signed in with the workspace selected."""
    account = party.world.account()
    return account.address, await party.join(account, role)


async def test_a_removed_owner_can_neither_mint_nor_come_back(world: World) -> None:
    party = await world.party("SUPPLIER")
    address, removed = await a_member(party, "OWNER")
    data_of(await party.wallet.delete(f"{party.path}/members/{address}"))
    not_a_member = (403, "NOT_AUTHORIZED", "workspace:notMember")
    assert error_of(await removed.post(f"{party.path}/api-keys", MINT)) == not_a_member
    assert error_of(await removed.get(f"{party.path}/api-keys")) == not_a_member
    again = {"walletAddress": address, "role": "OWNER"}
    assert error_of(await removed.post(f"{party.path}/members", again)) == not_a_member
    assert error_of(await removed.delete(f"{party.path}/members/{party.account.address}")) == not_a_member
    assert error_of(await removed.patch(party.path, {"availabilityState": "ONLINE"})) == not_a_member


async def test_a_demoted_member_loses_the_rights_of_its_old_role_at_once(world: World) -> None:
    party = await world.party("SUPPLIER")
    address, demoted = await a_member(party, "ADMIN")
    data_of(await demoted.patch(party.path, {"availabilityState": "ONLINE"}))
    data_of(await party.wallet.post(f"{party.path}/members", {"walletAddress": address, "role": "VIEWER"}))
    answer = await demoted.patch(party.path, {"availabilityState": "OFFLINE"})
    assert error_of(answer) == (403, "NOT_AUTHORIZED", "workspace:role")
    data_of(await demoted.get(party.path))


async def test_a_promoted_member_has_its_new_rights_without_selecting_again(world: World) -> None:
    party = await world.party("SUPPLIER")
    address, promoted = await a_member(party, "VIEWER")
    assert error_of(await promoted.post(f"{party.path}/api-keys", MINT))[0] == 403
    data_of(await party.wallet.post(f"{party.path}/members", {"walletAddress": address, "role": "ADMIN"}))
    data_of(await promoted.post(f"{party.path}/api-keys", MINT))


async def test_the_publish_url_is_shown_only_to_those_who_may_operate(world: World) -> None:
    """Finding M3: read-only keys and VIEWERs read whipUrl, which embeds a secret."""
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    session = await world.request(consumer)
    path = f"/api/v1/sessions/{session['id']}"
    data_of(await operator.key.post(f"{path}/accept", {"operatorWorkspaceId": operator.id}))
    whip_url = data_of(await operator.key.post(f"{path}/start"))["whipUrl"]
    _, viewer = await a_member(operator, "VIEWER")
    _, admin = await a_member(operator, "ADMIN")
    reader = await operator.mint("sessions:read")
    for client, shown in (
        (reader, None),
        (viewer, None),
        (consumer.key, None),
        (admin, whip_url),
        (operator.key, whip_url),
    ):
        assert data_of(await client.get(path))["whipUrl"] == shown
        (listed,) = data_of(await client.get("/api/v1/sessions?state=LIVE"))["items"]
        assert listed["whipUrl"] == shown


async def test_an_event_stream_ends_when_its_sign_in_is_ended(impatient_world: World) -> None:
    party = await impatient_world.party("SUPPLIER")
    async with open_stream(impatient_world.base_url, f"{party.path}/events", party.wallet.headers) as events:
        assert events.status == 200
        data_of(await party.wallet.post("/api/v1/auth/logout"))
        with trio.fail_after(60):
            while await events.piece() is not None:
                pass


async def test_a_websocket_closes_with_1008_when_its_member_is_removed(impatient_world: World) -> None:
    party = await impatient_world.party("SUPPLIER")
    address, member = await a_member(party, "ADMIN")
    path = f"{party.path}/location/stream"
    async with open_socket(impatient_world.base_url, path, member.headers) as socket:
        data_of(await party.wallet.delete(f"{party.path}/members/{address}"))
        with trio.fail_after(60), pytest.raises(SocketClosedByServerError) as closed:
            await socket.receive()
    assert closed.value.code == 1008
    assert closed.value.reason == "NOT_AUTHORIZED workspace:notMember"


async def test_changes_of_owners_and_keys_ask_for_a_recent_signature() -> None:
    async with open_world(WorldOptions(signature_age_max_ms=60_000)) as world:
        party = await world.party("SUPPLIER")
        address, _ = await a_member(party, "VIEWER")
        other = {"walletAddress": world.account().address, "role": "OWNER"}
        world.clock.advance(59)
        data_of(await party.wallet.post(f"{party.path}/api-keys", MINT))
        world.clock.advance(1)
        needed = (401, "NOT_AUTHENTICATED", "auth:signatureNeeded")
        assert error_of(await party.wallet.post(f"{party.path}/api-keys", MINT)) == needed
        assert error_of(await party.wallet.post(f"{party.path}/members", other)) == needed
        assert error_of(await party.wallet.delete(f"{party.path}/members/{address}")) == needed
        # Reads and other changes go on.
        data_of(await party.wallet.get(f"{party.path}/members"))
        data_of(await party.wallet.patch(party.path, {"availabilityState": "ONLINE"}))
        signed = Client(world, {"cookie": await world.login(party.account, party.id)})
        data_of(await signed.post(f"{party.path}/api-keys", MINT))


async def test_a_removed_member_sees_neither_video_nor_positions(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    session = await world.live(consumer, operator)
    path = f"/api/v1/sessions/{session['id']}"
    address, member = await a_member(consumer, "VIEWER")
    data_of(await member.get(f"{path}/viewer-token"))
    data_of(await consumer.wallet.delete(f"{consumer.path}/members/{address}"))
    for tail in ("viewer-token", "frame", "frames", "events"):
        assert error_of(await member.get(f"{path}/{tail}")) == (403, "NOT_AUTHORIZED", "workspace:notMember"), tail
    assert error_of(await member.get(f"{consumer.path}/events")) == (403, "NOT_AUTHORIZED", "workspace:notMember")
    data_of(await member.get(path))  # reads by the old role go on, as the interface says


async def test_an_open_event_stream_of_a_removed_member_ends_at_the_next_check(impatient_world: World) -> None:
    party = await impatient_world.party("CONSUMER")
    address, member = await a_member(party, "VIEWER")
    async with open_stream(party.world.base_url, f"{party.path}/events", member.headers) as stream:
        data_of(await party.wallet.delete(f"{party.path}/members/{address}"))
        with trio.fail_after(60):
            while await stream.piece() is not None:
                pass
