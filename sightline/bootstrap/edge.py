"""Build the public and the internal HTTP application on top of the core."""

import resource
from dataclasses import dataclass
from functools import partial
from typing import Final, final
from urllib.parse import urlsplit

from sightline.bootstrap.core import Core
from sightline.bootstrap.listeners.own_tls import CA, FOLDER
from sightline.bootstrap.listeners.passing import connection_passing
from sightline.bootstrap.listeners.ports import Ports
from sightline.bootstrap.membership.hints import connect_sign_ins
from sightline.bootstrap.observability.readiness import Readiness
from sightline.bootstrap.start_errors import check_setting
from sightline.config import Settings
from sightline.domain.access import Holder, Operation, Principal
from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Refusal
from sightline.domain.units import MINUTE_MS
from sightline.http.asgi.app import build_app
from sightline.http.asgi.traced import TracedApp, observing
from sightline.http.internal.admin import AdminResources
from sightline.http.internal.engine_hooks import EngineHookResources
from sightline.http.internal.operations import OperationResources
from sightline.http.internal.payments import PaymentResources
from sightline.http.internal.peer_frames import PeerFrameResources
from sightline.http.metrics import Metrics
from sightline.http.pipeline.errors import render_fault
from sightline.http.pipeline.headers import Headers
from sightline.http.pipeline.listener_access import AllowedHosts, ListenerAccess
from sightline.http.pipeline.options import Edge, EdgeOptions
from sightline.http.pipeline.rate_limit import RateLimits, RateSharing
from sightline.http.pipeline.routes import routes_of
from sightline.http.pipeline.stream_tickets import StreamTickets
from sightline.http.recent_failures import RecentFailures
from sightline.http.resources.table import internal_routes, public_routes
from sightline.http.server import ASGIApp, ListenerOptions, ServerOptions, TlsOptions, TrustedProxies
from sightline.http.server import Limits as HttpLimits
from sightline.http.services import InternalServices, ResourceOptions, Services
from sightline.identity.api_keys import ApiKeys
from sightline.identity.authenticate import Authenticator
from sightline.identity.authorize import AuthorizeOptions, Authorizer
from sightline.identity.cookies import CookieCodec, CookieKey, parse_cookie_keys
from sightline.identity.invitations import Invitations
from sightline.identity.key_codec import KeyHasher
from sightline.identity.members import Members
from sightline.identity.origin import check_origin, foreign_origin
from sightline.identity.sign_in import SignIn, SignInOptions
from sightline.identity.signatures import SignatureVerifier
from sightline.identity.wallet_sessions import WalletSessionOptions, WalletSessions
from sightline.ports.identity import IdentityStore
from sightline.storage.postgres.identity import PostgresIdentityStore
from sightline.storage.postgres.operations.invitations import PostgresInvitations
from sightline.storage.postgres.operations.ownership import read_ownership

DESCRIPTORS_RESERVED: Final = 64
"""Descriptors reserved for the event loop, files, chain connections, children and their pipes; idle use is about 40."""
INTERNAL_CONNECTIONS_MAX: Final = 16
PEER_CONNECTIONS_MAX: Final = 512
"""Connections on which other servers read frames; one for each of their callers that waits for a frame."""
CONNECTIONS_MIN: Final = 16
SHARED_ACCEPT_BATCH: Final = 4
"""Connections that a process accepts at once when others accept on the same socket."""
COOKIE_KEY_NAME: Final = "k1"
LOCAL_AUDIENCE: Final = "sightline-local"
"""Audience of cookies when no public URL is set: a local server may get another port after a restart."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The services of the identity package."""

    store: IdentityStore
    authenticator: Authenticator
    sign_in: SignIn
    members: Members
    invitations: Invitations
    api_keys: ApiKeys
    cookies: CookieCodec
    sessions: WalletSessions
    authorizer: Authorizer


