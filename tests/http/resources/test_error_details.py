"""Errors say what to do: the present state, the missing scope, the last sequence, the field that was meant."""

import ast
from pathlib import Path

import pytest

import sightline
from sightline.http.schemas.base import edit_distance, resembling
from tests.http.world import BERLIN, World, data_of, error_of

SESSIONS = "/api/v1/sessions"
PACKAGE = Path(sightline.__file__).parent


def test_each_refusal_that_has_a_label_says_what_is_wrong_in_this_call() -> None:
    made = [
        (path.name, node.lineno)
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Refusal"
        and len(node.args) == 2
        and "message" not in {each.arg for each in node.keywords}
    ]
    assert made == []


async def test_a_refused_transition_names_the_present_state(world: World) -> None:
    consumer = await world.party("CONSUMER")
    path = f"{SESSIONS}/{(await world.request(consumer))['id']}"
    data_of(await consumer.key.delete(path))
    refused = await consumer.key.post(f"{path}/end")
    assert error_of(refused) == (409, "INVALID_STATE", "session:state")
    assert refused.json()["state"] == "CANCELLED"
    viewer = await consumer.key.get(f"{path}/viewer-token")
    assert (viewer.json()["detail"], viewer.json()["state"]) == ("session:notLive", "CANCELLED")


async def test_a_key_without_the_scope_is_told_which_one(world: World) -> None:
    operator = await world.party("SUPPLIER")
    body = {"label": "reader", "environment": "TEST", "scopes": ["sessions:read"]}
    key = data_of(await operator.wallet.post(f"{operator.path}/api-keys", body))["plaintext"]
    refused = await operator.key.having(authorization=f"Bearer {key}").post(SESSIONS, BERLIN)
    assert error_of(refused) == (403, "NOT_AUTHORIZED", "apiKey:scope")
    assert refused.json()["requiredScope"] == "sessions:create"


async def test_a_party_whose_key_may_not_end_its_side_is_told_the_scope(world: World) -> None:
    consumer = await world.party("CONSUMER")
    session = (await world.request(consumer))["id"]
    body = {"label": "operate", "environment": "TEST", "scopes": ["sessions:operate"]}
    key = data_of(await consumer.wallet.post(f"{consumer.path}/api-keys", body))["plaintext"]
    refused = await consumer.key.having(authorization=f"Bearer {key}").post(f"{SESSIONS}/{session}/end")
    assert error_of(refused) == (403, "NOT_AUTHORIZED", "apiKey:scope")
    assert refused.json()["requiredScope"] == "sessions:create"


async def test_a_low_sequence_is_told_the_last_one(world: World) -> None:
    operator = await world.party("SUPPLIER")
    data_of(await operator.key.post(f"{operator.path}/location", BERLIN | {"sequence": 7}))
    refused = await operator.key.post(f"{operator.path}/location", BERLIN | {"sequence": 7})
    assert (error_of(refused)[2], refused.json()["lastSequence"]) == ("location:sequence", 7)
    batch = {"items": [BERLIN | {"sequence": 6}, BERLIN | {"sequence": 8}]}
    items = data_of(await operator.key.post(f"{operator.path}/locations", batch))["items"]
    assert [(item["ok"], item.get("lastSequence")) for item in items] == [(False, 7), (True, None)]


async def test_a_wrong_key_is_called_a_wrong_key(world: World) -> None:
    consumer = await world.party("CONSUMER")
    refused = await consumer.key.having(authorization="Bearer svc_nonsense").get("/api/v1/me")
    assert error_of(refused) == (401, "NOT_AUTHENTICATED", "auth:credential")
    assert refused.json()["hint"] == "The API key or session cookie is not valid"


async def test_a_key_without_the_scheme_bearer_is_told_the_form(world: World) -> None:
    consumer = await world.party("CONSUMER")
    refused = await consumer.key.having(authorization=consumer.plaintext).get("/api/v1/me")
    assert error_of(refused) == (401, "NOT_AUTHENTICATED", "auth:credential")
    assert refused.json()["hint"].endswith("Send an API key as Authorization: Bearer svc_...")


async def test_the_end_of_a_session_without_an_operator_names_the_cancellation(world: World) -> None:
    consumer = await world.party("CONSUMER")
    session = await world.request(consumer)
    refused = await consumer.key.post(f"/api/v1/sessions/{session['id']}/end")
    assert error_of(refused) == (409, "INVALID_STATE", "session:state")
    assert refused.json()["state"] == "REQUESTED"
    assert "cancel it with DELETE" in refused.json()["hint"]


@pytest.mark.parametrize(
    ("field", "label", "meant"),
    [
        ("maxDuration", "session:duration", "maxDurationSeconds"),
        ("max_duration_seconds", "session:duration", "maxDurationSeconds"),
        ("radiusMetres", "session:radius", "radiusMeters"),
    ],
)
async def test_a_misspelt_field_of_a_creating_call_is_refused(world: World, field: str, label: str, meant: str) -> None:
    consumer = await world.party("CONSUMER")
    refused = await consumer.key.post(SESSIONS, BERLIN | {field: 100})
    assert error_of(refused) == (400, "INVALID_INPUT", label)
    assert refused.json()["hint"] == f"{field}: unknown field; did you mean {meant}?"
    assert data_of(await consumer.key.get(SESSIONS))["items"] == []


async def test_an_unrelated_unknown_field_is_ignored(world: World) -> None:
    consumer = await world.party("CONSUMER")
    data_of(await consumer.key.post(SESSIONS, BERLIN | {"correlation": "x", "x": 1}))


def test_names_resemble_within_two_edits() -> None:
    assert [edit_distance(*pair) for pair in (("lat", "lat"), ("lat", "lot"), ("abc", "cba"), ("", "ab"))] == [
        0,
        1,
        2,
        2,
    ]
    assert resembling("quoteID", {"quoteId"}) == "quoteId"
    assert resembling("id", {"lat", "lng", "quoteId"}) is None


@pytest.mark.parametrize("name", ["two\nlines", "bidi \u202eevil", "mark\u2069", "tab\there", "sep\u2028arator"])
async def test_a_name_with_control_or_direction_characters_is_refused(world: World, name: str) -> None:
    operator = await world.party("SUPPLIER")
    refused = await operator.wallet.patch(operator.path, {"name": name})
    assert error_of(refused) == (400, "INVALID_INPUT", "workspace:name")
    data_of(await operator.wallet.patch(operator.path, {"name": "Hafen-Kameras Süd 東京"}))


async def test_every_response_forbids_framing_sniffing_and_referrers(world: World) -> None:
    for path in ("/api/v1/health", "/nowhere", "/docs"):
        headers = (await world.http.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert len(headers.get_list("content-security-policy")) == 1
