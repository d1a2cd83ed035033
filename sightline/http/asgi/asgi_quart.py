"""The Quart-Trio application: one view at one path for every route of the table.

A request's path is replaced by that path: our router has already matched it, and a second match could give another
result.
"""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final

import trio
from quart import request as current
from quart_trio import QuartTrio
from quart_trio.wrappers import TrioResponse
from werkzeug.datastructures import Headers

from sightline.http.asgi.background import Background
from sightline.http.pipeline.call import Stream
from sightline.http.pipeline.pipeline import Incoming, Outgoing, Pipeline
from sightline.http.pipeline.router import Match
from sightline.http.server import Scope

_ORIGINAL: Final = "sightline.original"
_PATH: Final = "/"
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def make_quart(pipeline: Pipeline, background: Background) -> QuartTrio:
    """Build the application. Handlers run in `background`, because Quart cancels a handler when its client
    disconnects."""
    app = QuartTrio("sightline", static_folder=None)
    # The server limits the size of bodies; streams have no time limit.
    app.config["MAX_CONTENT_LENGTH"] = None
    app.config["RESPONSE_TIMEOUT"] = None

    async def view() -> TrioResponse:
        scope, match = current.scope[_ORIGINAL]  # type: ignore[typeddict-item]  # our own key
        body: bytes = await current.get_data()  # type: ignore[assignment]  # bytes unless text is asked for
        request = pipeline.request_of(scope, body)
        work = partial(pipeline.answer, request, match)
        outgoing = await (background.run(work) if match.route.outlives_caller else work())
        return _respond(pipeline, request, outgoing, background)

    async def failed(error: Exception) -> TrioResponse:
        scope, _ = current.scope[_ORIGINAL]  # type: ignore[typeddict-item]  # our own key
        request = pipeline.request_of(scope, b"")
        return _respond(pipeline, request, pipeline.failed(request, error), background)

    app.add_url_rule(_PATH, view_func=view, methods=_METHODS, provide_automatic_options=False)
    app.register_error_handler(Exception, failed)
    return app


def quart_scope(scope: Scope, match: Match) -> Scope:
    """The ASGI scope that is passed to Quart."""
    return {**scope, "path": _PATH, _ORIGINAL: (scope, match)}


def _respond(pipeline: Pipeline, request: Incoming, outgoing: Outgoing, background: Background) -> TrioResponse:
    headers = Headers([(name.decode("latin-1"), value.decode("latin-1")) for name, value in outgoing.headers])
    if not isinstance(outgoing.body, Stream):
        return TrioResponse(outgoing.body, status=outgoing.status, headers=headers)
    if request.method == "HEAD":
        pipeline.finished(request, outgoing)
        return TrioResponse(b"", status=outgoing.status, headers=headers)
    body: Any = _pull(pipeline, request, outgoing, outgoing.body, background)
    response = TrioResponse(body, status=outgoing.status, headers=headers)
    response.timeout = None
    return response


async def _pull(
    pipeline: Pipeline, request: Incoming, outgoing: Outgoing, stream: Stream, background: Background
) -> AsyncIterator[bytes]:
    """Convert a stream that sends into an iterator. The stream runs in a task of its own, because a suspended
    generator must not hold a nursery open."""
    sender, receiver = trio.open_memory_channel[bytes](0)
    scope = trio.CancelScope()

    async def push() -> None:
        try:
            with scope:
                await stream.write(sender.send)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        except Exception as error:  # noqa: BLE001 (logged if nobody foresaw it)
            pipeline.failed(request, error)
        finally:
            sender.close()
            pipeline.finished(request, outgoing)

    background.spawn(push)
    try:
        while True:
            try:
                yield await receiver.receive()
            except trio.EndOfChannel:
                return
    finally:
        scope.cancel()
        receiver.close()
