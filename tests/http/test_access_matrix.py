"""Who may call what: every call x every kind of credential, scope, role and party gives the promised status and code.

The table below is written from the promises alone; it does not look at the rules of the code.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import urlencode

import msgspec
import pytest

from sightline.domain.value import Value
from sightline.http.pipeline.routes import AnyRoute, Route
from sightline.http.services import ResourceOptions
from tests.http.fakes import a_clip
from tests.http.world import (
    BERLIN,
    EVERY_SCOPE,
    Client,
    Party,
    World,
    WorldOptions,
    data_of,
    error_of,
    open_world,
)
from tests.webhooks.push_browser import PushBrowser

Outcome: TypeAlias = int | tuple[int, str]

READ, CREATE, OPERATE = "sessions:read", "sessions:create", "sessions:operate"
PRICING, WALLET, HOOKS = "pricing:read", "wallet:read", "webhooks:write"
STAFF, ANYBODY, OWNER = ("OWNER", "ADMIN"), ("OWNER", "ADMIN", "VIEWER"), ("OWNER",)
FORBIDDEN: Outcome = (403, "NOT_AUTHORIZED")
NOT_OPERATOR: Outcome = (403, "NOT_OPERATOR")
UNKNOWN = "00000000-0000-4000-8000-000000000000"
SESSIONS = "/api/v1/sessions"


@dataclass
class Cast:
    """A consumer, an operator, and a stranger who could be either; each with its members and keys."""

    world: World
    parties: dict[str, Party]
    wallets: dict[tuple[str, str], Client] = field(default_factory=dict)
    keys: dict[tuple[str, str], Client] = field(default_factory=dict)
    unselected: dict[str, Client] = field(default_factory=dict)
    session_id: str = ""
    key_id: str = ""

    async def requested(self) -> str:
        self.session_id = (await self.world.request(self.parties["consumer"]))["id"]
        return f"{SESSIONS}/{self.session_id}"

    async def assigned(self) -> str:
        path, operator = await self.requested(), self.parties["operator"]
        data_of(await operator.key.post(f"{path}/accept", {"operatorWorkspaceId": operator.id}))
        return path

    async def live(self) -> str:
        path = await self.assigned()
        data_of(await self.parties["operator"].key.post(f"{path}/start"))
        self.world.video.show(self.session_id, 1)
        self.world.video.keep(self.session_id, a_clip(self.world.clock.now_ms(), b"a clip"))
        return path

    async def tidy(self) -> None:
        """Leave nobody busy."""
        if self.session_id:
            await self.parties["operator"].key.post(f"{SESSIONS}/{self.session_id}/end")
        for name in ("operator", "stranger"):
            data_of(await self.parties[name].key.post(f"{SESSIONS}/cancel-all-assignments"))
        self.session_id = ""


Prepared: TypeAlias = tuple[str, object]
Prepare: TypeAlias = Callable[[Cast, Party], Awaitable[Prepared]]


class Rule(Value, kw_only=True):
    """What is promised of one call. `parties` says what each gets who may make the call at all."""

    name: str
    method: str
    prepare: Prepare
    scopes: tuple[str, ...] | None
    roles: tuple[str, ...]
    parties: dict[str, Outcome]
    keys_get: Outcome = FORBIDDEN
    """What keys get where `scopes` is None: no key may."""
    scope_of_party: dict[str, str] = msgspec.field(default_factory=dict)
    """Where the scope must be that of the side."""
    needs_selection: bool = True


async def sessions_root(cast: Cast, me: Party) -> Prepared:
    return SESSIONS, dict(BERLIN)


def fixed(path: str, body: object = None) -> Prepare:
    async def prepare(cast: Cast, me: Party) -> Prepared:
        return path, body

    return prepare


def on_operators_workspace(tail: str = "", body: object = None) -> Prepare:
    async def prepare(cast: Cast, me: Party) -> Prepared:
        return cast.parties["operator"].path + tail, body

    return prepare


def in_state(state: str, tail: str, *, with_own_id: bool = False, body: dict[str, object] | None = None) -> Prepare:
    async def prepare(cast: Cast, me: Party) -> Prepared:
        if tail == "/dispatch":
            await cast.parties["operator"].go_online()
        path = await {"requested": cast.requested, "assigned": cast.assigned, "live": cast.live}[state]()
        return path + tail, {"operatorWorkspaceId": me.id} if with_own_id else body

    return prepare


async def paid_view(cast: Cast, me: Party) -> Prepared:
    await cast.live()
    return f"/api/v1/x402/views/{cast.session_id}", None


async def extended_view(cast: Cast, me: Party) -> Prepared:
    path, _ = await paid_view(cast, me)
    return f"{path}/extend", {"seconds": 60}


async def settlement(cast: Cast, me: Party) -> Prepared:
    await cast.live()
    return f"/api/v1/settlements/{cast.session_id}", None


async def receipt(cast: Cast, me: Party) -> Prepared:
    path = await cast.live()
    data_of(await cast.parties["operator"].key.post(f"{path}/end"))
    return f"{path}/receipt", None


async def heartbeat(cast: Cast, me: Party) -> Prepared:
    operator = cast.parties["operator"]
    return f"{operator.path}/location", BERLIN | {"sequence": next(operator.sequence)}


async def heartbeats(cast: Cast, me: Party) -> Prepared:
    operator = cast.parties["operator"]
    return f"{operator.path}/locations", {"items": [BERLIN | {"sequence": next(operator.sequence)}]}


async def new_member(cast: Cast, me: Party) -> Prepared:
    body = {"walletAddress": cast.world.account().address, "role": "VIEWER"}
    return f"{cast.parties['operator'].path}/members", body


async def old_member(cast: Cast, me: Party) -> Prepared:
    path, body = await new_member(cast, me)
    assert isinstance(body, dict)
    data_of(await cast.parties["operator"].wallet.post(path, body))
    return f"{path}/{body['walletAddress']}", None


async def old_key(cast: Cast, me: Party) -> Prepared:
    operator = cast.parties["operator"]
    if not cast.key_id:
        cast.key_id = data_of(await operator.wallet.post(f"{operator.path}/api-keys", MINT))["keyId"]
    return f"{operator.path}/api-keys/{cast.key_id}/revoke", None


async def asked(cast: Cast, client_name: str = "agent") -> str:
    """The authorization request of a client that has registered."""
    metadata = {"client_name": client_name, "redirect_uris": ["http://127.0.0.1/cb"]}
    client_id = (await cast.world.http.post("/oauth/register", json=metadata)).json()["client_id"]
    fields = {"response_type": "code", "client_id": client_id, "redirect_uri": "http://127.0.0.1/cb"}
    return urlencode(fields | {"code_challenge": "c" * 43, "code_challenge_method": "S256"})


async def authorization_request(cast: Cast, _me: Party) -> Prepared:
    return f"/api/v1/me/authorization-request?{urlencode({'request': await asked(cast)})}", None


async def new_grant(cast: Cast, _me: Party) -> Prepared:
    """Grants count as keys, of which a workspace has 50: those before are revoked."""
    operator = cast.parties["operator"]
    for old in data_of(await operator.wallet.get(f"{operator.path}/api-keys"))["items"]:
        if old["expiresAt"] is not None and old["revokedAt"] is None:
            data_of(await operator.wallet.post(f"{operator.path}/api-keys/{old['keyId']}/revoke"))
    return f"{operator.path}/grants", {"request": await asked(cast), "days": 1}


async def kept_key(cast: Cast, me: Party) -> Prepared:
    path, _ = await old_key(cast, me)
    return path.replace("/revoke", "/keep"), None


async def share(cast: Cast, me: Party) -> Prepared:
    path = await cast.requested()
    made = data_of(await cast.parties["consumer"].key.post(f"{path}/shares", {}))
    return f"{path}/shares/{made['shareId']}", None


async def new_webhook(cast: Cast, me: Party) -> str:
    """The path of a webhook of the operator. The one before it is deleted, because a workspace has 20 at most."""
    operator = cast.parties["operator"]
    for old in data_of(await operator.wallet.get(WEBHOOKS))["items"]:
        data_of(await operator.wallet.delete(f"{WEBHOOKS}/{old['id']}"))
    return f"{WEBHOOKS}/{data_of(await operator.wallet.post(WEBHOOKS, WEBHOOK))['id']}"


def on_operators_webhook(tail: str = "", body: object = None) -> Prepare:
    async def prepare(cast: Cast, me: Party) -> Prepared:
        return await new_webhook(cast, me) + tail, body

    return prepare


def on_operators_delivery(tail: str) -> Prepare:
    async def prepare(cast: Cast, me: Party) -> Prepared:
        path = await new_webhook(cast, me)
        ping = data_of(await cast.parties["operator"].wallet.post(f"{path}/ping"))
        return f"{path}/deliveries/{ping['eventId']}{tail}", None

    return prepare


async def a_webhook_too_many_is_deleted(cast: Cast, me: Party) -> Prepared:
    for old in data_of(await me.wallet.get(WEBHOOKS))["items"]:
        data_of(await me.wallet.delete(f"{WEBHOOKS}/{old['id']}"))
    return WEBHOOKS, WEBHOOK


async def on_operators_subscription(cast: Cast, me: Party) -> Prepared:
    made = data_of(await cast.parties["operator"].wallet.post(PUSHES, SUBSCRIPTION))
    return f"{PUSHES}/{made['id']}", None


async def own_workspace(cast: Cast, me: Party) -> Prepared:
    return "/api/v1/auth/workspace/select", {"workspaceId": me.id}


WEBHOOKS, WEBHOOK = "/api/v1/webhooks", {"url": "https://example.com/hook"}
PUSHES, SUBSCRIPTION = (
    "/api/v1/push-subscriptions",
    {"endpoint": "https://push.example.com/1", "keys": PushBrowser().keys},
)
SIGNATURE = "0x" + "11" * 65
MANDATE = {
    "mandate": {
        "payer": "0x" + "11" * 20,
        "maxPerSession": "1",
        "maxPerDay": "1",
        "maxRatePerSecond": "1",
        "maxFeeBps": 1,
        "validUntil": 1_900_000_000,
        "salt": "0x" + "11" * 32,
    },
    "signature": SIGNATURE,
}
PERMIT = {
    "permit": {
        "owner": "0x" + "11" * 20,
        "spender": "0x" + "22" * 20,
        "value": "1",
        "nonce": "0",
        "deadline": 1_900_000_000,
    },
    "signature": SIGNATURE,
}
MINT = {"label": "k", "environment": "TEST", "scopes": [READ]}
EACH: dict[str, Outcome] = {"consumer": 200, "operator": 200, "stranger": 200}
BOTH: dict[str, Outcome] = {"consumer": 200, "operator": 200, "stranger": FORBIDDEN}
CONSUMER: dict[str, Outcome] = {"consumer": 200, "operator": FORBIDDEN, "stranger": FORBIDDEN}
OPERATOR: dict[str, Outcome] = {"consumer": FORBIDDEN, "operator": 200, "stranger": FORBIDDEN}
ITS_OPERATOR: dict[str, Outcome] = {"consumer": (404, "NOT_FOUND"), "operator": 200, "stranger": (404, "NOT_FOUND")}
UNAUTHENTICATED: Outcome = (401, "NOT_AUTHENTICATED")

RULES = [
    Rule(
        name="me",
        method="GET",
        prepare=fixed("/api/v1/me"),
        scopes=(),
        roles=ANYBODY,
        parties=EACH,
        needs_selection=False,
    ),
    Rule(
        name="stream ticket",
        method="POST",
        prepare=fixed("/api/v1/stream-tickets", {"path": "/api/v1/sessions/x/events"}),
        scopes=(),
        roles=(),
        parties=EACH,
        needs_selection=False,
    ),
    Rule(
        name="list wallet sessions",
        method="GET",
        prepare=fixed("/api/v1/me/sessions"),
        scopes=None,
        keys_get=UNAUTHENTICATED,
        roles=ANYBODY,
        parties=EACH,
        needs_selection=False,
    ),
    Rule(
        name="list invitations",
        method="GET",
        prepare=fixed("/api/v1/me/invitations"),
        scopes=None,
        keys_get=UNAUTHENTICATED,
        roles=ANYBODY,
        parties=EACH,
        needs_selection=False,
    ),
    Rule(
        name="select",
        method="POST",
        prepare=own_workspace,
        scopes=None,
        keys_get=UNAUTHENTICATED,
        roles=ANYBODY,
        parties=EACH,
        needs_selection=False,
    ),
    Rule(
        name="list workspaces",
        method="GET",
        prepare=fixed("/api/v1/workspaces"),
        scopes=None,
        keys_get=UNAUTHENTICATED,
        roles=ANYBODY,
        parties=EACH,
        needs_selection=False,
    ),
    Rule(
        name="get workspace",
        method="GET",
        prepare=on_operators_workspace(),
        scopes=(READ,),
        roles=ANYBODY,
        parties=OPERATOR,
    ),
    Rule(
        name="rename",
        method="PATCH",
        prepare=on_operators_workspace(body={"name": "N"}),
        scopes=(),
        roles=ANYBODY,
        parties=OPERATOR,
    ),
    Rule(
        name="patch the rest",
        method="PATCH",
        prepare=on_operators_workspace(body={"name": "N", "deviceKind": "PHONE"}),
        scopes=(OPERATE,),
        roles=STAFF,
        parties=OPERATOR,
    ),
    Rule(name="location", method="POST", prepare=heartbeat, scopes=(OPERATE,), roles=STAFF, parties=OPERATOR),
    Rule(name="locations", method="POST", prepare=heartbeats, scopes=(OPERATE,), roles=STAFF, parties=OPERATOR),
    Rule(
        name="reset location",
        method="POST",
        prepare=on_operators_workspace("/location/reset"),
        scopes=None,
        roles=OWNER,
        parties=OPERATOR,
    ),
    Rule(
        name="mint",
        method="POST",
        prepare=on_operators_workspace("/api-keys", MINT),
        scopes=None,
        roles=STAFF,
        parties=OPERATOR,
    ),
    Rule(name="grant", method="POST", prepare=new_grant, scopes=None, roles=STAFF, parties=OPERATOR),
    Rule(
        name="authorization request",
        method="GET",
        prepare=authorization_request,
        scopes=None,
        keys_get=UNAUTHENTICATED,
        roles=ANYBODY,
        parties=EACH,
        needs_selection=False,
    ),
    Rule(name="revoke", method="POST", prepare=old_key, scopes=None, roles=STAFF, parties=OPERATOR),
    Rule(name="keep", method="POST", prepare=kept_key, scopes=None, roles=STAFF, parties=OPERATOR),
    Rule(
        name="list keys",
        method="GET",
        prepare=on_operators_workspace("/api-keys"),
        scopes=None,
        roles=ANYBODY,
        parties=OPERATOR,
    ),
    Rule(
        name="list members",
        method="GET",
        prepare=on_operators_workspace("/members"),
        scopes=None,
        roles=OWNER,
        parties=OPERATOR,
    ),
    Rule(name="add member", method="POST", prepare=new_member, scopes=None, roles=OWNER, parties=OPERATOR),
    Rule(name="remove member", method="DELETE", prepare=old_member, scopes=None, roles=OWNER, parties=OPERATOR),
    Rule(
        name="quote",
        method="GET",
        prepare=fixed("/api/v1/pricing/quote?lat=1&lng=2&durationSeconds=3"),
        scopes=(PRICING,),
        roles=ANYBODY,
        parties=EACH,
    ),
    Rule(
        name="coverage",
        method="GET",
        prepare=fixed("/api/v1/coverage?bbox=13,52,14,53"),
        scopes=(PRICING,),
        roles=ANYBODY,
        parties=EACH,
    ),
    Rule(
        name="create",
        method="POST",
        prepare=sessions_root,
        scopes=(CREATE,),
        roles=STAFF,
        parties={"consumer": 200, "operator": FORBIDDEN, "stranger": 200},
    ),
    Rule(
        name="dispatch",
        method="POST",
        prepare=in_state("requested", "/dispatch"),
        scopes=(CREATE,),
        roles=STAFF,
        parties=CONSUMER,
    ),
    Rule(
        name="cancel",
        method="DELETE",
        prepare=in_state("requested", ""),
        scopes=(CREATE,),
        roles=STAFF,
        parties=CONSUMER,
    ),
    Rule(
        name="share",
        method="POST",
        prepare=in_state("live", "/shares", body={}),
        scopes=(CREATE,),
        roles=STAFF,
        parties=CONSUMER,
    ),
    Rule(
        name="list shares",
        method="GET",
        prepare=in_state("live", "/shares"),
        scopes=(READ,),
        roles=ANYBODY,
        parties=CONSUMER,
    ),
    Rule(name="revoke share", method="DELETE", prepare=share, scopes=(CREATE,), roles=STAFF, parties=CONSUMER),
    Rule(
        name="shared view",
        method="GET",
        prepare=in_state("live", "/shared"),
        scopes=(READ,),
        roles=ANYBODY,
        parties=BOTH,
    ),
    Rule(
        name="accept",
        method="POST",
        prepare=in_state("requested", "/accept", with_own_id=True),
        scopes=(OPERATE,),
        roles=STAFF,
        parties={"consumer": NOT_OPERATOR, "operator": 200, "stranger": 200},
    ),
    Rule(
        name="decline",
        method="POST",
        prepare=in_state("assigned", "/decline"),
        scopes=(OPERATE,),
        roles=STAFF,
        parties=OPERATOR,
    ),
    Rule(
        name="start",
        method="POST",
        prepare=in_state("assigned", "/start"),
        scopes=(OPERATE,),
        roles=STAFF,
        parties={"consumer": NOT_OPERATOR, "operator": 200, "stranger": FORBIDDEN},
    ),
    Rule(
        name="extend",
        method="POST",
        prepare=in_state("live", "/extend", body={"seconds": 1}),
        scopes=(CREATE,),
        roles=STAFF,
        parties=CONSUMER,
    ),
    Rule(
        name="message",
        method="POST",
        prepare=in_state("live", "/messages", body={"text": "left"}),
        scopes=(CREATE,),
        roles=STAFF,
        parties=CONSUMER,
    ),
    Rule(
        name="messages-shown",
        method="POST",
        prepare=in_state("live", "/messages/shown", body={"number": 1}),
        scopes=(OPERATE,),
        roles=STAFF,
        parties=OPERATOR,
    ),
    Rule(
        name="end",
        method="POST",
        prepare=in_state("live", "/end"),
        scopes=(OPERATE, CREATE),
        roles=STAFF,
        parties=BOTH,
        scope_of_party={"consumer": CREATE, "operator": OPERATE},
    ),
    Rule(
        name="cancel all",
        method="POST",
        prepare=fixed(f"{SESSIONS}/cancel-all-assignments"),
        scopes=(OPERATE,),
        roles=STAFF,
        parties={"consumer": NOT_OPERATOR, "operator": 200, "stranger": 200},
    ),
    Rule(name="list", method="GET", prepare=fixed(SESSIONS), scopes=(READ,), roles=ANYBODY, parties=EACH),
    *(
        Rule(
            name=f"read{tail or ' session'}",
            method="GET",
            prepare=in_state("live", tail),
            scopes=(READ,),
            roles=ANYBODY,
            parties=BOTH,
        )
        for tail in ("", "/meter", "/meter/events", "/viewer-token", "/frame", "/clip", "/frames?fps=30", "/events")
    ),
    Rule(name="read paid view", method="GET", prepare=paid_view, scopes=(READ,), roles=ANYBODY, parties=BOTH),
    Rule(
        name="watch workspace",
        method="GET",
        prepare=on_operators_workspace("/events"),
        scopes=(READ,),
        roles=ANYBODY,
        parties=OPERATOR,
    ),
    Rule(name="receipt", method="GET", prepare=receipt, scopes=(READ,), roles=ANYBODY, parties=BOTH),
    Rule(name="settlement", method="GET", prepare=settlement, scopes=(READ,), roles=ANYBODY, parties=BOTH),
    Rule(
        name="wallet",
        method="GET",
        prepare=fixed("/api/v1/wallet"),
        scopes=(WALLET,),
        roles=ANYBODY,
        parties=EACH,
    ),
    Rule(
        name="wallet events",
        method="GET",
        prepare=fixed("/api/v1/wallet/events"),
        scopes=(WALLET,),
        roles=ANYBODY,
        parties=EACH,
    ),
    Rule(
        name="usage",
        method="GET",
        prepare=fixed("/api/v1/usage?side=consumer&from=2026-11-20&to=2026-11-22"),
        scopes=(WALLET,),
        roles=ANYBODY,
        parties=EACH,
    ),
    Rule(
        name="statement",
        method="GET",
        prepare=on_operators_workspace("/statements/2026-11"),
        scopes=(WALLET,),
        roles=ANYBODY,
        parties=OPERATOR,
    ),
    Rule(
        name="faucet",
        method="POST",
        prepare=fixed("/api/v1/wallet/faucet"),
        scopes=(CREATE,),
        roles=STAFF,
        parties=dict.fromkeys(EACH, (404, "NOT_FOUND")),
    ),
    Rule(
        name="create webhook",
        method="POST",
        prepare=a_webhook_too_many_is_deleted,
        scopes=(HOOKS,),
        roles=STAFF,
        parties=EACH,
    ),
    Rule(name="list webhooks", method="GET", prepare=fixed(WEBHOOKS), scopes=(HOOKS,), roles=STAFF, parties=EACH),
    *(
        Rule(
            name=f"{method} webhook{tail}",
            method=method,
            prepare=prepare,
            scopes=(HOOKS,),
            roles=STAFF,
            parties=ITS_OPERATOR,
        )
        for method, tail, prepare in (
            ("GET", "", on_operators_webhook()),
            ("PATCH", "", on_operators_webhook(body={"description": "d"})),
            ("DELETE", "", on_operators_webhook()),
            ("POST", "/rotate", on_operators_webhook("/rotate")),
            ("POST", "/ping", on_operators_webhook("/ping")),
            ("GET", "/deliveries", on_operators_webhook("/deliveries")),
            ("GET", "/delivery", on_operators_delivery("")),
            ("POST", "/resend", on_operators_delivery("/resend")),
            ("POST", "/replay", on_operators_webhook("/replay", {"since": "2026-01-01T00:00:00Z"})),
        )
    ),
    *(
        Rule(
            name=f"{method} push subscription",
            method=method,
            prepare=prepare,
            scopes=(OPERATE,),
            roles=STAFF,
            parties={"consumer": NOT_OPERATOR, "operator": 200, "stranger": stranger},
        )
        for method, prepare, stranger in (
            ("POST", fixed(PUSHES, SUBSCRIPTION), 200),
            ("GET", fixed(PUSHES), 200),
            ("DELETE", on_operators_subscription, (404, "NOT_FOUND")),
        )
    ),
    # What an unknown id, and a service without escrow, answers shows who may ask.
    *(
        Rule(
            name=f"{method} {path.removeprefix('/api/v1')} of an unknown id",
            method=method,
            prepare=fixed(path),
            scopes=None,
            keys_get=UNAUTHENTICATED,
            roles=ANYBODY,
            parties=dict.fromkeys(EACH, (404, "NOT_FOUND")),
            needs_selection=False,
        )
        for method, path in (
            ("DELETE", f"/api/v1/me/sessions/{UNKNOWN}"),
            ("GET", f"/api/v1/me/invitations/{UNKNOWN}"),
            ("DELETE", f"/api/v1/me/invitations/{UNKNOWN}"),
            ("POST", f"/api/v1/me/invitations/{UNKNOWN}/accept"),
        )
    ),
    *(
        Rule(
            name=f"{method} {path.removeprefix('/api/v1')} without escrow",
            method=method,
            prepare=fixed(path, body),
            scopes=(scope,),
            roles=roles,
            parties=dict.fromkeys(EACH, (404, "NOT_FOUND")),
        )
        for method, path, body, scope, roles in (
            ("GET", f"{SESSIONS}/terms?quoteId={UNKNOWN}", None, PRICING, ANYBODY),
            ("GET", f"{SESSIONS}/{UNKNOWN}/extend/terms?seconds=60", None, CREATE, STAFF),
            ("PUT", "/api/v1/wallet/mandate", MANDATE, CREATE, STAFF),
            ("GET", "/api/v1/wallet/mandate", None, WALLET, ANYBODY),
            ("DELETE", "/api/v1/wallet/mandate", None, CREATE, STAFF),
            ("GET", "/api/v1/wallet/permit?value=1", None, CREATE, STAFF),
            ("POST", "/api/v1/wallet/permit", PERMIT, CREATE, STAFF),
        )
    ),
    Rule(
        name="statement of a session without escrow",
        method="GET",
        prepare=in_state("live", "/statement"),
        scopes=(READ,),
        roles=ANYBODY,
        parties=dict.fromkeys(EACH, (404, "NOT_FOUND")),
    ),
    Rule(
        name="extend a view that was bought by x402",
        method="POST",
        prepare=extended_view,
        scopes=(CREATE,),
        roles=STAFF,
        parties=dict.fromkeys(EACH, (404, "NOT_FOUND")),
    ),
    # Last, because it ends the sign-ins of the cast.
    Rule(
        name="logout",
        method="POST",
        prepare=fixed("/api/v1/auth/logout"),
        scopes=(),
        roles=ANYBODY,
        parties=EACH,
        needs_selection=False,
    ),
]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Streams end quickly here."""
    async with open_world(WorldOptions(resources=ResourceOptions(stream_lifetime_ms=5))) as opened:
        yield opened


