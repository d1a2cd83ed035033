"""Webhook endpoints and deliveries, and push subscriptions, over HTTP."""

import base64
import json
import re
from datetime import datetime
from typing import Any

import pytest

from sightline.domain.units import DAY_MS
from sightline.domain.webhooks import WebhookEventType
from tests.http.world import Client, Party, World, data_of, error_of
from tests.webhooks.push_browser import PushBrowser

WEBHOOKS = "/api/v1/webhooks"
BODY = {"url": "https://example.com/hook", "description": "our queue", "eventTypes": ["session.live"]}
UNKNOWN = "00000000-0000-4000-8000-000000000000"


async def a_webhook(party: Party, **changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = data_of(await party.wallet.post(WEBHOOKS, BODY | changes))
    return made


async def pending(party: Party, webhook: dict[str, Any]) -> list[str]:
    """Types of the events that wait for an endpoint, oldest first, after the outbox was published."""
    await party.world.publish_webhooks()
    page = data_of(await party.wallet.get(f"{WEBHOOKS}/{webhook['id']}/deliveries?state=PENDING"))
    return [item["eventType"] for item in reversed(page["items"])]


async def test_the_secret_is_shown_at_creation_and_rotation_only(world: World) -> None:
    party = await world.party("CONSUMER")
    made = await a_webhook(party)
    assert made["secret"].startswith("whsec_")
    assert len(base64.b64decode(made["secret"].removeprefix("whsec_"))) == 32
    path = f"{WEBHOOKS}/{made['id']}"
    shown = {name: value for name, value in made.items() if name != "secret"}
    assert data_of(await party.wallet.get(path)) == shown
    assert data_of(await party.wallet.get(WEBHOOKS))["items"] == [shown]
    assert (shown["enabled"], shown["previousSecretExpiresAt"]) == (True, None)
    rotated = data_of(await party.wallet.post(f"{path}/rotate"))
    assert rotated["secret"] != made["secret"]
    assert rotated["previousSecretExpiresAt"] is not None
    world.clock.advance(24 * 3_600 + 1)
    again = Client(world, {"cookie": await world.login(party.account, party.id)})
    assert data_of(await again.get(path))["previousSecretExpiresAt"] is None


async def test_a_fourth_rotation_within_a_day_is_refused_with_the_time_at_which_it_is_possible(world: World) -> None:
    party = await world.party("CONSUMER")
    path = f"{WEBHOOKS}/{(await a_webhook(party))['id']}"
    key = await party.mint("webhooks:write")
    first_ms = world.clock.now_ms()
    for _ in range(3):
        assert (await key.post(f"{path}/rotate")).status_code == 200
    refused = await key.post(f"{path}/rotate")
    assert error_of(refused) == (409, "CONFLICT", "webhook:rotations")
    named = re.search(r"possible from (\S+Z)\.", refused.json()["hint"])
    assert named is not None
    possible_ms = datetime.fromisoformat(named[1]).timestamp() * 1_000
    assert first_ms + DAY_MS <= possible_ms <= world.clock.now_ms() + DAY_MS + 1_000
    world.clock.advance(24 * 3_600 + 1)
    assert (await key.post(f"{path}/rotate")).status_code == 200


@pytest.mark.parametrize(
    ("name", "meant"), [("events", "eventTypes"), ("evenTypes", "eventTypes"), ("enable", "enabled"), ("Url", "url")]
)
async def test_a_change_refuses_a_misspelt_field_and_changes_nothing(world: World, name: str, meant: str) -> None:
    party = await world.party("CONSUMER")
    made = await a_webhook(party)
    path = f"{WEBHOOKS}/{made['id']}"
    refused = await party.wallet.patch(path, {name: [], "description": "other"})
    assert error_of(refused) == (400, "INVALID_INPUT", f"webhook:{meant}")
    assert refused.json()["hint"] == f"{name}: unknown field; did you mean {meant}?"
    assert data_of(await party.wallet.get(path))["description"] == "our queue"


async def test_a_key_with_the_scope_manages_the_webhooks_of_its_workspace(world: World) -> None:
    party, other = await world.party("CONSUMER"), await world.party("CONSUMER")
    key = await party.mint("webhooks:write")
    made = data_of(await key.post(WEBHOOKS, BODY))
    path = f"{WEBHOOKS}/{made['id']}"
    changed = data_of(await key.patch(path, {"eventTypes": [], "enabled": False}))
    assert (changed["eventTypes"], changed["enabled"], changed["disabledReason"]) == ([], False, "OWNER")
    assert error_of(await key.post(f"{path}/ping")) == (409, "INVALID_STATE", "webhook:disabled")
    assert data_of(await key.patch(path, {"enabled": True}))["disabledReason"] is None
    assert error_of(await other.key.get(path)) == (404, "NOT_FOUND", "webhook:notFound")
    assert data_of(await key.delete(path))["id"] == made["id"]
    assert error_of(await key.get(path)) == (404, "NOT_FOUND", "webhook:notFound")


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"url": None}, "webhook:url"),
        ({"url": ""}, "webhook:url"),
        ({"url": "http://example.com/"}, "webhook:url"),
        ({"url": "https://"}, "webhook:url"),
        ({"url": "https://user:password@example.com/"}, "webhook:url"),
        ({"url": "https://example.com/#part"}, "webhook:url"),
        ({"url": "https://127.0.0.1/"}, "webhook:url"),
        ({"url": "https://[::ffff:10.0.0.1]/"}, "webhook:url"),
        ({"url": "https://[::1/"}, "webhook:url"),
        ({"url": "https://example.com:99999/"}, "webhook:url"),
        ({"url": "https://exämple.com/"}, "webhook:url"),
        ({"url": "https://example.com/" + "x" * 2_048}, "webhook:url"),
        ({"url": "https://example.com/\r\nhost: other"}, "webhook:url"),
        ({"url": "file:///etc/passwd"}, "webhook:url"),
        ({"description": "x" * 201}, "webhook:description"),
        ({"eventTypes": ["session.sneezed"]}, "webhook:eventTypes"),
        ({"events": ["session.live"]}, "webhook:eventTypes"),
        ({"eventTypes": ["webhook.ping"]}, "webhook:eventTypes"),
        ({"eventTypes": ["session.live", "session.live"]}, "webhook:eventTypes"),
        ({"eventType": ["session.live"]}, "webhook:eventTypes"),
    ],
)
async def test_a_wrong_endpoint_is_refused_with_the_field(world: World, change: dict[str, Any], detail: str) -> None:
    party = await world.party("CONSUMER")
    assert error_of(await party.wallet.post(WEBHOOKS, BODY | change)) == (400, "INVALID_INPUT", detail)
    assert data_of(await party.wallet.get(WEBHOOKS))["items"] == []


