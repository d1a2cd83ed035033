"""A whole server in the test's own process: real actors on the real kernel, real HTTP on a loopback port, stores in
memory, and fakes behind the video and chain ports.

    async with open_world() as world:
        consumer = await world.party("CONSUMER")
        answer = await consumer.key("sessions:create").post("/api/v1/sessions", {"lat": 1, "lng": 2})
"""

import itertools
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx
import msgspec
import trio
from eth_account import Account
from eth_account.messages import encode_defunct
from eth_account.signers.local import LocalAccount

from sightline.actors.build import build_actors
from sightline.actors.deps import SESSION, ActorLimits
from sightline.actors.deps import Deps as ActorDeps
from sightline.actors.messages import RecordSettlement
from sightline.actors.service.broker import Broker
from sightline.actors.shards import OwnedShards
from sightline.actors.watchers import Watchers
from sightline.domain.access import Principal, Scope
from sightline.domain.refusal import Refusal
from sightline.domain.session.messages import SettlementMined
from sightline.domain.units import HOUR_MS
from sightline.domain.value import Value, replace
from sightline.evidence.certificates import load_identity
from sightline.evidence.signing import C2paEvidence
from sightline.http.asgi.app import build_app
from sightline.http.asgi.cors import Cors
from sightline.http.asgi.mcp_endpoint import McpEndpoint
from sightline.http.audit import Audit
from sightline.http.budgets import RateLimits
from sightline.http.internal.operations import OperationResources
from sightline.http.metrics import MetricFamily, Metrics
from sightline.http.pipeline.errors import render_fault
from sightline.http.pipeline.headers import Headers
from sightline.http.pipeline.listener_access import AllowedHosts
from sightline.http.pipeline.options import PipelineOptions, PipelineServices
from sightline.http.pipeline.router import Router
from sightline.http.pipeline.routes import AnyRoute, Route, routes_of
from sightline.http.pipeline.stream_tickets import StreamTickets
from sightline.http.resources.table import internal_routes, public_routes
from sightline.http.schemas.webhooks import message_body
from sightline.http.server import ASGIApp, ListenerOptions, ServerOptions, serve
from sightline.http.services import InternalServices, ResourceOptions, Services
from sightline.identity.api_keys import ApiKeys, ViewKeys, ViewShares
from sightline.identity.authenticate import Authenticator
from sightline.identity.authorize import AuthorizeOptions, Authorizer
from sightline.identity.cookies import CookieCodec, CookieKey
from sightline.identity.invitations import Invitations
from sightline.identity.key_codec import KeyHasher
from sightline.identity.members import Members
from sightline.identity.oauth.clients import OAuthClients
from sightline.identity.oauth.grants import Grants
from sightline.identity.origin import check_origin, foreign_origin
from sightline.identity.sign_in import SignIn, SignInOptions
from sightline.identity.signatures import SignatureVerifier
from sightline.identity.wallet_sessions import WalletSessions
from sightline.ports.chain import RpcGuest
from sightline.ports.health import ReadinessCheck
from sightline.ports.identity import GrantStore, IdentityStore, InvitationStore
from sightline.ports.leases import OwnershipReport, ServerFigures, ServerReport, ServerRole
from sightline.ports.ledger import Ledger
from sightline.ports.relations import Relations
from sightline.ports.store import SHARDS, Store
from sightline.ports.webhooks import PushStore, WebhookMessage, WebhookStore
from sightline.storage.database.bridge import Database
from sightline.storage.postgres.grants import PostgresGrants
from sightline.storage.postgres.identity import PostgresIdentityStore, PostgresRelations
from sightline.storage.postgres.money.ledger import PostgresLedger
from sightline.storage.postgres.operations.invitations import PostgresInvitations
from sightline.storage.postgres.store import PostgresStore
from sightline.storage.postgres.webhooks.pushes import PostgresPushes
from sightline.storage.postgres.webhooks.store import PostgresWebhooks
from sightline.system.ids import SystemIds
from sightline.webhooks.push_encryption import Vapid, key_from
from sightline.webhooks.pushes import PushSubscriptions
from sightline.webhooks.service import WebhookEndpoints
from sightline.webhooks.signing import WebhookSigner
from simulation.adapters.no_other_servers import NoOtherServers
from simulation.memory.audit import MemoryAuditLog
from simulation.memory.identity import MemoryIdentityStore, MemoryRelations
from simulation.memory.invitations import MemoryInvitations
from simulation.memory.ledger import MemoryLedger
from simulation.memory.store import MemoryStore
from tests.conftest import open_data_directory
from tests.http.fakes import CHAIN, BreakableRelations, MovableClock, PlainChain, ShownVideo
from tests.shards import take_every_shard