@pytest.fixture
async def cast(world: World) -> Cast:
    cast = Cast(
        world,
        {
            "consumer": await world.party("CONSUMER"),
            "operator": await world.party("SUPPLIER"),
            "stranger": await world.party("CONSUMER", "SUPPLIER"),
        },
    )
    for name, party in cast.parties.items():
        cast.wallets[name, "OWNER"] = party.wallet
        cast.unselected[name] = Client(world, {"cookie": await world.login(party.account)})
        for role in ("ADMIN", "VIEWER"):
            member = world.account()
            cast.wallets[name, role] = await party.join(member, role)
        for scope in EVERY_SCOPE:
            cast.keys[name, scope] = await party.mint(scope)
    return cast


def for_key(rule: Rule, name: str, scope: str) -> Outcome:
    """What a key of this one scope is promised."""
    if rule.scopes is None:
        return rule.keys_get
    if rule.scopes and scope not in rule.scopes:
        return FORBIDDEN
    outcome = rule.parties[name]
    if outcome == 200 and rule.scope_of_party and scope != rule.scope_of_party[name]:
        return FORBIDDEN
    return outcome


def for_wallet(rule: Rule, name: str, role: str) -> Outcome:
    """What a member of this role is promised."""
    return rule.parties[name] if role in rule.roles else FORBIDDEN


