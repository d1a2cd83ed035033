"""The client's models and methods are those of the committed OpenAPI document."""

import inspect
import json
import subprocess
import sys
import types
import typing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from sightline_client import AsyncSightline, MicroUsdc, models
from sightline_client._async.client import AsyncSightline as AsyncClient
from sightline_client._sync.client import Sightline as SyncClient
from sightline_client.models import OpenEnum

SPEC: dict[str, Any] = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text())
SCHEMAS: dict[str, Any] = SPEC["components"]["schemas"]
MONEY = "^(0|[1-9][0-9]{0,77})$"

REQUIRED_OF_0_1_0: dict[str, list[str]] = json.loads(Path(__file__).with_name("required_fields.json").read_text())
"""Fields of answers that every server of version 0.1.0 or newer sends, and that are never null; by schema."""

METHODS = {
    "getHealth": "health",
    "getConfig": "config",
    "getMe": "auth.me",
    "challengeLogin": "auth.challenge",
    "login": "auth.login",
    "selectWorkspace": "auth.select",
    "listWalletSessions": "auth.sign_ins",
    "endWalletSession": "auth.end_sign_in",
    "listInvitations": "auth.invitations",
    "getInvitation": "auth.invitation",
    "acceptInvitation": "auth.accept_invitation",
    "declineInvitation": "auth.decline_invitation",
    "logout": "auth.logout",
    "challengeWorkspace": "workspaces.challenge",
    "createWorkspace": "workspaces.create",
    "listWorkspaces": "workspaces.list",
    "getWorkspace": "workspaces.get",
    "updateWorkspace": "workspaces.update",
    "listMembers": "workspaces.members",
    "addMember": "workspaces.add_member",
    "removeMember": "workspaces.remove_member",
    "listApiKeys": "keys.list",
    "mintApiKey": "keys.mint",
    "revokeApiKey": "keys.revoke",
    "keepApiKey": "keys.keep",
    "postLocation": "workspaces.post_location",
    "postLocations": "workspaces.post_locations",
    "resetLocation": "workspaces.reset_location",
    "getQuote": "quote",
    "getSessionTerms": "sessions.terms",
    "getExtensionTerms": "sessions.extension_terms",
    "extendSession": "sessions.extend",
    "messageOperator": "sessions.message",
    "markMessagesShown": "sessions.mark_messages_shown",
    "getStatement": "sessions.statement",
    "getMonthStatement": "workspaces.statement",
    "getMandate": "wallet.mandate",
    "setMandate": "wallet.set_mandate",
    "deleteMandate": "wallet.delete_mandate",
    "getPermit": "wallet.permit",
    "relayPermit": "wallet.relay_permit",
    "createSession": "sessions.create",
    "listSessions": "sessions.page",
    "cancelAllAssignments": "sessions.cancel_all_assignments",
    "dispatchSession": "sessions.dispatch",
    "acceptSession": "sessions.accept",
    "startSession": "sessions.start",
    "declineSession": "sessions.decline",
    "endSession": "sessions.end",
    "cancelSession": "sessions.cancel",
    "getSession": "sessions.get",
    "getMeter": "sessions.meter",
    "listMeterEvents": "sessions.meter_events_page",
    "getReceipt": "sessions.receipt",
    "getViewerToken": "sessions.viewer_token",
    "shareSession": "sessions.share",
    "listShares": "sessions.shares",
    "revokeShare": "sessions.revoke_share",
    "getSharedView": "sessions.shared",
    "getClip": "sessions.clip",
    "getFrame": "sessions.frame",
    "getSettlement": "sessions.settlement",
    "getWallet": "wallet.get",
    "listWalletEvents": "wallet.events_page",
    "createStreamTicket": "stream_ticket",
    "createWebhook": "webhooks.create",
    "listWebhooks": "webhooks.list",
    "getWebhook": "webhooks.get",
    "updateWebhook": "webhooks.update",
    "deleteWebhook": "webhooks.delete",
    "rotateWebhookSecret": "webhooks.rotate_secret",
    "pingWebhook": "webhooks.ping",
    "listWebhookDeliveries": "webhooks.deliveries_page",
    "getWebhookDelivery": "webhooks.delivery",
    "resendWebhookDelivery": "webhooks.resend",
    "replayWebhookEvents": "webhooks.replay",
    "watchSession": "sessions.events",
    "watchWorkspace": "workspaces.events",
}
"""Method of each operation."""
WITHOUT_METHOD = {
    "streamFrames": "View.frames polls getFrame, which loses no frame when a connection is lost",
    "getCertificates": "a PEM file outside of /api/v1",
    **dict.fromkeys(("getCoverage", "getUsage", "useFaucet"), "for the console; AsyncSightline.call reaches them"),
    **dict.fromkeys(
        ("createPushSubscription", "listPushSubscriptions", "deletePushSubscription"), "for browsers: the console"
    ),
    **dict.fromkeys(("readAuthorizationRequest", "grantAccess"), "for the page on which a member allows a client"),
    **dict.fromkeys(("buyView", "extendView", "getView"), "for clients of x402, which have no account"),
}
MODEL_NAMES = {"Receipt": "ReceiptDocument"}
"""Models whose name differs from that of the schema: `sightline_client.Receipt` is the class with `verify`."""
WIDER = {
    ("ReceiptSession", "state"),
    ("Webhook", "eventTypes"),
    ("WebhookWithSecret", "eventTypes"),
    ("WebhookDelivery", "eventType"),
    ("WebhookDeliveryWithBody", "eventType"),
}
"""Fields whose enumeration has more values than that of the schema, or the same in one enumeration."""
RENAMED = {"durationSeconds": "seconds", "maxDurationSeconds": "seconds"}
COMPOSED = {
    "createWorkspace": {"walletAddress", "nonce", "signature"},
    "setMandate": {"mandate", "signature"},
    "relayPermit": {"permit", "signature"},
    "getMonthStatement": {"format"},
    "postLocation": None,
    "postLocations": None,
}
"""Fields that a method builds itself; None: it passes every field on."""