def make_identity(core: Core, public_url: str) -> Identity:
    """Create the services of the identity package."""
    settings, secrets = core.settings, core.secrets
    store = PostgresIdentityStore(core.database)
    hasher = KeyHasher(secrets.key_pepper)
    configured = settings.cookie_keys
    with check_setting("SIGHTLINE_COOKIE_KEYS"):
        cookie_keys = (
            parse_cookie_keys(configured.get_secret_value())
            if configured is not None
            else [CookieKey(COOKIE_KEY_NAME, secrets.cookie_key)]
        )
    cookies = CookieCodec(
        cookie_keys,
        audience=settings.public_url or LOCAL_AUDIENCE,
        is_https=public_url.startswith("https:"),
    )
    members = Members(core.relations, core.store.workspaces, core.clock, record=core.withdrawals.record)
    is_suspended = core.administration.suspensions.is_suspended
    sign_in_options = SignInOptions(
        domain=urlsplit(public_url).netloc, uri=public_url, chain_id=core.chain.config.chain_id
    )
    verifier = SignatureVerifier(core.chain.reader)
    sessions = WalletSessions(
        store,
        core.clock,
        core.ids,
        WalletSessionOptions(idle_timeout_ms=settings.session_idle_minutes * MINUTE_MS),
        record=core.withdrawals.record,
    )
    connect_sign_ins(core.membership.peers, sessions)
    authenticator = Authenticator(store, cookies, sessions, hasher, core.clock)
    authorizer = Authorizer(
        members,
        core.clock,
        AuthorizeOptions(signature_age_max_ms=settings.signature_age_minutes * MINUTE_MS),
        is_suspended=is_suspended,
    )

    async def may_watch(holder: Holder) -> bool:
        try:
            await authorizer.authorize(await authenticator.principal_of(holder), Operation.WATCH_VIDEO)
        except RefusedError:
            return False
        return True

    core.watch_access.may_watch = may_watch
    return Identity(
        store=store,
        authenticator=authenticator,
        sign_in=SignIn(store, members, verifier, sessions, cookies, core.clock, core.ids, sign_in_options),
        members=members,
        invitations=Invitations(
            PostgresInvitations(core.database),
            members,
            core.relations,
            core.store.workspaces,
            core.clock,
            core.ids,
            is_suspended=is_suspended,
        ),
        api_keys=ApiKeys(store, hasher, core.clock, core.ids, record=core.withdrawals.record),
        cookies=cookies,
        sessions=sessions,
        authorizer=authorizer,
    )


def _check_origin(
    principal: Principal | None, method: str, headers: Headers, own_origins: frozenset[str], is_websocket: bool, /
) -> Refusal | None:
    if principal is None:
        return foreign_origin(headers, own_origins)
    return check_origin(principal, method, headers, own_origins, is_websocket=is_websocket)


def make_public_app(
    core: Core, identity: Identity, metrics: Metrics, failures: RecentFailures, rate_sharing: RateSharing | None = None
) -> ASGIApp:
    """Create the application of the public listener."""
    settings = core.settings
    tickets = StreamTickets(identity.store, core.clock, core.ids)
    deps = Services(
        broker=core.actors.broker,
        store=core.store,
        relations=core.relations,
        video=core.video,
        evidence=core.evidence,
        ledger=core.ledger,
        chain=core.chain.config,
        faucet=core.chain.faucet,
        rpc=core.chain.proxy if core.chain.config.rpc_is_private else None,
        wake_watcher=core.chain.wake_watcher,
        sign_in=identity.sign_in,
        members=identity.members,
        invitations=identity.invitations,
        api_keys=identity.api_keys,
        webhooks=core.webhooks.endpoints,
        tickets=tickets,
        wallet_sessions=identity.sessions,
        audit=core.audit,
        clear_cookies=identity.cookies.clear_cookies,
        clock=core.clock,
        ids=core.ids,
        options=_resource_options(core),
    )
    edge = Edge(
        authenticate=identity.authenticator.authenticate,
        authorize=identity.authorizer.authorize,
        check_origin=_check_origin,
        clock=core.clock,
        ids=core.ids,
        observe=metrics.observe if core.tracer is None else observing(metrics.observe, core.tracer),
        owns_data=core.membership.is_valid,
        rate_sharing=rate_sharing,
        failures=failures,
        tickets=tickets,
    )
    options = EdgeOptions(
        public_url=settings.public_url,
        strict_transport_s=settings.strict_transport_s,
        cors_origins=settings.cors_origins,
        access=ListenerAccess(hosts=public_hosts(settings)),
        rate_limits=RateLimits.parse(settings.rate_budgets, is_enabled=settings.rate_limits),
        log_heartbeat_every=settings.log_heartbeat_every,
    )
    app = build_app(public_routes(deps), edge, options)
    return app if core.tracer is None else TracedApp(app, core.tracer)


def public_hosts(settings: Settings) -> AllowedHosts:
    """The hosts that a Host header may name at the public listener."""
    return AllowedHosts.of(settings.host, settings.public_url, settings.allowed_hosts)