async def outcome_of(client: Client, rule: Rule, cast: Cast, me: Party) -> Outcome:
    path, body = await rule.prepare(cast, me)
    answer = await client.call(rule.method, path, body)
    if cast.session_id or answer.status_code == 200:
        await cast.tidy()
    return 200 if answer.status_code == 200 else error_of(answer)[:2]


GROUP = 8
GROUPS = [RULES[start : start + GROUP] for start in range(0, len(RULES), GROUP)]


@pytest.mark.parametrize("rules", GROUPS, ids=[f"{group[0].name} to {group[-1].name}" for group in GROUPS])
async def test_every_credential_gets_what_is_promised(cast: Cast, rules: list[Rule]) -> None:
    promised: dict[str, Outcome] = {}
    given: dict[str, Outcome] = {}

    async def check(rule: Rule, label: str, client: Client, outcome: Outcome, me: Party) -> None:
        promised[f"{rule.name}: {label}"] = outcome
        given[f"{rule.name}: {label}"] = await outcome_of(client, rule, cast, me)

    anybody = cast.parties["operator"]
    nonsense = Client(cast.world, {"authorization": "Bearer svc_test_abcdef_" + "0" * 43})
    forged = Client(cast.world, {"cookie": "svc_session=v2.k1.e30.AAAA"})
    for rule in rules:
        for label, client in (("nobody", cast.world.anyone), ("unknown key", nonsense), ("forged cookie", forged)):
            await check(rule, label, client, UNAUTHENTICATED, anybody)
        for (name, scope), client in cast.keys.items():
            await check(rule, f"{name}'s key with {scope}", client, for_key(rule, name, scope), cast.parties[name])
        for (name, role), client in cast.wallets.items():
            await check(rule, f"{name}'s {role}", client, for_wallet(rule, name, role), cast.parties[name])
        for name, client in cast.unselected.items():
            outcome: Outcome = (
                (400, "INVALID_INPUT") if rule.needs_selection else rule.parties[name] if rule.roles else FORBIDDEN
            )
            await check(rule, f"{name} before selection", client, outcome, cast.parties[name])
    assert given == promised