BERLIN = {"lat": 52.52, "lng": 13.405}
EVERY_SCOPE = tuple(scope.value for scope in Scope)
WEBHOOK_SECRET = b"webhook secret of the tests......"


class WorldOptions(Value, kw_only=True):
    """What a test wants otherwise than usual."""

    limits: ActorLimits = msgspec.field(default_factory=lambda: ActorLimits(unstarted_dispatches_max=0))
    rate_limits: RateLimits = msgspec.field(default_factory=lambda: RateLimits(is_enabled=False))
    resources: ResourceOptions = msgspec.field(
        default_factory=lambda: ResourceOptions(webhook_secret=WEBHOOK_SECRET, frame_signing="request")
    )
    recheck_s: float = 15.0
    signature_age_max_ms: int = 12 * HOUR_MS
    cors_origins: tuple[str, ...] = ()
    faucet: Any = None
    log_heartbeat_every: int = 1


class Storage(Value, kw_only=True):
    """What survives the server."""

    store: Store
    ledger: Ledger
    relations: Relations
    identity: IdentityStore
    invitations: InvitationStore
    grants: GrantStore
    webhooks: WebhookStore
    pushes: PushStore


def in_memory() -> Storage:
    """Gone with the test."""
    ledger, relations = MemoryLedger(), MemoryRelations(token_key=b"t" * 32)
    store = MemoryStore(relations=relations, ledger=ledger)
    identity = MemoryIdentityStore(store.record_call)
    return Storage(
        store=store,
        ledger=ledger,
        relations=relations,
        identity=identity,
        invitations=MemoryInvitations(relations),
        grants=identity.grants,
        webhooks=ledger.webhooks,
        pushes=store.pushes,
    )


async def on_postgres(database: Database) -> Storage:
    """As the server keeps it."""
    return Storage(
        store=PostgresStore(database),
        ledger=PostgresLedger(database),
        relations=await PostgresRelations.open(database, token_key=b"t" * 32),
        identity=PostgresIdentityStore(database),
        invitations=PostgresInvitations(database),
        grants=PostgresGrants(database),
        webhooks=PostgresWebhooks(database),
        pushes=PostgresPushes(database),
    )


class Client(Value):
    """One credential against the world's server."""

    world: "World"
    headers: dict[str, str] = msgspec.field(default_factory=dict)

    def having(self, **headers: str) -> "Client":
        """The same credential with further headers; underscores stand for hyphens."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return replace(self, headers=self.headers | named)

    async def call(self, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        """Send one request, JSON if there is a body."""
        if body is not None:
            options["json"] = body
        headers = self.headers | options.pop("headers", {})
        answer = await self.world.http.request(method, path, headers=headers, **options)
        self.world.check_described(answer)
        return answer

    async def get(self, path: str, **options: Any) -> httpx.Response:
        return await self.call("GET", path, **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        return await self.call("POST", path, body, **options)

    async def patch(self, path: str, body: Any) -> httpx.Response:
        return await self.call("PATCH", path, body)

    async def delete(self, path: str) -> httpx.Response:
        return await self.call("DELETE", path)


@dataclass
class Party:
    """A workspace, its owner's wallet and cookie, and an API key with every scope."""

    world: "World"
    account: LocalAccount
    workspace: dict[str, Any]
    cookie: str
    plaintext: str = ""
    sequence: Any = field(default_factory=lambda: itertools.count(1))

    @property
    def id(self) -> str:
        return str(self.workspace["id"])

    @property
    def path(self) -> str:
        return f"/api/v1/workspaces/{self.id}"

    @property
    def wallet(self) -> Client:
        """The owner, with this workspace selected."""
        return Client(self.world, {"cookie": self.cookie})

    @property
    def key(self) -> Client:
        """A machine that may do everything a key may."""
        return Client(self.world, {"authorization": f"Bearer {self.plaintext}"})

    async def mint(self, *scopes: str) -> Client:
        """A further key, with these scopes."""
        body = {"label": "test", "environment": "TEST", "scopes": list(scopes)}
        minted = data_of(await self.wallet.post(f"{self.path}/api-keys", body))
        return Client(self.world, {"authorization": f"Bearer {minted['plaintext']}"})

    async def join(self, account: LocalAccount, role: str) -> Client:
        """Invite this wallet, which accepts; it is signed in with the workspace selected."""
        body = {"walletAddress": account.address, "role": role}
        invited = data_of(await self.wallet.post(f"{self.path}/members", body))
        guest = Client(self.world, {"cookie": await self.world.login(account)})
        data_of(await guest.post(f"/api/v1/me/invitations/{invited['invitationId']}/accept"))
        return Client(self.world, {"cookie": await self.world.login(account, self.id)})

    async def go_online(self, **coverage: Any) -> None:
        data_of(await self.key.patch(self.path, {"availabilityState": "ONLINE", **coverage}))

    async def beat(self, **fields: Any) -> httpx.Response:
        """Send a heartbeat from Berlin."""
        body = BERLIN | {"sequence": next(self.sequence), "accuracyMeters": 5} | fields
        return await self.key.post(f"{self.path}/location", body)


