"""Serve HTTP on a running core: both listeners, and the background tasks of the identity package."""

import gc
from collections.abc import Callable
from functools import partial

import trio

from sightline.bootstrap.core import Core
from sightline.bootstrap.http_wiring import (
    internal_listener,
    make_internal_app,
    make_public_app,
    public_listener,
    server_options,
)
from sightline.bootstrap.identity import make_identity
from sightline.bootstrap.listeners.ports import Ports, listen_error
from sightline.bootstrap.observability.metrics import read_metrics
from sightline.bootstrap.observability.readiness import CHECK_EVERY_S, Readiness
from sightline.bootstrap.observability.self_report import LoopDelay, SelfReport
from sightline.bootstrap.observability.sibling_workers import SiblingWorkers
from sightline.bootstrap.options.http import internal_limits, public_hosts, public_limits
from sightline.cluster.rates import RemoteRates
from sightline.http.asgi.cors import Cors
from sightline.http.asgi.mcp_endpoint import McpEndpoint
from sightline.http.audit import Audit
from sightline.http.metrics import Metrics
from sightline.http.recent_failures import RecentFailures
from sightline.http.server import ASGIApp, Bound, ServerOptions, serve
from sightline.storage.postgres.administration import PostgresAuditLog
from sightline.system.loops import run_forever


async def serve_http(core: Core, ports: Ports, stop: trio.Event, on_ready: Callable[[str], None]) -> None:
    """Serve both listeners until `stop` is set and the calls in flight have ended.

    Args:
        on_ready: Called with the URL of the internal listener when both accept connections.

    Raises:
        StartError: A listener cannot open its port.
    """
    delay = LoopDelay()
    settings = core.base.settings
    failures = RecentFailures(core.base.clock)
    readiness = Readiness(core, SiblingWorkers.of(settings, ports), failures)
    metrics = Metrics(partial(read_metrics, core, delay, readiness))
    identity = make_identity(core)
    audit = Audit(PostgresAuditLog(core.stores.database), core.base.clock, core.base.ids)
    rates = RemoteRates(core.membership.peers)
    internal_app = make_internal_app(core, identity, audit, metrics, readiness)
    with_mcp = McpEndpoint(
        make_public_app(core, identity, audit, metrics, failures, rates),
        core.base.public_url,
        public_hosts(settings),
        core.base.secrets.mcp_state_key,
        stated_url=settings.public_url,
    )
    public_app = Cors(with_mcp, settings.cors_origins) if settings.cors_origins else with_mcp
    internal_options = server_options(core, internal_listener(ports), internal_limits(settings))
    public_options = server_options(
        core, public_listener(core, ports), public_limits(settings), settings.strict_transport_s
    )
    async with trio.open_nursery() as background:
        background.start_soon(identity.authenticator.run)
        background.start_soon(SelfReport(core, ports, delay).run)
        background.start_soon(partial(run_forever, "readiness", readiness.check, every_s=CHECK_EVERY_S))
        background.start_soon(rates.run)
        await background.start(with_mcp.run)
        async with trio.open_nursery() as listeners:
            (internal,) = await listeners.start(_listen, internal_app, internal_options, stop, "INTERNAL_")
            await listeners.start(_listen, public_app, public_options, stop, "")
            settle_memory()
            on_ready(internal.url)
        background.cancel_scope.cancel()


async def _listen(
    app: ASGIApp,
    options: ServerOptions,
    stop: trio.Event,
    setting: str,
    *,
    task_status: trio.TaskStatus[list[Bound]] = trio.TASK_STATUS_IGNORED,
) -> None:
    (listener,) = options.listeners
    assert listener.sock is not None
    host, port = listener.sock.getsockname()[:2]  # before an error closes the socket
    try:
        await serve(app, options, shutdown=stop, task_status=task_status)
    except OSError as error:
        raise listen_error(error, host, port, setting=setting) from error


def settle_memory() -> None:
    """Exempt loaded objects from garbage collection, which shortens its pauses."""
    gc.collect()
    gc.freeze()