async def test_every_call_that_has_a_rule_has_a_row(cast: Cast) -> None:
    ruled = [route for route in cast.world.routes if route.operation is not None]
    calls = set()
    for rule in RULES:
        path, _ = await rule.prepare(cast, cast.parties["operator"])
        calls.add((rule.method, path.partition("?")[0]))
        await cast.tidy()

    def has_row(route: AnyRoute) -> bool:
        method = route.method if isinstance(route, Route) else "GET"
        form = re.compile(re.sub(r"\{\w+\}", "[^/]+", route.path))
        return any(method == called and form.fullmatch(path) for called, path in calls)

    # These clients open no WebSocket: tests/http/resources/test_location.py does.
    assert [route.operation_id for route in ruled if not has_row(route)] == ["streamLocation"]


async def test_the_authorization_header_wins_over_the_cookie(cast: Cast) -> None:
    party = cast.parties["consumer"]
    both = Client(cast.world, party.wallet.headers | party.key.headers)
    assert data_of(await both.get("/api/v1/me"))["kind"] == "api_key"
    wrong = Client(cast.world, party.wallet.headers | {"authorization": "Bearer nonsense"})
    assert error_of(await wrong.get("/api/v1/me"))[:2] == UNAUTHENTICATED


async def test_checks_come_in_their_order(cast: Cast) -> None:
    """401, then selection, then scope or role, then input, then existence, then party, then state."""
    consumer, operator = cast.parties["consumer"], cast.parties["operator"]
    bad_id, unknown = f"{SESSIONS}/nonsense/accept", f"{SESSIONS}/{UNKNOWN}/accept"
    assert error_of(await cast.world.anyone.post(bad_id, {}))[:2] == UNAUTHENTICATED
    unselected = await cast.unselected["operator"].post(bad_id, {})
    assert error_of(unselected) == (400, "INVALID_INPUT", "workspaceNotSelected")
    assert error_of(await cast.keys["operator", READ].post(bad_id, {}))[:2] == FORBIDDEN
    assert error_of(await consumer.key.post(bad_id, {}))[:2] == (400, "INVALID_INPUT")
    assert error_of(await consumer.key.post(unknown, {}))[:2] == (400, "INVALID_INPUT")
    body = {"operatorWorkspaceId": consumer.id}
    assert error_of(await consumer.key.post(unknown, body))[:2] == (404, "SESSION_NOT_FOUND")
    live = await cast.live()
    assert error_of(await consumer.key.post(f"{live}/accept", body))[:2] == NOT_OPERATOR
    own = {"operatorWorkspaceId": operator.id}
    assert error_of(await operator.key.post(f"{live}/accept", own))[:2] == (409, "INVALID_STATE")
