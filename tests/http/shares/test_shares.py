"""Share links: others see one view, change nothing, and see nothing more once the link has ended."""

from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
import trio

from sightline.domain.access import ApiKeyPrincipal, Holder
from tests.http.stream_client import open_stream
from tests.http.world import BERLIN, Client, Party, World, WorldOptions, data_of, error_of, open_world

READ_ONLY = (403, "NOT_AUTHORIZED", "share:readOnly")
ENDED = (401, "REVOKED_API_KEY", "apiKey:revoked")
UNKNOWN = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
async def impatient_world() -> AsyncIterator[World]:
    """A server that checks the credentials of open streams again every 50 ms."""
    async with open_world(WorldOptions(recheck_s=0.05)) as world:
        yield world


async def shared(world: World) -> tuple[Party, Party, str, dict[str, str], Client]:
    """A LIVE session of a consumer and an operator, its path, a link to it, and who has the link."""
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    session = await world.live(consumer, operator, instructions="Between us", metadata={"order": "A-17"})
    path = f"/api/v1/sessions/{session['id']}"
    made = data_of(await consumer.key.post(f"{path}/shares", {"expiresInSeconds": 600, "label": "manager"}))
    return consumer, operator, path, made, Client(world, {"authorization": f"Bearer {made['key']}"})


async def test_a_guest_sees_the_picture_the_state_and_the_place_and_nothing_of_money_or_words(world: World) -> None:
    consumer, _, path, made, guest = await shared(world)
    assert urlsplit(made["url"]).fragment == f"/shared/{made['sessionId']}?key={made['key']}"
    assert urlsplit(made["url"]).path == "/console/"
    view = data_of(await guest.get(f"{path}/shared"))
    assert (view["state"], view["lat"], view["lng"]) == ("LIVE", BERLIN["lat"], BERLIN["lng"])
    assert view["sharedUntil"] == made["expiresAt"]
    assert view["whepUrl"]
    longer = data_of(await consumer.key.post(f"{path}/extend", {"seconds": 60}))
    assert longer["maxDurationSeconds"] == view["maxDurationSeconds"] + 60
    assert data_of(await guest.get(f"{path}/shared"))["maxDurationSeconds"] == longer["maxDurationSeconds"]
    assert not {name for name in view if "icro" in name or "orkspace" in name}
    assert not {"instructions", "metadata"} & set(view)
    world.video.show(made["sessionId"], 1)
    assert (await guest.get(f"{path}/frame")).headers["content-type"] == "image/jpeg"
    assert data_of(await guest.get(f"{path}/viewer-token"))["whepUrl"] == view["whepUrl"]


@pytest.mark.parametrize(
    ("method", "tail", "body"),
    [
        ("GET", "", None),
        ("GET", "/meter", None),
        ("GET", "/events", None),
        ("GET", "/receipt", None),
        ("GET", "/shares", None),
        ("POST", "/shares", {}),
        ("POST", "/end", None),
        ("POST", "/extend", {"seconds": 60}),
        ("DELETE", f"/shares/{UNKNOWN}", None),
        ("DELETE", "", None),
    ],
)
async def test_a_guest_can_read_nothing_else_of_the_session_and_change_nothing(
    world: World, method: str, tail: str, body: object
) -> None:
    _, _, path, _, guest = await shared(world)
    assert error_of(await guest.call(method, path + tail, body)) == READ_ONLY


async def test_a_guest_sees_no_other_session_and_no_workspace(world: World) -> None:
    consumer, _, _, _, guest = await shared(world)
    other = await world.request(consumer)
    refused = (403, "NOT_AUTHORIZED", "apiKey:session")
    assert error_of(await guest.get(f"/api/v1/sessions/{other['id']}/shared")) == refused
    for path in ("/api/v1/me", "/api/v1/wallet", "/api/v1/sessions", consumer.path):
        assert error_of(await guest.get(path)) == READ_ONLY
    assert error_of(await guest.post("/api/v1/sessions", BERLIN)) == READ_ONLY


async def test_a_link_that_only_the_servers_machine_can_open_says_so_and_what_to_set(world: World) -> None:
    consumer, _, path, made, _ = await shared(world)
    assert "Another device cannot open 127.0.0.1" in made["urlHint"]
    assert "SIGHTLINE_PUBLIC_URL" in made["urlHint"]
    reachable = data_of(await consumer.key.having(host="video.example.com").post(f"{path}/shares", {}))
    assert (urlsplit(reachable["url"]).hostname, reachable["urlHint"]) == ("video.example.com", None)


async def test_a_revoked_link_is_refused_at_once_and_its_viewers_are_looked_for(world: World) -> None:
    consumer, _, path, made, guest = await shared(world)
    data_of(await guest.get(f"{path}/shared"))
    checks = world.access_withdrawals
    ended = data_of(await consumer.key.delete(f"{path}/shares/{made['shareId']}"))
    assert not ended["isOpen"]
    assert error_of(await guest.get(f"{path}/shared")) == ENDED
    assert error_of(await guest.get(f"{path}/frame")) == ENDED
    assert world.access_withdrawals == checks + 1
    world.clock.advance(5)
    again = data_of(await consumer.key.delete(f"{path}/shares/{made['shareId']}"))
    assert again["expiresAt"] == ended["expiresAt"], "a repeat answers the same"