def data_of(answer: httpx.Response) -> dict[str, Any]:
    """The data of a success, which it must be."""
    assert answer.status_code == 200, (answer.request.method, answer.request.url.path, answer.text)
    envelope = answer.json()
    assert set(envelope) == {"statusCode", "message", "data", "timestamp"}
    assert (envelope["statusCode"], envelope["message"]) == (200, "Request successful")
    data: dict[str, Any] = envelope["data"]
    return data


STATED_MESSAGES = {
    "INVALID_INPUT": "Invalid request payload",
    "NOT_AUTHENTICATED": "Session expired or missing",
    "NOT_AUTHORIZED": "Not authorized for this operation",
    "NOT_OPERATOR": "Caller is not an operator",
    "NOT_FOUND": "Resource not found",
    "SESSION_NOT_FOUND": "Session not found",
    "INVALID_STATE": "Operation not allowed in the current state",
    "CONFLICT": "Conflicts with an existing resource",
    "AUTHZ_ERROR": "Authorization service unavailable",
    "VIDEO_ERROR": "Video service unavailable",
}
"""The table "Errors" of the interface, where it states a message."""


def error_of(answer: httpx.Response) -> tuple[int, str, str | None]:
    """Status, code and detail of an error in its envelope."""
    envelope = answer.json()
    assert set(envelope) <= {
        "statusCode", "code", "message", "detail", "timestamp", "state", "requiredScope", "lastSequence",
        "remainingMicroUsdc", "hint",
    }, envelope  # fmt: skip
    stated = STATED_MESSAGES.get(envelope["code"])
    assert envelope["message"] == (stated or envelope["message"]), envelope
    assert envelope["statusCode"] == answer.status_code, envelope
    assert answer.headers["x-request-id"]
    return answer.status_code, envelope["code"], envelope.get("detail")


def judge_origin(
    principal: Principal | None, method: str, headers: Headers, own: frozenset[str], is_websocket: bool, /
) -> Refusal | None:
    if principal is None:
        return foreign_origin(headers, own)
    return check_origin(principal, method, headers, own, is_websocket=is_websocket)


