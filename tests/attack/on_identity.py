"""Attacks on identity: removed members, stolen cookies and keys, open streams, secrets shown to the wrong side."""

import json
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import trio

from sightline_client.wallet import LocalWallet
from tests.attack.catalogue import Kind, attack
from tests.attack.target import Target
from tests.client.api import Api
from tests.e2e.server import Tenant
from tests.http.socket_client import SocketClosedByServerError, open_socket

MINT = {"label": "all", "environment": "TEST", "scopes": ["sessions:read", "sessions:create", "sessions:operate"]}


async def cookie_of(target: Target, wallet: LocalWallet, workspace_id: str | None = None) -> str:
    """The Cookie header of a new sign-in."""
    async with Api(target.url) as api:
        await api.auth.sign_in(wallet)
        if workspace_id is not None:
            await api.post("/auth/workspace/select", workspaceId=workspace_id)
        cookies = api.transport.http.cookies
        return "; ".join(f"{name}={value}" for name, value in cookies.items())


async def a_member(target: Target, owner: Tenant, role: str) -> tuple[LocalWallet, str]:
    """A further wallet with this role, signed in; and the Cookie header."""
    wallet = LocalWallet.create()
    owners_cookie = await cookie_of(target, owner.wallet, owner.workspace_id)
    path = f"/workspaces/{owner.workspace_id}/members"
    answer = await target.call("POST", path, owners_cookie, {"walletAddress": wallet.address, "role": role})
    assert answer.status_code == 200, answer.text
    return wallet, await cookie_of(target, wallet, owner.workspace_id)


async def remove(target: Target, owner: Tenant, wallet: LocalWallet) -> None:
    owners_cookie = await cookie_of(target, owner.wallet, owner.workspace_id)
    path = f"/workspaces/{owner.workspace_id}/members/{wallet.address}"
    assert (await target.call("DELETE", path, owners_cookie)).status_code == 200


@attack("H1", "A removed OWNER mints a key and adds itself again")
async def removed_owner(target: Target) -> str:
    owner = await target.tenant("SUPPLIER")
    wallet, cookie = await a_member(target, owner, "OWNER")
    await remove(target, owner, wallet)
    path = f"/workspaces/{owner.workspace_id}"
    minted = await target.call("POST", f"{path}/api-keys", cookie, MINT)
    added = await target.call("POST", f"{path}/members", cookie, {"walletAddress": wallet.address, "role": "OWNER"})
    listed = await target.call("GET", f"{path}/api-keys", cookie)
    statuses = [minted.status_code, added.status_code, listed.status_code]
    assert statuses == [403, 403, 403], statuses
    return "mint, add and list answered 403"


@attack("M2", "A WebSocket and an event stream outlive the removal of their member", Kind.WAIT)
async def streams_of_removed_member(target: Target) -> str:
    owner = await target.tenant("SUPPLIER")
    wallet, cookie = await a_member(target, owner, "ADMIN")
    path = f"/api/v1/workspaces/{owner.workspace_id}/location/stream"
    async with open_socket(target.url, path, {"cookie": cookie}, patience_s=30) as socket:
        await remove(target, owner, wallet)
        started = trio.current_time()
        with trio.fail_after(20), pytest.raises(SocketClosedByServerError) as closed:
            await socket.receive()
    assert closed.value.code == 1008, closed.value.code
    return f"closed with 1008 after {trio.current_time() - started:.0f} s"


@attack("ASVS 7.4", "A cookie is used after its logout")
async def cookie_after_logout(target: Target) -> str:
    tenant = await target.tenant("CONSUMER")
    cookie = await cookie_of(target, tenant.wallet)
    assert (await target.call("POST", "/auth/logout", cookie)).status_code == 200
    assert (await target.call("GET", "/me", cookie)).status_code == 401
    return "401"


async def stream_ticket(target: Target, key: str, path: str) -> str:
    answer = await target.call("POST", "/stream-tickets", key, {"path": path})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["data"]["ticket"])


async def open_with(target: Target, path: str, ticket: str) -> int:
    """Open an event stream with a ticket, without any other credential; returns the status."""
    url = f"{target.url}{path}?ticket={ticket}"
    async with httpx.AsyncClient(timeout=30) as browser, browser.stream("GET", url) as answer:
        return answer.status_code


@attack("ADR 0123", "A ticket of a stream is replayed, used on another path, or used after 30 seconds", Kind.WAIT)
async def stream_tickets(target: Target) -> str:
    tenant, other = await target.tenant("CONSUMER"), await target.tenant("CONSUMER")
    path, others = (f"/api/v1/workspaces/{each.workspace_id}/events" for each in (tenant, other))
    late = await stream_ticket(target, tenant.key, path)
    issued = trio.current_time()
    used, moved = await stream_ticket(target, tenant.key, path), await stream_ticket(target, tenant.key, path)
    foreign = await stream_ticket(target, tenant.key, others)
    assert await open_with(target, path, used) == 200, "the ticket must open its stream once"
    replayed = await open_with(target, path, used)
    elsewhere = [await open_with(target, others, moved), await open_with(target, path, moved)]
    not_own = await open_with(target, others, foreign)
    await trio.sleep_until(issued + 30.5)
    expired = await open_with(target, path, late)
    assert (replayed, elsewhere, expired) == (401, [401, 401], 401), (replayed, elsewhere, expired)
    assert not_own in (403, 404), not_own
    assert not [ticket for ticket in (late, used, moved, foreign) if ticket in target.logged()], (
        "a ticket is in the log"
    )
    return f"replay, another path and 30.5 s answered 401; another tenant's stream {not_own}; none in the log"


