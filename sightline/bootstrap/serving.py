"""Serve in this process, on children that run or are being started: core first, then HTTP."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import trio

from sightline.bootstrap.children import Children
from sightline.bootstrap.core import Base, Core
from sightline.bootstrap.importing import importing
from sightline.bootstrap.listeners.ports import Ports
from sightline.bootstrap.observability.traces import open_tracer
from sightline.bootstrap.server_run import RunOptions
from sightline.bootstrap.start import open_core
from sightline.video.worker_template import WorkerTemplate

ServeHttp: TypeAlias = Callable[[Core, Ports, trio.Event, Callable[[str], None]], Awaitable[None]]


async def serve(
    run: RunOptions, children: Children, media: WorkerTemplate, stop: trio.Event, on_ready: Callable[[str], None]
) -> None:
    """Start what is below HTTP, serve until `stop` is set, and stop in reverse order.

    Args:
        media: What media workers are forked from.
        on_ready: Called with the URL of the internal listener when calls are accepted.
    """
    async with trio.open_nursery() as nursery:
        # What only HTTP needs is imported while the core starts.
        nursery.start_soon(trio.to_thread.run_sync, _import_listeners)
        async with open_tracer(run.settings) as tracer:
            base = Base.of(
                run.settings,
                run.secrets,
                public_url=run.public_url,
                internal_url=run.ports.internal_url,
                tracer=tracer,
                worker_directory=run.worker_directory,
                incarnation=run.incarnation,
            )
            async with open_core(base, children, media) as core:
                serve_http = await trio.to_thread.run_sync(_import_listeners)
                await serve_http(core, run.ports, stop, on_ready)


def _import_listeners() -> ServeHttp:
    with importing():
        from sightline.bootstrap.listen import serve_http

    return serve_http
