"""Build the public and the internal HTTP application on top of the core."""

from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from typing import Final

from sightline.bootstrap.core import Core
from sightline.bootstrap.failures.errors import check_setting
from sightline.bootstrap.identity import Identity
from sightline.bootstrap.listeners.passing import connection_passing
from sightline.bootstrap.listeners.ports import Ports
from sightline.bootstrap.observability.readiness import Readiness, chain_file_damage
from sightline.bootstrap.options.http import edge_options, resource_options
from sightline.config.addresses import read_networks
from sightline.domain.access import Principal
from sightline.domain.books.differences import BooksCheck, Difference
from sightline.domain.errors import ChainUnavailableError
from sightline.domain.refusal import Refusal
from sightline.evidence.certificates import SigningIdentity, load_identity
from sightline.evidence.signing import C2paEvidence
from sightline.http.asgi.app import build_app
from sightline.http.asgi.traced import TracedApp, observing
from sightline.http.audit import Audit
from sightline.http.budgets import RateLimits
from sightline.http.internal.admin import AdminResources, SettledBooks
from sightline.http.internal.engine_hooks import EngineHookResources
from sightline.http.internal.operations import OperationResources
from sightline.http.internal.payments import PaymentResources
from sightline.http.internal.peer_frames import PeerFrameResources
from sightline.http.metrics import Metrics
from sightline.http.pipeline.errors import render_fault
from sightline.http.pipeline.headers import Headers
from sightline.http.pipeline.listener_access import AllowedHosts, ListenerAccess
from sightline.http.pipeline.options import PipelineOptions, PipelineServices
from sightline.http.pipeline.rate_limit import RateSharing
from sightline.http.pipeline.routes import routes_of
from sightline.http.pipeline.stream_tickets import StreamTickets
from sightline.http.recent_failures import RecentFailures
from sightline.http.resources.table import internal_routes, public_routes
from sightline.http.server import ASGIApp, ListenerOptions, ServerOptions, TlsOptions, TrustedProxies
from sightline.http.server import Limits as HttpLimits
from sightline.http.services import InternalServices, Services
from sightline.identity.origin import check_origin, foreign_origin
from sightline.storage.postgres.money.journal import PostgresJournal
from sightline.storage.postgres.operations.ownership import read_ownership

SHARED_ACCEPT_BATCH: Final = 4
"""Connections that a process accepts at once when others accept on the same socket."""


def _check_origin(
    principal: Principal | None, method: str, headers: Headers, own_origins: frozenset[str], is_websocket: bool, /
) -> Refusal | None:
    if principal is None:
        return foreign_origin(headers, own_origins)
    return check_origin(principal, method, headers, own_origins, is_websocket=is_websocket)


def make_public_app(
    core: Core,
    identity: Identity,
    audit: Audit,
    metrics: Metrics,
    failures: RecentFailures,
    rate_sharing: RateSharing | None = None,
) -> ASGIApp:
    """Create the application of the public listener."""
    tickets = StreamTickets(identity.store, core.base.clock, core.base.ids)
    deps = Services(
        broker=core.actors.broker,
        store=core.stores.rows,
        relations=core.stores.relations,
        video=core.video.service,
        evidence=_open_evidence(core),
        ledger=core.stores.ledger,
        chain=core.chain.config,
        faucet=core.chain.faucet,
        rpc=core.chain.proxy if core.chain.config.rpc_is_private else None,
        wake_watcher=core.chain.wake_watcher,
        sign_in=identity.sign_in,
        members=identity.members,
        invitations=identity.invitations,
        api_keys=identity.api_keys,
        oauth_clients=identity.oauth_clients,
        grants=identity.grants,
        view_keys=identity.view_keys,
        shares=identity.shares,
        webhooks=core.webhooks.endpoints,
        push_subscriptions=core.webhooks.push_subscriptions,
        tickets=tickets,
        wallet_sessions=identity.sessions,
        audit=audit,
        clear_cookies=identity.cookies.clear_cookies,
        clock=core.base.clock,
        ids=core.base.ids,
        options=resource_options(core.base.settings, core.base.secrets),
    )
    edge = PipelineServices(
        authenticate=identity.authenticator.authenticate,
        authorize=identity.authorizer.authorize,
        check_origin=_check_origin,
        clock=core.base.clock,
        ids=core.base.ids,
        observe=metrics.observe if core.base.tracer is None else observing(metrics.observe, core.base.tracer),
        owns_data=core.membership.is_valid,
        rate_sharing=rate_sharing,
        failures=failures,
        tickets=tickets,
    )
    app = build_app(public_routes(deps), edge, edge_options(core.base.settings))
    return app if core.base.tracer is None else TracedApp(app, core.base.tracer)