async def test_an_unknown_type_is_answered_with_the_whole_list_of_types_that_can_be_chosen(world: World) -> None:
    party = await world.party("CONSUMER")
    refused = (await party.wallet.post(WEBHOOKS, BODY | {"eventTypes": ["session.sneezed"]})).json()
    assert sorted(re.findall(r"'([^']+)'", refused["hint"])) == sorted(set(WebhookEventType) - {WebhookEventType.PING})


async def test_a_wrong_change_is_refused_and_changes_nothing(world: World) -> None:
    party = await world.party("CONSUMER")
    made = await a_webhook(party)
    path = f"{WEBHOOKS}/{made['id']}"
    for body, detail in (
        ({}, "webhook:empty"),
        ({"enabled": None}, "webhook:enabled"),
        ({"enabled": "yes"}, "webhook:enabled"),
        ({"url": "https://10.0.0.1/"}, "webhook:url"),
    ):
        assert error_of(await party.wallet.patch(path, body)) == (400, "INVALID_INPUT", detail)
    for body in ({}, {"since": "yesterday"}, {"since": 7}):
        answer = await party.wallet.post(f"{path}/replay", body)
        assert error_of(answer) == (400, "INVALID_INPUT", "webhook:since")
    for query, detail in (
        ("state=LOST", "webhook:state"),
        ("limit=0", "pagination:limit"),
        ("cursor=x", "pagination:cursor"),
    ):
        assert error_of(await party.wallet.get(f"{path}/deliveries?{query}")) == (400, "INVALID_INPUT", detail)
    assert data_of(await party.wallet.get(path)) == {name: made[name] for name in made if name != "secret"}