async def test_the_stream_of_a_guest_ends_when_the_link_is_revoked(impatient_world: World) -> None:
    consumer, _, path, made, guest = await shared(impatient_world)
    impatient_world.video.show(made["sessionId"], 1)
    async with open_stream(impatient_world.base_url, f"{path}/frames", guest.headers) as frames:
        assert frames.status == 200
        data_of(await consumer.key.delete(f"{path}/shares/{made['shareId']}"))
        with trio.fail_after(60):
            while await frames.piece() is not None:
                pass


async def test_a_link_ends_by_itself(world: World) -> None:
    _, _, path, _, guest = await shared(world)
    world.clock.advance(599)
    data_of(await guest.get(f"{path}/shared"))
    world.clock.advance(1)
    assert error_of(await guest.get(f"{path}/shared")) == ENDED


async def test_a_guest_is_told_that_the_view_has_ended(world: World) -> None:
    consumer, _, path, _, guest = await shared(world)
    data_of(await consumer.key.post(f"{path}/end"))
    view = data_of(await guest.get(f"{path}/shared"))
    assert (view["state"], view["whepUrl"]) == ("ENDED", None)
    assert view["endedAt"]
    assert error_of(await consumer.key.post(f"{path}/shares", {}))[1:] == ("INVALID_STATE", "session:state")


async def test_the_consumer_lists_the_links_without_their_keys(world: World) -> None:
    consumer, operator, path, made, _ = await shared(world)
    second = data_of(await consumer.wallet.post(f"{path}/shares", {}))
    data_of(await consumer.wallet.delete(f"{path}/shares/{second['shareId']}"))
    listed = data_of(await consumer.wallet.get(f"{path}/shares"))["items"]
    assert [(each["label"], each["isOpen"]) for each in listed] == [("", False), ("manager", True)]
    assert made["key"] not in str(listed)
    refused = (403, "NOT_AUTHORIZED", "session:workspaceMismatch")
    assert error_of(await operator.key.get(f"{path}/shares")) == refused
    assert error_of(await operator.wallet.post(f"{path}/shares", {})) == refused
    assert made["shareId"] not in str(data_of(await consumer.wallet.get(f"{consumer.path}/api-keys")))
    unknown = await consumer.wallet.delete(f"{path}/shares/{UNKNOWN}")
    assert error_of(unknown) == (404, "NOT_FOUND", "share:unknown")


async def test_a_session_has_at_most_twenty_open_links(world: World) -> None:
    consumer, _, path, made, _ = await shared(world)
    for _ in range(19):
        data_of(await consumer.key.post(f"{path}/shares", {}))
    assert error_of(await consumer.key.post(f"{path}/shares", {})) == (409, "CONFLICT", "share:limit")
    data_of(await consumer.key.delete(f"{path}/shares/{made['shareId']}"))
    data_of(await consumer.key.post(f"{path}/shares", {}))


async def test_making_a_link_is_never_replayed(world: World) -> None:
    consumer, _, path, _, _ = await shared(world)
    client = consumer.key.having(idempotency_key="share-1")
    data_of(await client.post(f"{path}/shares", {}))
    assert error_of(await client.post(f"{path}/shares", {})) == (409, "CONFLICT", "idempotency:notReplayable")


@pytest.mark.parametrize(
    ("body", "label"),
    [
        ({"expiresInSeconds": 59}, "share:expiresInSeconds"),
        ({"expiresInSeconds": 86_401}, "share:expiresInSeconds"),
        ({"expiresInSeconds": "600"}, "share:expiresInSeconds"),
        ({"label": "x" * 81}, "share:label"),
        ({"expiresInSecond": 600}, "share:expiresInSeconds"),
    ],
)
async def test_a_wrong_link_request_names_the_field(world: World, body: dict[str, object], label: str) -> None:
    consumer, _, path, _, _ = await shared(world)
    status, code, detail = error_of(await consumer.key.post(f"{path}/shares", body))
    assert (status, code) == (400, "INVALID_INPUT")
    assert detail == label


async def test_a_play_url_of_a_link_names_the_link(world: World) -> None:
    consumer, _, path, made, guest = await shared(world)
    url = data_of(await guest.get(f"{path}/viewer-token"))["whepUrl"]
    assert url != data_of(await consumer.key.get(f"{path}/viewer-token"))["whepUrl"]
    principal = await world.authenticator.principal_of(
        Holder(is_key=True, credential_id=made["shareId"], workspace_id=consumer.id)
    )
    assert isinstance(principal, ApiKeyPrincipal)
    assert principal.is_guest
