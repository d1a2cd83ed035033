"""The internal listener: readiness, metrics, the video provider's webhooks."""

import json
from typing import Any

import httpx
import pytest

from sightline.http.internal.service import webhook_signature
from sightline.http.schemas.base import iso
from tests.http.world import WEBHOOK_SECRET, World, data_of, error_of

HOOK = "/internal/webhooks/video"


async def post_event(world: World, event: dict[str, Any], **changes: str) -> httpx.Response:
    body = json.dumps(event).encode()
    timestamp = changes.get("timestamp", str(world.clock.now_ms() // 1_000))
    signature = changes.get("signature", "v1=" + webhook_signature(WEBHOOK_SECRET, timestamp, body))
    headers = {
        "content-type": "application/json",
        "x-svc-timestamp": timestamp,
        "x-svc-signature": signature.encode("latin-1"),
    }
    return await world.internal.post(HOOK, content=body, headers=headers)


def event_of(world: World, ref: str, kind: str = "live_input.disconnected", number: int = 1) -> dict[str, Any]:
    return {
        "eventId": f"event-{number}",
        "videoBackendRef": ref,
        "type": kind,
        "occurredAt": iso(world.clock.now_ms()),
        "reason": "gone",
    }


async def test_readyz_names_every_check_and_the_failed_ones(world: World) -> None:
    up = {
        "database": {"ok": True, "detail": "The database is up."},
        "video": {"ok": True, "detail": "The video is up."},
    }
    assert data_of(await world.internal.get("/readyz")) == {"ready": True, "checks": up}
    world.ready["video"] = False
    answer = await world.internal.get("/readyz")
    assert answer.status_code == 503
    assert (answer.json()["code"], answer.json()["detail"]) == ("UNAVAILABLE", "ready:checks")
    assert answer.json()["message"] == "Not ready. video: The video is down."
    assert answer.json()["checks"] == up | {"video": {"ok": False, "detail": "The video is down."}}
    assert answer.headers["retry-after"] == "1"


async def test_metrics_count_calls_by_route_and_never_by_path(world: World) -> None:
    party = await world.party("CONSUMER")
    data_of(await party.key.get(party.path))
    answer = await world.internal.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    line = 'sightline_http_requests_total{method="GET",route="/api/v1/workspaces/{id}",status="200"} 1.0'
    assert line in answer.text
    assert 'sightline_actors{kind="session"} 1.0' in answer.text
    assert party.id not in answer.text


async def test_the_public_listener_knows_none_of_it(world: World) -> None:
    for path in ("/readyz", "/metrics", HOOK):
        assert error_of(await world.anyone.get(path)) == (404, "NOT_FOUND", "route:unknown")


async def test_a_disconnection_pauses_the_meter_as_of_when_it_occurred(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    session = await world.live(consumer, operator)
    ref = session["videoBackendRef"]
    connected = event_of(world, ref, "live_input.connected", number=1)
    assert data_of(await post_event(world, connected)) == {"eventId": "event-1", "applied": True}
    gone = event_of(world, ref, number=2)
    assert data_of(await post_event(world, gone))["applied"] is True
    meter = data_of(await consumer.key.get(f"/api/v1/sessions/{session['id']}/meter"))
    assert (meter["meterState"], meter["windows"][0]["reason"]) == ("PAUSED", "MEDIA_LOST")
    again = event_of(world, ref, "live_input.connected", number=1)
    assert data_of(await post_event(world, again)) == {"eventId": "event-1", "applied": False}
    meter = data_of(await consumer.key.get(f"/api/v1/sessions/{session['id']}/meter"))
    assert meter["meterState"] == "PAUSED"


async def test_an_unknown_reference_is_fine_and_ignored(world: World) -> None:
    answer = await post_event(world, event_of(world, "vid-unknown"))
    assert data_of(answer) == {"eventId": "event-1", "applied": False}


async def test_a_hook_must_be_signed_and_fresh(world: World) -> None:
    event = event_of(world, "vid-unknown")
    bad = (401, "NOT_AUTHENTICATED", "webhook:signature")
    assert error_of(await post_event(world, event, signature="v1=" + "00" * 32)) == bad
    assert error_of(await post_event(world, event, signature="")) == bad
    assert error_of(await post_event(world, event, signature="ü")) == bad
    assert error_of(await post_event(world, event, timestamp="soon", signature="v1=00")) == bad
    for skew_s in (-301, 301):
        answer = await post_event(world, event, timestamp=str(world.clock.now_ms() // 1_000 + skew_s))
        assert error_of(answer) == (401, "NOT_AUTHENTICATED", "webhook:timestamp")


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"type": "live_input.sneezed"}, "webhook:type"),
        ({"eventId": ""}, "webhook:eventId"),
        ({"eventId": "a\u0000b"}, "webhook:eventId"),
        ({"occurredAt": 7}, "webhook:occurredAt"),
        ({"videoBackendRef": None}, "webhook:videoBackendRef"),
    ],
)
async def test_a_wrong_hook_names_the_field(world: World, change: dict[str, Any], detail: str) -> None:
    answer = await post_event(world, event_of(world, "vid-unknown") | change)
    assert error_of(answer) == (400, "INVALID_INPUT", detail)


async def test_nodes_are_listed_with_their_shards_and_roles(world: World) -> None:
    listed = data_of(await world.internal.get("/internal/nodes"))
    assert listed == {
        "items": [
            {
                "incarnation": "1", "name": "here/2", "host": "here", "url": "http://10.0.0.5:8082", "version": "1.2.3",
                "valid": True, "renewedMsAgo": 1_200, "shards": 256,
                "roles": ["DISPATCHER", "RELAYER", "WATCHER", "HOUSEKEEPING"],
                "connected": True, "clockOffsetMs": -3, "loopDelayMs": 4, "reportedMsAgo": 800,
            }
        ],
        "nextCursor": None,
        "unownedShards": 0,
    }  # fmt: skip


async def test_servers_are_targets_for_prometheus_by_its_own_format(world: World) -> None:
    answer = await world.internal.get("/internal/targets")
    assert answer.headers["content-type"] == "application/json"
    assert json.loads(answer.content) == [{"targets": ["10.0.0.5:8082"], "labels": {"node": "here/2"}}]


async def test_actors_are_counted_by_kind(world: World) -> None:
    await world.request(await world.party("CONSUMER"))
    kinds = data_of(await world.internal.get("/internal/actors"))["kinds"]
    assert kinds["session"]["active"] == 1
    assert (kinds["session"]["parked"], kinds["session"]["retrying"]) == ({}, {})


@pytest.mark.parametrize(
    "path",
    [
        "/internal/actors/session/some/revive",
        "/internal/settlements/00000000-0000-4000-8000-000000000000/write-off?reason=a+page",
    ],
)
async def test_a_page_of_another_site_changes_nothing_through_a_visitors_browser(world: World, path: str) -> None:
    for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
        assert (await world.internal.post(path, headers=headers)).status_code == 403
    assert (await world.internal.post(path)).status_code == 404