def make_internal_app(core: Core, identity: Identity, metrics: Metrics, readiness: Readiness) -> ASGIApp:
    """Create the application of the internal listener: readiness, metrics and the video provider's webhooks."""
    deps = InternalServices(
        store=core.store,
        forward_media=core.actors.pump.forward,
        readiness=readiness.check,
        render_metrics=metrics.render,
        clock=core.clock,
        options=_resource_options(core),
    )
    edge = Edge(
        authenticate=identity.authenticator.authenticate,
        authorize=identity.authorizer.authorize,
        check_origin=_check_origin,
        clock=core.clock,
        ids=core.ids,
    )
    has_engine = core.settings.video_backend != "embedded"
    hooks = routes_of(EngineHookResources(core.video.engine_hook)) if has_engine else ()
    routes = (
        *internal_routes(deps),
        *routes_of(
            OperationResources(
                core.actors.registry, core.ledger, core.clock, core.audit, partial(read_ownership, core.database)
            )
        ),
        *routes_of(AdminResources(core.administration, core.admin_store, core.audit)),
        *routes_of(PaymentResources(core.payments, core.actors.deps.payment_hold, core.audit)),
        *hooks,
        *routes_of(PeerFrameResources(core.video.answer_frame)),
    )
    settings, token = core.settings, core.settings.internal_token
    access = ListenerAccess(
        hosts=AllowedHosts.of(settings.internal_host, settings.public_url, settings.allowed_hosts),
        token=token.get_secret_value() if token is not None else None,
        operator_token=core.secrets.internal_token,
    )
    return build_app(routes, edge, EdgeOptions(access=access, rate_limits=RateLimits(is_enabled=False)))


def _resource_options(core: Core) -> ResourceOptions:
    media_url = core.settings.video_mediamtx_url
    return ResourceOptions(
        build_sha=core.settings.build_sha,
        webhook_secret=core.secrets.webhook_secret,
        media_urls=() if media_url is None else (media_url,),
        ca_certificate=(core.settings.data_dir / FOLDER / CA).read_bytes() if core.settings.tls_auto else None,
        map_tiles_url=core.settings.map_tiles_url,
        map_attribution=core.settings.map_attribution,
        frame_signing=core.settings.frame_signing,
        faucet_daily_micro=core.settings.chain_faucet_daily_micro,
        streams_max=share_of_worker(core.settings, ResourceOptions().streams_max),
    )


def internal_listener(ports: Ports) -> ListenerOptions:
    """Options of the internal listener: its socket."""
    return ListenerOptions(sock=ports.internal)


def public_listener(core: Core, ports: Ports) -> ListenerOptions:
    """Options of the public listener: socket, TLS and trusted proxies, and the processes that share the socket."""
    settings = core.settings
    tls = None
    if settings.tls_cert is not None and settings.tls_key is not None:
        tls = TlsOptions(cert_file=str(settings.tls_cert), key_file=str(settings.tls_key))
    return ListenerOptions(
        sock=ports.public,
        tls=tls,
        trusted_proxies=TrustedProxies.parse(settings.trusted_proxies),
        accept_batch=ListenerOptions().accept_batch if ports.shared_from is None else SHARED_ACCEPT_BATCH,
        passing=None if tls is not None else connection_passing(core.membership.peers, ports.shared_from),
    )


def internal_limits(settings: Settings) -> HttpLimits:
    """Limits of the internal listener."""
    return HttpLimits(connections_max=_internal_connections(settings))


def public_limits(settings: Settings) -> HttpLimits:
    """Limits of the public listener; each worker gets an equal share of those that hold for all.

    Descriptors are left for database, chain and child processes. Without this reserve many clients could take the last
    one, and a child process that ended could not be restarted.
    """
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    reserve = DESCRIPTORS_RESERVED + _internal_connections(settings) + settings.database_pool
    if settings.nats_url is not None:
        reserve += PEER_CONNECTIONS_MAX  # to other servers
    whole = HttpLimits()
    return HttpLimits(
        connections_max=max(CONNECTIONS_MIN, min(share_of_worker(settings, whole.connections_max), soft - reserve)),
        connections_per_ip_max=share_of_worker(settings, whole.connections_per_ip_max),
    )


def share_of_worker(settings: Settings, limit: int) -> int:
    """What one of the workers of a machine may use of a limit that holds for all of them."""
    return max(1, limit // settings.workers)


def _internal_connections(settings: Settings) -> int:
    return INTERNAL_CONNECTIONS_MAX + (PEER_CONNECTIONS_MAX if settings.nats_url is not None else 0)


def server_options(
    core: Core, listener: ListenerOptions, limits: HttpLimits, strict_transport_s: int | None = None
) -> ServerOptions:
    """Build the options of one listener's server."""
    return ServerOptions(
        listeners=(listener,),
        render_fault=render_fault(core.clock, core.ids, strict_transport_s),
        clock=core.clock,
        drain_s=core.settings.drain_seconds,
        limits=limits,
    )
