"""The listeners of a running core, from the first call to the last."""

import gc
import sys
from functools import partial
from typing import Final

import structlog
import trio

from sightline.bootstrap.core import Core
from sightline.bootstrap.edge import (
    listener_options,
    make_identity,
    make_internal_app,
    make_public_app,
    read_gauges,
    server_options,
)
from sightline.domain.errors import SightlineError
from sightline.http.metrics import Metrics
from sightline.http.server import ASGIApp, Bound, ListenerOptions, ServerOptions, serve
from sightline.identity.sign_in import SignIn
from sightline.system.server_address_file import write_server_addresses

GC_THRESHOLDS: Final = (50_000, 50, 50)
NONCES_EVERY_S: Final = 600.0

log = structlog.get_logger("sightline")


async def serve_http(core: Core, port: int, public_url: str, stop: trio.Event) -> None:
    """Serve on the public and the internal listener until told to stop; say `ready` on stdout when both are open."""
    settings, metrics = core.settings, Metrics(partial(read_gauges, core))
    identity = make_identity(core, public_url)
    internal_listener = ListenerOptions(host=settings.internal_host, port=settings.internal_port)
    internal_app, public_app = make_internal_app(core, identity, metrics), make_public_app(core, identity, metrics)
    async with trio.open_nursery() as background:
        background.start_soon(identity.authenticator.run)
        background.start_soon(keep_nonces, identity.sign_in)
        async with trio.open_nursery() as listeners:
            internal_options = server_options(core, internal_listener)
            public_options = server_options(core, listener_options(settings, port), settings.strict_transport_s)
            (internal,) = await listeners.start(_listen, internal_app, internal_options, stop)
            await listeners.start(_listen, public_app, public_options, stop)
            settle_memory()
            write_server_addresses(settings.data_dir, url=public_url, internal_url=internal.url)
            log.info("ready", url=public_url, internal_url=internal.url, data_dir=str(settings.data_dir))
            sys.stdout.write(f"ready {public_url}\n")
            sys.stdout.flush()
        background.cancel_scope.cancel()


async def keep_nonces(sign_in: SignIn) -> None:
    """Drop nonces that nobody can use any more."""
    while True:
        try:
            await sign_in.drop_expired()
        except SightlineError as error:
            log.warning("nonces_not_dropped", error=str(error))
        await trio.sleep(NONCES_EVERY_S)


async def _listen(
    app: ASGIApp,
    options: ServerOptions,
    stop: trio.Event,
    *,
    task_status: trio.TaskStatus[list[Bound]] = trio.TASK_STATUS_IGNORED,
) -> None:
    await serve(app, options, shutdown=stop, task_status=task_status)


def settle_memory() -> None:
    """After start: what is loaded stays, so the collector need not look at it again; long pauses become short."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
