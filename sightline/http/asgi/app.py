"""The ASGI application: sends each request of the route table to the pipeline, directly or through Quart-Trio.

Routes run in Quart-Trio. Frequently called routes, WebSockets and unknown paths are answered at ASGI level, because
Quart would only add cost to them (docs/adr/0020-http-server.md).
"""

from collections.abc import Sequence
from typing import final

from sightline.http.asgi.asgi_direct import answer_directly, send_outgoing
from sightline.http.asgi.asgi_quart import make_quart, quart_scope
from sightline.http.asgi.asgi_websocket import serve_socket
from sightline.http.asgi.background import Background
from sightline.http.openapi.docs_page import document_routes
from sightline.http.pipeline.errors import ApiError
from sightline.http.pipeline.options import PipelineOptions, PipelineServices
from sightline.http.pipeline.pipeline import Pipeline
from sightline.http.pipeline.router import Router
from sightline.http.pipeline.routes import AnyRoute, Route
from sightline.http.server import ASGIApp, Receive, Scope, Send


def build_app(routes: Sequence[AnyRoute], edge: PipelineServices, options: PipelineOptions) -> ASGIApp:
    """Build the application of a route table; adds /openapi.json and /docs."""
    table = [*routes, *document_routes(routes, options)]
    return _App(Pipeline(Router(table), edge, options), options)


@final
class _App:
    def __init__(self, pipeline: Pipeline, options: PipelineOptions) -> None:
        self._pipeline = pipeline
        self._background = Background(options.finish_s)
        self._quart = make_quart(pipeline, self._background)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "lifespan":
            async with self._background.running():
                await self._quart(scope, receive, send)  # type: ignore[arg-type]  # a plain dict is a scope
        elif scope["type"] == "websocket":
            await serve_socket(self._pipeline, scope, receive, send)
        else:
            try:
                match = self._pipeline.router.match(scope["method"], scope["raw_path"])
            except ApiError as error:
                await self._refuse(scope, send, error)
                return
            if isinstance(match.route, Route) and match.route.is_hot:
                await answer_directly(self._pipeline, match, scope, receive, send)
            else:
                inner = quart_scope(scope, match)
                await self._quart(inner, receive, send)  # type: ignore[arg-type]  # a plain dict is a scope

    async def _refuse(self, scope: Scope, send: Send, error: ApiError) -> None:
        """Answer an unknown path or method."""
        request = self._pipeline.request_of(scope, b"")
        outgoing = self._pipeline.failed(request, error)
        self._pipeline.finished(request, outgoing)
        assert isinstance(outgoing.body, bytes)
        await send_outgoing(send, outgoing, outgoing.body)