def operations() -> dict[str, dict[str, Any]]:
    return {
        operation["operationId"]: operation
        for path in SPEC["paths"].values()
        for method, operation in path.items()
        if method in ("get", "post", "put", "patch", "delete")
    }


def method_of(client: AsyncClient | SyncClient, name: str) -> Any:
    found: Any = client
    for part in name.split("."):
        found = getattr(found, part)
    return found


async def test_every_operation_has_a_method_with_its_parameters() -> None:
    assert operations().keys() == METHODS.keys() | WITHOUT_METHOD.keys()
    with SyncClient("http://x") as sync:
        async with AsyncSightline("http://x") as client:
            for operation_id, name in METHODS.items():
                wanted = parameters(operation_id)
                for each in (client, sync):
                    taken = set(inspect.signature(method_of(each, name)).parameters)
                    assert wanted <= taken, f"{operation_id}: {wanted - taken}"


def parameters(operation_id: str) -> set[str]:
    """Names that the method must take for query and body."""
    operation = operations()[operation_id]
    names = {each["name"] for each in operation.get("parameters", []) if each.get("in") == "query"}
    names -= COMPOSED.get(operation_id) or set()
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    composed = COMPOSED.get(operation_id, set())
    if "$ref" in body and composed is not None:
        names |= SCHEMAS[body["$ref"].rpartition("/")[2]]["properties"].keys() - composed
    return {snake(RENAMED.get(name, name)) for name in names}


def snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def answered() -> list[str]:
    """Names of the schemas of answers, with those that they refer to."""
    found: set[str] = set()
    queue = [
        json.dumps(response)
        for operation in operations().values()
        for status, response in operation["responses"].items()
        if status == "200" and operation["operationId"] in METHODS
    ]
    while queue:
        text = queue.pop()
        for name in {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]} - found:
            found.add(name)
            queue.append(json.dumps(SCHEMAS[name]))
    return sorted(found - {"Identity", "Error"})