@attack("M3", "A read-only key, a VIEWER and the consumer read whipUrl")
async def whip_url_for_readers(target: Target) -> str:
    consumer, operator = await target.tenant("CONSUMER"), await target.operator()
    started = await target.live_session(consumer, operator)
    path = f"/sessions/{started['session']['id']}"
    owners_cookie = await cookie_of(target, operator.wallet, operator.workspace_id)
    body = MINT | {"scopes": ["sessions:read"]}
    minted = await target.call("POST", f"/workspaces/{operator.workspace_id}/api-keys", owners_cookie, body)
    reader = minted.json()["data"]["plaintext"]
    _, viewer = await a_member(target, operator, "VIEWER")
    for name, credential in (("reader", reader), ("VIEWER", viewer), ("consumer", consumer.key)):
        for text in (
            (await target.call("GET", path, credential)).text,
            (await target.call("GET", "/sessions", credential)).text,
        ):
            assert urlsplit(started["whipUrl"]).path not in text, f"{name} reads whipUrl"
    shown = (await target.call("GET", path, operator.key)).json()["data"]["whipUrl"]
    assert shown == started["whipUrl"], "the operator's own key must see it"
    await target.call("POST", f"{path}/end", operator.key)
    return "null for all three, shown to sessions:operate"


@attack("held", "57 foreign calls: another tenant's key on a session and a workspace")
async def foreign_calls(target: Target) -> str:
    consumer, operator, stranger = (
        await target.tenant("CONSUMER"),
        await target.operator(),
        await target.tenant("CONSUMER"),
    )
    started = await target.live_session(consumer, operator)
    session, workspace = f"/sessions/{started['session']['id']}", f"/workspaces/{consumer.workspace_id}"
    attempts: list[tuple[str, str, Any]] = [
        *(("GET", session + tail, None) for tail in ("", "/meter", "/viewer-token", "/frame", "/frames", "/events")),
        *(("POST", session + tail, None) for tail in ("/dispatch", "/start", "/end")),
        ("POST", f"{session}/accept", {"operatorWorkspaceId": operator.workspace_id}),
        ("DELETE", session, None),
        ("GET", f"/settlements/{started['session']['id']}", None),
        *(("GET", workspace + tail, None) for tail in ("", "/events", "/members", "/api-keys")),
        ("PATCH", workspace, {"name": "Mine now"}),
        ("POST", f"{workspace}/location", {"lat": 1, "lng": 1, "sequence": 1}),
        ("POST", f"{workspace}/api-keys", MINT),
    ]
    count = 0
    for credential in (stranger.key, "svc_test_abcdef_" + "0" * 43, "svc_session=v2.k1.e30.AAAA"):
        for method, path, body in attempts:
            answer = await target.call(method, path, credential, body)
            assert answer.status_code in (401, 403, 404, 409), f"{method} {path}: {answer.status_code}"
            assert "whipUrl" not in answer.text
            count += 1
    await target.call("POST", f"{session}/end", operator.key)
    return f"{count} calls refused"


@attack("low", "A name with bidirectional controls or line feeds")
async def deceptive_names(target: Target) -> str:
    tenant = await target.tenant("CONSUMER")
    path = f"/workspaces/{tenant.workspace_id}"
    for name in ("good\u202egnp.exe", "two\nlines", "\u2066hidden\u2069", "nul\x00byte"):
        answer = await target.call("PATCH", path, tenant.key, {"name": name})
        assert answer.status_code == 400, f"{json.dumps(name)}: {answer.status_code}"
    return "400 for each"


@attack("M10", "A heartbeat with the largest sequence locks the operator out")
async def largest_sequence(target: Target) -> str:
    operator = await target.tenant("SUPPLIER")
    path = f"/workspaces/{operator.workspace_id}/location"
    body = {"lat": 52.52, "lng": 13.4, "sequence": 1}
    assert (await target.call("POST", path, operator.key, body)).status_code == 200
    jump = await target.call("POST", path, operator.key, body | {"sequence": 2**53 - 1})
    assert jump.status_code == 400, jump.status_code
    assert (await target.call("POST", path, operator.key, body | {"sequence": 2})).status_code == 200
    return "400, and the next heartbeat is accepted"


@attack("held", "Keys, cookies, signatures and media tokens in the log")
async def secrets_in_log(target: Target) -> str:
    consumer, operator = await target.tenant("CONSUMER"), await target.operator()
    started = await target.live_session(consumer, operator)
    cookie = await cookie_of(target, consumer.wallet)
    await target.call("POST", f"/sessions/{started['session']['id']}/end", operator.key)
    secrets = [consumer.key, operator.key, cookie.partition("=")[2], urlsplit(started["whipUrl"]).path]
    log = target.logged()
    assert not [secret for secret in secrets if secret in log]
    return f"none in {len(log.splitlines())} lines"
