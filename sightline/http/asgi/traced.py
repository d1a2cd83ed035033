"""Records a span for each HTTP request. In use only when traces are on."""

from typing import final

from sightline.http.pipeline.options import Observe
from sightline.http.server import ASGIApp, Receive, Scope, Send
from sightline.ports.tracing import Tracer


@final
class TracedApp:
    """An application whose requests are recorded; WebSockets are not."""

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        with self._tracer.request(headers):
            await self._app(scope, receive, send)


def observing(observe: Observe, tracer: Tracer) -> Observe:
    """Return an `PipelineServices.observe` that also names the span of the request and adds its status."""

    def observe_both(route: str, method: str, status: int, seconds: float) -> None:
        observe(route, method, status, seconds)
        tracer.describe_request(route, method, status)

    return observe_both
