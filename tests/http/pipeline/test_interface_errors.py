"""The table "Errors" of the interface, walked through real calls: status, code and message, byte for byte."""

from typing import Any
from uuid import uuid4

import httpx

from tests.http.world import BERLIN, STATED_MESSAGES, World, data_of

SESSIONS = "/api/v1/sessions"
TABLE = {
    "INVALID_INPUT": (400, "Invalid request payload"),
    "NOT_AUTHENTICATED": (401, "Session expired or missing"),
    "NOT_AUTHORIZED": (403, "Not authorized for this operation"),
    "NOT_OPERATOR": (403, "Caller is not an operator"),
    "NOT_FOUND": (404, "Resource not found"),
    "SESSION_NOT_FOUND": (404, "Session not found"),
    "INVALID_STATE": (409, "Operation not allowed in the current state"),
    "CONFLICT": (409, "Conflicts with an existing resource"),
    "AUTHZ_ERROR": (503, "Authorization service unavailable"),
    "VIDEO_ERROR": (503, "Video service unavailable"),
}


def require_row(answer: httpx.Response, code: str) -> dict[str, Any]:
    """The envelope of an error, whose status and message are those of the table."""
    envelope: dict[str, Any] = answer.json()
    assert (envelope["code"], (answer.status_code, envelope["message"])) == (code, TABLE[code])
    return envelope


def test_every_other_test_compares_with_this_table() -> None:
    assert {code: message for code, (_, message) in TABLE.items()} == STATED_MESSAGES


async def test_each_message_is_that_of_the_table(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    require_row(await consumer.key.post(SESSIONS, {"lat": 100, "lng": 0}), "INVALID_INPUT")
    require_row(await consumer.key.post(SESSIONS, {}), "INVALID_INPUT")
    require_row(await world.anyone.get("/api/v1/me"), "NOT_AUTHENTICATED")
    require_row(await consumer.key.having(authorization="Bearer svc_nonsense").get("/api/v1/me"), "NOT_AUTHENTICATED")
    session = await world.request(consumer)
    path = f"{SESSIONS}/{session['id']}"
    require_row(await (await world.party("CONSUMER")).key.get(path), "NOT_AUTHORIZED")
    require_row(await operator.key.post(SESSIONS, BERLIN), "NOT_AUTHORIZED")
    require_row(await consumer.key.post(f"{SESSIONS}/cancel-all-assignments"), "NOT_OPERATOR")
    require_row(await consumer.key.get("/api/v1/unknown"), "NOT_FOUND")
    require_row(await consumer.key.get(f"{SESSIONS}/{uuid4()}"), "SESSION_NOT_FOUND")
    state = require_row(await operator.key.post(f"{path}/start"), "NOT_AUTHORIZED")
    assert "state" not in state
    data_of(await consumer.key.delete(path))
    assert require_row(await consumer.key.delete(path), "INVALID_STATE")["state"] == "CANCELLED"
    refused = await consumer.key.post(SESSIONS, BERLIN | {"maxHoldMicroUsdc": "0"})
    assert "above the caller's maximum of 0 USDC" in require_row(refused, "CONFLICT")["hint"]


async def test_a_call_that_no_path_takes_is_told_which_one_does(world: World) -> None:
    key = (await world.party("CONSUMER")).key
    hints = [
        (await key.get("/api/v1/unknown")).json()["hint"],
        (await key.having(idempotency_key="x" * 256).post(SESSIONS, BERLIN)).json()["hint"],
        (await key.having(content_type="text/plain").post(SESSIONS, BERLIN)).json()["hint"],
        (await key.delete(SESSIONS)).json()["hint"],
        (await key.post(SESSIONS, {"instructions": "a" * 2_000_000})).json()["hint"],
    ]
    assert hints == [
        "There is no such path. GET /openapi.json lists those of this server",
        "Idempotency-Key must have 1 to 255 visible ASCII characters; spaces may be within",
        "Unsupported content type. Send the body as application/json",
        "Method not allowed. This path takes GET, HEAD, POST",
        "The body is larger than this server accepts. Send less in one call.",
    ]


async def test_a_low_sequence_is_named_in_the_hint_and_in_a_field(world: World) -> None:
    operator = await world.party("SUPPLIER")
    data_of(await operator.key.post(f"{operator.path}/location", BERLIN | {"sequence": 7}))
    refused = require_row(await operator.key.post(f"{operator.path}/location", BERLIN | {"sequence": 7}), "CONFLICT")
    assert "7" in refused["hint"]
    assert refused["lastSequence"] == 7


async def test_the_messages_of_dependencies_that_are_down(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    path = f"{SESSIONS}/{(await world.request(consumer))['id']}"
    data_of(await operator.key.post(f"{path}/accept", {"operatorWorkspaceId": operator.id}))
    world.video.is_down = True
    require_row(await operator.key.post(f"{path}/start"), "VIDEO_ERROR")
    world.relations.is_down = True
    require_row(await consumer.key.post(SESSIONS, BERLIN), "AUTHZ_ERROR")