async def test_a_workspace_has_twenty_endpoints_at_most(world: World) -> None:
    party = await world.party("CONSUMER")
    for _ in range(20):
        await a_webhook(party)
    assert error_of(await party.wallet.post(WEBHOOKS, BODY)) == (409, "CONFLICT", "webhook:limit")


async def test_a_repeat_with_the_same_key_makes_no_second_endpoint_and_shows_no_secret(world: World) -> None:
    party = await world.party("CONSUMER")
    client = party.wallet.having(idempotency_key="one")
    data_of(await client.post(WEBHOOKS, BODY))
    assert error_of(await client.post(WEBHOOKS, BODY)) == (409, "CONFLICT", "idempotency:notReplayable")
    assert len(data_of(await party.wallet.get(WEBHOOKS))["items"]) == 1


async def test_a_session_is_told_to_both_parties_without_media_urls(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    hooks = [await a_webhook(party, eventTypes=[]) for party in (consumer, operator)]
    session = await world.live(consumer, operator, metadata={"order": "A-17"})
    data_of(await consumer.key.post(f"/api/v1/sessions/{session['id']}/end"))
    assert await pending(consumer, hooks[0]) == [
        "session.requested",
        "session.assigned",
        "session.live",
        "session.ended",
    ]
    # The claim of an accept leaves the availability as it is, the start makes it BUSY, and the end gives it back.
    assert await pending(operator, hooks[1]) == [
        "session.assigned",
        "workspace.availability",
        "session.live",
        "session.ended",
        "workspace.availability",
    ]
    bodies = [await body_of(consumer, hooks[0], kind) for kind in ("session.live", "session.ended")]
    assert [body["data"]["state"] for body in bodies] == ["LIVE", "ENDED"]
    assert [body["data"]["sequence"] for body in bodies] == [3, 4]
    for body in bodies:
        assert not {"whepUrl", "whipUrl"} & set(body["data"])
        assert body["data"]["metadata"] == {"order": "A-17"}
    theirs = await body_of(operator, hooks[1], "session.live")
    assert theirs["data"]["metadata"] is None
    shown = data_of(await consumer.key.get(f"/api/v1/sessions/{session['id']}"))
    ended = bodies[1]["data"]
    assert {name: ended[name] for name in shown if name in ended} == {
        name: shown[name] for name in shown if name in ended
    }


async def body_of(party: Party, webhook: dict[str, Any], kind: str) -> dict[str, Any]:
    """The body of the newest event of a type."""
    path = f"{WEBHOOKS}/{webhook['id']}/deliveries"
    found = next(item for item in data_of(await party.wallet.get(path))["items"] if item["eventType"] == kind)
    delivery = data_of(await party.wallet.get(f"{path}/{found['eventId']}"))
    body: dict[str, Any] = json.loads(delivery["body"])
    assert body["type"] == kind
    assert body["timestamp"] == delivery["eventAt"]
    return body


async def test_a_ping_is_queued_listed_and_sent_again_by_its_id(world: World) -> None:
    party = await world.party("CONSUMER")
    made = await a_webhook(party)
    path = f"{WEBHOOKS}/{made['id']}"
    pings = [data_of(await party.wallet.post(f"{path}/ping")) for _ in range(3)]
    assert [(ping["eventType"], ping["state"], ping["attempts"]) for ping in pings] == [
        ("webhook.ping", "PENDING", 0)
    ] * 3
    first = data_of(await party.wallet.get(f"{path}/deliveries?limit=2"))
    rest = data_of(await party.wallet.get(f"{path}/deliveries?limit=2&cursor={first['nextCursor']}"))
    assert [item["eventId"] for item in first["items"] + rest["items"]] == [ping["eventId"] for ping in reversed(pings)]
    assert rest["nextCursor"] is None
    assert (await body_of(party, made, "webhook.ping"))["data"] == {"webhookId": made["id"]}
    again = data_of(await party.wallet.post(f"{path}/deliveries/{pings[0]['eventId']}/resend"))
    assert again["eventId"] == pings[0]["eventId"]
    missing = await party.wallet.post(f"{path}/deliveries/{UNKNOWN}/resend")
    assert error_of(missing) == (404, "NOT_FOUND", "webhook:deliveryNotFound")


async def test_a_replay_queues_past_events_for_a_newer_endpoint(world: World) -> None:
    party = await world.party("CONSUMER")
    await a_webhook(party, eventTypes=[])
    session = await world.request(party)
    await world.publish_webhooks()
    late = await a_webhook(party, eventTypes=["session.requested"])
    path = f"{WEBHOOKS}/{late['id']}/replay"
    assert data_of(await party.wallet.post(path, {"since": session["createdAt"]})) == {"count": 1, "nextSince": None}
    assert await pending(party, late) == ["session.requested"]
    after = await party.wallet.post(path, {"since": "2100-01-01T00:00:00Z"})
    assert data_of(after) == {"count": 0, "nextSince": None}


PUSHES = "/api/v1/push-subscriptions"


def a_subscription(**changes: Any) -> dict[str, Any]:
    return {"endpoint": "https://push.example.com/a-capability", "keys": PushBrowser().keys} | changes


async def test_a_browser_is_added_once_and_what_it_is_made_of_is_never_shown(world: World) -> None:
    party = await world.party("SUPPLIER")
    body = a_subscription() | {"expirationTime": None}
    first = data_of(await party.wallet.post(PUSHES, body))
    made = data_of(await party.wallet.post(PUSHES, body))
    assert made["id"] == first["id"], "renewed"
    key = await party.mint("sessions:operate")
    listed = await key.get(PUSHES)
    assert data_of(listed)["items"] == [made]
    assert len(base64.urlsafe_b64decode(data_of(listed)["serverKey"] + "=")) == 65
    assert "a-capability" not in listed.text
    assert body["keys"]["auth"] not in listed.text
    assert data_of(await key.delete(f"{PUSHES}/{made['id']}")) == made
    assert error_of(await key.delete(f"{PUSHES}/{made['id']}")) == (404, "NOT_FOUND", "push:notFound")


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"endpoint": "http://push.example.com/"}, "push:endpoint"),
        ({"endpoint": "https://10.0.0.1/"}, "push:endpoint"),
        ({"endpoint": "https://[::ffff:127.0.0.1]/"}, "push:endpoint"),
        ({"endpoint": ""}, "push:endpoint"),
        ({"keys": {"p256dh": "AAAA", "auth": PushBrowser().keys["auth"]}}, "push:keys"),
        ({"keys": {"p256dh": PushBrowser().keys["p256dh"][:-1] + "é", "auth": "AAAA"}}, "push:keys"),
        ({"keys": PushBrowser().keys | {"auth": "AAAA"}}, "push:keys"),
        ({"keys": None}, "push:keys"),
    ],
)
async def test_a_subscription_that_no_browser_makes_is_refused(
    world: World, change: dict[str, Any], detail: str
) -> None:
    party = await world.party("SUPPLIER")
    assert error_of(await party.wallet.post(PUSHES, a_subscription(**change))) == (400, "INVALID_INPUT", detail)
    assert data_of(await party.wallet.get(PUSHES))["items"] == []


async def test_the_twenty_first_browser_is_refused(world: World) -> None:
    party = await world.party("SUPPLIER")
    for number in range(20):
        data_of(await party.wallet.post(PUSHES, a_subscription(endpoint=f"https://push.example.com/{number}")))
    assert error_of(await party.wallet.post(PUSHES, a_subscription())) == (409, "CONFLICT", "push:limit")
    data_of(await party.wallet.post(PUSHES, a_subscription(endpoint="https://push.example.com/7")))