async def _compare_books(core: Core) -> tuple[BooksCheck, Sequence[Difference]]:
    """Compare the books with the chain. A chain that cannot be read for a damaged file is told as that."""
    try:
        return await core.chain.reconciler(core.stores.books).compare()
    except ChainUnavailableError as error:
        damage = await chain_file_damage(core.base.settings)
        raise ChainUnavailableError(damage or str(error)) from error


def make_internal_app(core: Core, identity: Identity, audit: Audit, metrics: Metrics, readiness: Readiness) -> ASGIApp:
    """Create the application of the internal listener: readiness, metrics and the video provider's webhooks."""
    deps = InternalServices(
        store=core.stores.rows,
        forward_media=core.actors.pump.forward,
        readiness=readiness.check,
        render_metrics=metrics.render,
        clock=core.base.clock,
        options=resource_options(core.base.settings, core.base.secrets),
    )
    edge = PipelineServices(
        authenticate=identity.authenticator.authenticate,
        authorize=identity.authorizer.authorize,
        check_origin=_check_origin,
        clock=core.base.clock,
        ids=core.base.ids,
    )
    has_engine = core.base.settings.video_backend != "embedded"
    hooks = routes_of(EngineHookResources(core.video.service.engine_hook)) if has_engine else ()
    routes = (
        *internal_routes(deps),
        *routes_of(
            OperationResources(
                core.actors.registry,
                core.stores.ledger,
                core.base.clock,
                audit,
                partial(read_ownership, core.stores.database),
            )
        ),
        *routes_of(
            AdminResources(
                core.administration,
                core.stores.administration,
                audit,
                SettledBooks(core.stores.ledger, core.chain.config),
                identity.api_keys,
            )
        ),
        *routes_of(
            PaymentResources(
                core.stores.payments,
                core.actors.deps.payment_hold,
                audit,
                PostgresJournal(core.stores.database),
                partial(_compare_books, core),
            )
        ),
        *hooks,
        *routes_of(PeerFrameResources(core.video.service.answer_frame)),
    )
    settings, token = core.base.settings, core.base.settings.internal_token
    access = ListenerAccess(
        hosts=AllowedHosts.of(settings.internal_host, settings.public_url, settings.allowed_hosts),
        token=token.get_secret_value() if token is not None else None,
        operator_token=core.base.secrets.internal_token,
    )
    return build_app(routes, edge, PipelineOptions(access=access, rate_limits=RateLimits(is_enabled=False)))


def internal_listener(ports: Ports) -> ListenerOptions:
    """Options of the internal listener: its socket."""
    return ListenerOptions(sock=ports.internal)


def public_listener(core: Core, ports: Ports) -> ListenerOptions:
    """Options of the public listener: socket, TLS and trusted proxies, and the processes that share the socket."""
    settings = core.base.settings
    tls = None
    if settings.tls_cert is not None and settings.tls_key is not None:
        tls = TlsOptions(cert_file=str(settings.tls_cert), key_file=str(settings.tls_key))
    return ListenerOptions(
        sock=ports.public,
        tls=tls,
        trusted_proxies=TrustedProxies(read_networks(settings.trusted_proxies)),
        accept_batch=ListenerOptions().accept_batch if ports.shared_from is None else SHARED_ACCEPT_BATCH,
        passing=None if tls is not None else connection_passing(core.membership.peers, ports.shared_from),
    )


def server_options(
    core: Core, listener: ListenerOptions, limits: HttpLimits, strict_transport_s: int | None = None
) -> ServerOptions:
    """Build the options of one listener's server."""
    return ServerOptions(
        listeners=(listener,),
        render_fault=render_fault(core.base.clock, core.base.ids, strict_transport_s),
        clock=core.base.clock,
        drain_s=core.base.settings.drain_seconds,
        limits=limits,
    )


def _open_evidence(core: Core) -> C2paEvidence:
    """Load the signing identity: the one of the settings, else one issued by the root in the data directory."""
    settings = core.base.settings
    if settings.frame_signing_key is not None and settings.frame_signing_cert is not None:
        with check_setting("SIGHTLINE_FRAME_SIGNING_KEY"):
            identity = SigningIdentity.from_files(settings.frame_signing_key, settings.frame_signing_cert)
    else:
        with check_setting("SIGHTLINE_DATA_DIR"):
            identity = load_identity(settings.data_dir, core.base.ids, core.base.clock.now_ms(), core.base.public_url)
    return C2paEvidence(identity, version("sightline-live"))
