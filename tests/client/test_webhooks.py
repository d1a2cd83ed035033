"""Webhooks in the client: verification of messages, and the calls that manage endpoints."""

import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook as StandardWebhook

from sightline_client import AsyncSightline, InvalidArgumentError, NotFoundError, Sightline, WebhookError
from sightline_client.webhooks import signed_headers, verify
from tests.e2e.server import Server, a_tenant

SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()
OTHER = "whsec_" + base64.b64encode(b"o" * 32).decode()
ID, NOW_S = "5c4f3b6e-0000-4000-8000-000000000001", 1_790_000_000
PING = json.dumps(
    {"type": "webhook.ping", "timestamp": "2026-11-22T06:00:00.000Z", "data": {"webhookId": "w"}}
).encode()


VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "docs" / "vectors" / "webhooks.json").read_text(encoding="utf-8")
)
"""Messages that the verifiers in Python and in TypeScript must judge alike."""


def signed(body: bytes = PING, *secrets: str) -> dict[str, str]:
    """Headers with a signature by each secret, made by the reference library."""
    at = datetime.fromtimestamp(NOW_S, UTC)
    made = [StandardWebhook(secret).sign(ID, at, body.decode()) for secret in secrets or (SECRET,)]
    return {"Webhook-Id": ID, "Webhook-Timestamp": str(NOW_S), "Webhook-Signature": " ".join(made)}


def test_a_message_signed_by_the_reference_library_is_accepted_and_the_other_way_round() -> None:
    event = verify(PING, signed(), SECRET, now_s=NOW_S)
    assert (event.id, event.type, event.value, event.data) == (ID, "webhook.ping", None, {"webhookId": "w"})
    assert verify(PING.decode(), signed(PING, OTHER, SECRET), SECRET, now_s=NOW_S) == event, "after a rotation"
    mine = signed_headers(ID, PING, SECRET, now_s=datetime.now(UTC).timestamp())
    assert StandardWebhook(SECRET).verify(PING, mine)["type"] == "webhook.ping"


@pytest.mark.parametrize("message", VECTORS["messages"], ids=lambda each: each["name"])
def test_the_vectors_are_judged_as_they_say(message: dict[str, Any]) -> None:
    body, headers, event = message["body"], message["headers"], message["event"]
    if event is None:
        with pytest.raises(WebhookError):
            verify(body, headers, VECTORS["secret"], now_s=VECTORS["nowS"])
        return
    found = verify(body, headers, VECTORS["secret"], now_s=VECTORS["nowS"])
    assert (found.id, found.type, found.data) == (event["id"], event["type"], event["data"])
    assert found.timestamp == datetime.fromisoformat(event["timestamp"])
    at = datetime.fromtimestamp(int(headers["Webhook-Timestamp"]), UTC)
    made = StandardWebhook(VECTORS["secret"]).sign(event["id"], at, body)
    assert made in headers["Webhook-Signature"].split(), "the vectors agree with the reference library"


FORGED: dict[str, tuple[bytes, dict[str, str], str]] = {
    "another body": (PING + b" ", signed(), "no signature"),
    "another secret": (PING, signed(PING, OTHER), "no signature"),
    "another id": (PING, signed() | {"Webhook-Id": "x"}, "no signature"),
    "a signature of another version": (PING, signed() | {"Webhook-Signature": "v2,abc"}, "no signature"),
    "an ill-typed time": (PING, signed() | {"Webhook-Timestamp": "noon"}, "malformed"),
    "no headers": (PING, {}, "missing"),
    "no event": (b"[]", signed(b"[]"), "not an event"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_message_is_refused(name: str) -> None:
    body, headers, reason = FORGED[name]
    with pytest.raises(WebhookError, match=reason):
        verify(body, headers, SECRET, now_s=NOW_S)


@pytest.mark.parametrize("now_s", [NOW_S - 301, NOW_S + 301])
def test_an_old_message_is_refused(now_s: float) -> None:
    with pytest.raises(WebhookError, match="300 s"):
        verify(PING, signed(), SECRET, now_s=now_s)


def test_a_malformed_secret_is_the_programs_error() -> None:
    for secret in ("my secret!", "whsec_ä"):
        with pytest.raises(InvalidArgumentError, match="WEBHOOK_SECRET") as caught:
            verify(PING, signed(), secret, now_s=NOW_S)
        assert secret not in str(caught.value)


def test_whitespace_around_a_secret_is_left_out() -> None:
    assert verify(PING, signed(), f" {SECRET}\n", now_s=NOW_S).type == "webhook.ping"


async def test_the_calls_manage_endpoints_and_deliveries(running_server: Server) -> None:
    tenant = await a_tenant(running_server.url, "CONSUMER", "hooked")
    async with AsyncSightline(running_server.url) as sl:
        await sl.auth.sign_in(tenant.wallet, workspace_id=tenant.workspace_id)
        made = await sl.webhooks.create("https://receiver.invalid/hook", event_types=["session.live"])
        assert made.secret.startswith("whsec_")
        assert made.secret not in repr(made)
        assert [each.id for each in await sl.webhooks.list()] == [made.id]
        assert (await sl.webhooks.update(made.id, description="mine", enabled=False)).disabled_reason == "OWNER"
        assert (await sl.webhooks.get(made.id)).description == "mine"
        assert (await sl.webhooks.rotate_secret(made.id)).secret != made.secret
        await sl.webhooks.update(made.id, enabled=True)
        ping = await sl.webhooks.ping(made.id)
        assert [each.event_id async for each in sl.webhooks.deliveries(made.id)] == [ping.event_id]
        sent: dict[str, Any] = json.loads((await sl.webhooks.delivery(made.id, ping.event_id)).body)
        assert sent["type"] == ping.event_type == "webhook.ping"
        assert (await sl.webhooks.resend(made.id, ping.event_id)).event_id == ping.event_id
        assert (await sl.webhooks.replay(made.id, since=datetime(2026, 1, 1, tzinfo=UTC))).next_since is None
        await sl.webhooks.delete(made.id)
        with pytest.raises(NotFoundError):
            await sl.webhooks.get(made.id)


def test_the_client_verifies_without_a_server() -> None:
    with Sightline("http://x") as sl, pytest.raises(WebhookError):
        sl.webhooks.verify(PING, {}, SECRET)