class World:
    """Everything that a server is made of, in reach of the test."""

    http: httpx.AsyncClient
    internal: httpx.AsyncClient
    base_url: str

    def __init__(self, options: WorldOptions, storage: Storage) -> None:
        self.options = options
        self.clock, self.ids, self.chain = MovableClock(), SystemIds(), PlainChain()
        self.store, self.ledger, self.webhooks = storage.store, storage.ledger, storage.webhooks
        self.pushes = storage.pushes
        self.relations, self.identity = BreakableRelations(storage.relations), storage.identity
        self._invitations, self._grants = storage.invitations, storage.grants
        self.documents: dict[str, bytes] = {}
        """Descriptions of clients on other servers, by URL."""
        self.tickets = StreamTickets(self.identity, self.clock, self.ids)
        self.video = ShownVideo(self.clock)
        with open_data_directory() as folder:
            identity = load_identity(folder, self.ids, self.clock.now_ms(), "http://sightline.test")
        self.evidence = C2paEvidence(identity, "test")
        self.watchers = Watchers()
        self.audit = Audit(MemoryAuditLog(), self.clock, self.ids)
        self.ready = {"database": True, "video": True}
        self.metrics = Metrics(lambda: (MetricFamily("actors", "Actors", {("session",): 1.0}, ("kind",)),))
        self.rpc_cpu_ms = 0
        self.rpc_result = b'"0x7a69"'
        """CPU time that the chain says each JSON-RPC request took."""
        self._numbers = itertools.count(1)
        self.access_withdrawals = 0
        """How often viewers were to be checked at once."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["World"]:
        """Start actors and servers; stop them at the end."""
        async with trio.open_nursery() as nursery:
            broker = await self._start_actors(nursery)
            table = self.routes = public_routes(self._deps(broker))
            self._router = Router(table)
            hosts = AllowedHosts.of("127.0.0.1", None, ())
            with_mcp = McpEndpoint(
                build_app(table, self._edge(), self._edge_options()), "http://127.0.0.1", hosts, b"m" * 32
            )
            await nursery.start(with_mcp.run)
            public = Cors(with_mcp, self.options.cors_origins) if self.options.cors_origins else with_mcp
            internal = build_app(
                (*internal_routes(self._internal_deps()), *self._operation_routes()), self._edge(), self._edge_options()
            )
            stop = trio.Event()
            self.base_url = await self._serve(nursery, public, stop)
            inside = await self._serve(nursery, internal, stop)
            # Without TLS: reading the certificates of authorities takes 20 ms.
            limits = httpx.Limits(max_connections=400, max_keepalive_connections=400)
            async with (
                httpx.AsyncClient(
                    base_url=self.base_url, timeout=30, limits=limits, cookies=no_cookies(), verify=False
                ) as self.http,
                httpx.AsyncClient(base_url=inside, timeout=30, verify=False) as self.internal,
            ):
                yield self
            stop.set()
            await self.registry.close(drain_s=2)
            nursery.cancel_scope.cancel()

    async def _serve(self, nursery: trio.Nursery, app: ASGIApp, stop: trio.Event) -> str:
        options = ServerOptions(
            listeners=(ListenerOptions(port=0),), render_fault=render_fault(self.clock, self.ids), clock=self.clock
        )
        bound = await nursery.start(partial(serve, app, options, shutdown=stop))
        return str(bound[0].url)

    async def _start_actors(self, nursery: trio.Nursery) -> Broker:
        epochs = await take_every_shard(self.store, "test", "1")
        deps = ActorDeps(
            store=self.store,
            video=self.video,
            relations=self.relations,
            clock=self.clock,
            ids=self.ids,
            rng=random.Random(1),
            limits=self.options.limits,
            watchers=self.watchers,
            owned=OwnedShards(epochs),
            on_settlement=lambda: None,
        )
        actors = build_actors(deps, NoOtherServers())
        self.registry, self.pump, self.broker = actors.registry, actors.pump, actors.broker
        await nursery.start(actors.run)
        return self.broker

    def _deps(self, broker: Broker) -> Services:
        cookies = CookieCodec([CookieKey("k1", b"c" * 32)], audience="http://sightline.test", is_https=False)
        hasher = KeyHasher(b"p" * 32)
        api_keys = ApiKeys(self.identity, hasher, self.clock, self.ids)
        sessions = WalletSessions(self.identity, self.clock, self.ids)
        self.authenticator = Authenticator(self.identity, cookies, sessions, hasher, self.clock)
        self.members = members = Members(self.relations, self.store.workspaces)
        verifier = SignatureVerifier(self.chain)
        named = SignInOptions(domain="sightline.test", uri="http://sightline.test", chain_id=CHAIN.chain_id)
        return Services(
            broker=broker,
            store=self.store,
            relations=self.relations,
            video=self.video,
            evidence=self.evidence,
            ledger=self.ledger,
            chain=CHAIN,
            rpc=self._answer_rpc,
            faucet=self.options.faucet,
            wake_watcher=lambda: None,
            sign_in=SignIn(self.identity, members, verifier, sessions, cookies, self.clock, self.ids, named),
            members=members,
            invitations=Invitations(
                self._invitations, members, self.relations, self.store.workspaces, self.clock, self.ids
            ),
            api_keys=api_keys,
            oauth_clients=OAuthClients(hasher, self.clock, self._document),
            grants=Grants(self._grants, api_keys, hasher, self.clock, self.ids),
            view_keys=ViewKeys(self.identity, hasher, self.clock),
            shares=ViewShares(self.identity, hasher, self.clock, self.ids, on_ended=self._count_withdrawal),
            tickets=self.tickets,
            webhooks=WebhookEndpoints(
                self.webhooks,
                WebhookSigner(b"w" * 32),
                partial(message_body, limits=self.options.limits.session),
                self.clock,
                self.ids,
            ),
            push_subscriptions=PushSubscriptions(self.pushes, Vapid(key_from(b"p" * 48)), self.clock, self.ids),
            wallet_sessions=sessions,
            audit=self.audit,
            clear_cookies=cookies.clear_cookies,
            clock=self.clock,
            ids=self.ids,
            options=self.options.resources,
        )

    def _count_withdrawal(self) -> None:
        self.access_withdrawals += 1

    async def _answer_rpc(self, body: bytes, guest: RpcGuest) -> bytes:
        guest.admit()
        await trio.lowlevel.checkpoint()
        guest.charge(self.rpc_cpu_ms)
        return b'{"jsonrpc":"2.0","id":1,"result":%s}' % self.rpc_result

    async def _document(self, url: str) -> bytes | None:
        await trio.lowlevel.checkpoint()
        return self.documents.get(url)

    async def publish_webhooks(self) -> None:
        """Prepare the events of the outbox, as the delivery service does, without sending them."""
        rows = await self.webhooks.outbox(limit=1_000)
        messages = [
            WebhookMessage(
                id=self.ids.uuid(),
                workspace_id=row.workspace_id,
                type=row.type,
                at_ms=row.at_ms,
                body=message_body(row, self.options.limits.session),
            )
            for row in rows
        ]
        prepared = [(row.number, message) for row, message in zip(rows, messages, strict=True)]
        await self.webhooks.publish(prepared, now_ms=self.clock.now_ms())

    def _operation_routes(self) -> tuple[AnyRoute, ...]:
        async def read_ownership() -> OwnershipReport:
            alone = ServerReport(
                incarnation="1",
                host="here",
                is_valid=True,
                renewed_ms_ago=1_200,
                shards=SHARDS,
                roles=tuple(ServerRole),
                is_connected=True,
                clock_offset_ms=-3,
                reported_ms_ago=800,
                about=ServerFigures(name="here/2", url="http://10.0.0.5:8082", version="1.2.3", loop_delay_ms=4),
            )
            return OwnershipReport(servers=(alone,), unowned_shards=0)

        return routes_of(OperationResources(self.registry, self.ledger, self.clock, self.audit, read_ownership))

    def _internal_deps(self) -> InternalServices:
        async def readiness() -> dict[str, ReadinessCheck]:
            await trio.lowlevel.checkpoint()
            return {
                name: ReadinessCheck(is_ok=is_ok, detail=f"The {name} is {'up' if is_ok else 'down'}.")
                for name, is_ok in self.ready.items()
            }

        return InternalServices(
            store=self.store,
            forward_media=self.pump.forward,
            readiness=readiness,
            render_metrics=self.metrics.render,
            clock=self.clock,
            options=self.options.resources,
        )

    def _edge(self) -> PipelineServices:
        return PipelineServices(
            authenticate=self.authenticator.authenticate,
            authorize=Authorizer(
                self.members, self.clock, AuthorizeOptions(signature_age_max_ms=self.options.signature_age_max_ms)
            ).authorize,
            check_origin=judge_origin,
            clock=self.clock,
            ids=self.ids,
            observe=self.metrics.observe,
            tickets=self.tickets,
        )

    def _edge_options(self) -> PipelineOptions:
        return PipelineOptions(
            rate_limits=self.options.rate_limits,
            recheck_s=self.options.recheck_s,
            log_heartbeat_every=self.options.log_heartbeat_every,
        )

    def check_described(self, answer: httpx.Response) -> None:
        """A success has exactly the shape that the OpenAPI document gives its call."""
        if answer.status_code != 200 or answer.headers["content-type"] != "application/json":
            return
        route = self._router.match(answer.request.method, answer.request.url.raw_path.partition(b"?")[0]).route
        assert isinstance(route, Route)
        assert route.output is not None
        data = answer.json()["data"]
        shown = route.output.model_validate(data).model_dump(by_alias=True, exclude_unset=True)
        assert shown == data, route.operation_id

    # Who acts in it.

    @property
    def anyone(self) -> Client:
        """No credential."""
        return Client(self)

    def account(self) -> LocalAccount:
        """A fresh wallet, the same in every run."""
        made: LocalAccount = Account.from_key(sha256(f"wallet {next(self._numbers)}".encode()).digest())
        return made

    async def signed(self, account: LocalAccount, path: str) -> dict[str, str]:
        """A challenge of this path, answered."""
        challenge = data_of(await self.anyone.post(path, {"walletAddress": account.address}))
        return {
            "walletAddress": account.address,
            "nonce": challenge["nonce"],
            "signature": sign(account, challenge["message"]),
        }

    async def login(self, account: LocalAccount, workspace_id: str | None = None) -> str:
        """The Cookie header of a session, with the workspace selected."""
        proof = await self.signed(account, "/api/v1/auth/wallet/challenge")
        answer = await self.anyone.post("/api/v1/auth/wallet/login", proof)
        data_of(answer)
        if workspace_id is not None:
            client = Client(self, {"cookie": cookie_of(answer)})
            answer = await client.post("/api/v1/auth/workspace/select", {"workspaceId": workspace_id})
            data_of(answer)
        return cookie_of(answer)

    async def create_workspace(self, account: LocalAccount, *roles: str, **fields: Any) -> dict[str, Any]:
        """A workspace of this wallet."""
        proof = await self.signed(account, "/api/v1/workspaces/challenge")
        number = next(self._numbers)
        named = {"slug": f"workspace-{number}", "name": f"Workspace {number}", "roles": list(roles)}
        return data_of(await self.anyone.post("/api/v1/workspaces", proof | named | fields))

    async def party(self, *roles: str, scopes: Sequence[str] = EVERY_SCOPE) -> Party:
        """A workspace with its owner signed in and a key minted."""
        account = self.account()
        workspace = await self.create_workspace(account, *roles)
        party = Party(self, account, workspace, await self.login(account, workspace["id"]))
        body = {"label": "everything", "environment": "TEST", "scopes": list(scopes)}
        party.plaintext = data_of(await party.wallet.post(f"{party.path}/api-keys", body))["plaintext"]
        return party

    async def request(self, consumer: Party, **fields: Any) -> dict[str, Any]:
        """A session in REQUESTED."""
        return data_of(await consumer.key.post("/api/v1/sessions", BERLIN | fields))

    async def live(self, consumer: Party, operator: Party, **fields: Any) -> dict[str, Any]:
        """A session in LIVE, as its operator sees it."""
        session = await self.request(consumer, **fields)
        path = f"/api/v1/sessions/{session['id']}"
        data_of(await operator.key.post(f"{path}/accept", {"operatorWorkspaceId": operator.id}))
        started: dict[str, Any] = data_of(await operator.key.post(f"{path}/start"))["session"]
        return started

    async def miss_start(self, consumer: Party, operator: Party) -> dict[str, Any]:
        """A session that this operator, the only one, was dispatched to and did not start in time."""
        await operator.go_online()
        assert (await operator.beat()).status_code == 200
        session = await self.request(consumer)
        path = f"/api/v1/sessions/{session['id']}"
        assert data_of(await consumer.key.post(f"{path}/dispatch"))["operatorWorkspaceId"] == operator.id
        self.clock.advance(121)
        reopened = data_of(await consumer.key.get(path))
        assert reopened["state"] == "REQUESTED"
        return reopened

    async def settle(self, session_id: str, tx_hash: str) -> None:
        """Report a settlement's transaction to its session, as the relayer does."""
        await self.registry.ref(SESSION, session_id).ask(RecordSettlement(SettlementMined(tx_hash)), timeout_s=5)


def no_cookies() -> CookieJar:
    """A jar that keeps nothing: every credential is sent on purpose."""
    return CookieJar(policy=DefaultCookiePolicy(allowed_domains=[]))


def sign(account: LocalAccount, message: str) -> str:
    return "0x" + bytes(account.sign_message(encode_defunct(text=message)).signature).hex()


def cookie_of(answer: httpx.Response) -> str:
    """What a browser would send back."""
    return answer.headers["set-cookie"].partition(";")[0]


@asynccontextmanager
async def open_world(options: WorldOptions | None = None, storage: Storage | None = None) -> AsyncIterator[World]:
    """A fresh world, running; in memory if nothing else is said."""
    async with World(options or WorldOptions(), storage or in_memory()).running() as world:
        yield world