@pytest.mark.parametrize("name", answered())
def test_the_model_of_an_answer_has_the_fields_of_its_schema(name: str) -> None:
    model: type[BaseModel] = getattr(models, MODEL_NAMES.get(name, name))
    schema = SCHEMAS[name]
    fields = {field.alias or key: field for key, field in model.model_fields.items()}
    assert fields.keys() == schema.get("properties", {}).keys()
    sent_always = set(schema.get("required", ()))
    nullable = {key for key in sent_always if is_nullable(schema["properties"][key])}
    # A field that is not null and was added later has a default, for answers of older servers.
    since_0_1_0 = set(REQUIRED_OF_0_1_0.get(name, sent_always))
    assert required_fields(model) == (sent_always - nullable) & since_0_1_0
    for key, field in fields.items():
        if (name, key) not in WIDER:
            assert shape(field.annotation) == wire_shape(schema["properties"][key]), key


def is_nullable(schema: dict[str, Any]) -> bool:
    return schema.get("type") == "null" or any(each.get("type") == "null" for each in schema.get("anyOf", ()))


def required_fields(model: type[BaseModel]) -> set[str]:
    return {field.alias or key for key, field in model.model_fields.items() if field.is_required()}


@pytest.mark.parametrize("name", REQUIRED_OF_0_1_0)
def test_the_model_of_an_answer_accepts_the_answer_of_an_older_server(name: str) -> None:
    """A field that is added later must be nullable, or have a default in the model."""
    model: type[BaseModel] = getattr(models, MODEL_NAMES.get(name, name))
    assert required_fields(model) <= set(REQUIRED_OF_0_1_0[name])


def test_a_session_of_a_server_without_leases_is_read() -> None:
    values = {"id": "s", "consumerWorkspaceId": "w", "state": "REQUESTED", "createdAt": "2026-01-01T00:00:00.000Z"}
    numbers = dict.fromkeys(("maxDurationSeconds", "waitTimeoutSeconds", "cleanSeconds", "radiusMeters"), 1)
    numbers |= dict.fromkeys(("requestedLat", "requestedLng", "platformFeeBps"), 1)
    money = dict.fromkeys(("ratePerSecondMicroUsdc", "holdMicroUsdc", "chargedMicroUsdc"), "1")
    session = models.Session.model_validate({**values, **numbers, **money, "authorized": True})
    assert (session.consumer_lease_seconds, session.operator_workspace_id) == (None, None)


def wire_shape(schema: dict[str, Any]) -> Any:
    """Reduce a schema to what a model's annotation says: kind, nullability, reference or enumeration."""
    if "anyOf" in schema:
        kinds = [wire_shape(each) for each in schema["anyOf"] if each.get("type") != "null"]
        return ("nullable", kinds[0])
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    if "enum" in schema:
        return frozenset(schema["enum"])
    if "const" in schema or schema["type"] == "string":
        if schema.get("pattern") == MONEY:
            return "money"
        return "time" if schema.get("format") == "date-time" else "string"
    if schema["type"] == "array":
        return ("list", wire_shape(schema["items"]))
    return schema["type"]


def shape(annotation: Any) -> Any:
    """Reduce an annotation in the same way."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return shape(arguments[0])
    if origin in (types.UnionType, typing.Union):
        return ("nullable", shape(next(each for each in arguments if each is not type(None))))
    if origin is list:
        return ("list", shape(arguments[0]))
    if origin is dict:
        return "object"
    if origin is typing.Literal:
        return "string"
    if isinstance(annotation, type) and issubclass(annotation, OpenEnum):
        return frozenset(each.value for each in annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation.__name__
    plain = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null", MicroUsdc: "money"}
    return plain.get(annotation, "time" if annotation is datetime else annotation)


def test_a_value_of_a_newer_server_is_accepted() -> None:
    state = models.SessionState("TELEPORTED")
    assert state == "TELEPORTED"
    assert [each.value for each in models.SessionState][-1] == "EXPIRED"
    health = models.Health.model_validate(
        {"ok": True, "surface": "public", "version": "v1", "buildSha": "1", "mood": "fine"}
    )
    assert health.model_extra == {"mood": "fine"}


def test_the_sync_client_is_generated_from_the_async_one() -> None:
    script = Path(__file__).parents[2] / "scripts" / "sync_client.py"
    command = [sys.executable, str(script), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
