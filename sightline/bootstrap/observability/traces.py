"""OpenTelemetry traces, sent by OTLP over HTTP. Needs the extra `traces`, which is imported only when traces are on."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, final

import trio

from sightline.bootstrap.failures.errors import check_setting
from sightline.config import Settings
from sightline.ports.tracing import Tracer

FLUSH_S: Final = 5.0
INTERNAL_ERROR: Final = 500


@final
class OpenTelemetryTracer:
    """See `Tracer`. Spans are sent in batches by a thread of the library."""

    def __init__(self, endpoint: str, ratio: float) -> None:
        from opentelemetry import context, trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        sampler = TraceIdRatioBased(ratio)
        # A caller names the trace it wants to continue; whether it is recorded is decided here.
        chosen = ParentBased(sampler, remote_parent_sampled=sampler, remote_parent_not_sampled=sampler)
        self._provider = TracerProvider(resource=Resource.create({"service.name": "sightline"}), sampler=chosen)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
        self._tracer = self._provider.get_tracer("sightline")
        self._propagator = TraceContextTextMapPropagator()
        self._trace, self._context = trace, context

    @contextmanager
    def request(self, headers: Mapping[str, str]) -> Iterator[None]:
        """See `Tracer.request`."""
        parent = self._propagator.extract(headers)
        with self._tracer.start_as_current_span("request", parent, kind=self._trace.SpanKind.SERVER):
            yield

    def describe_request(self, route: str, method: str, status: int) -> None:
        """See `Tracer.describe_request`."""
        span = self._trace.get_current_span()
        span.update_name(f"{method} {route}")
        span.set_attributes({"http.request.method": method, "http.route": route, "http.response.status_code": status})
        if status >= INTERNAL_ERROR:
            span.set_status(self._trace.StatusCode.ERROR)

    def current(self) -> Any:
        """See `Tracer.current`."""
        return self._context.get_current() if self._trace.get_current_span().is_recording() else None

    @contextmanager
    def span(self, name: str, parent: Any = None) -> Iterator[None]:
        """See `Tracer.span`."""
        parent = parent if parent is not None else self.current()
        if parent is None:
            yield
            return
        with self._tracer.start_as_current_span(name, parent):
            yield

    def close(self) -> None:
        """Send the remaining spans; blocks for at most some seconds."""
        self._provider.force_flush(int(FLUSH_S * 1_000))
        self._provider.shutdown()


@asynccontextmanager
async def open_tracer(settings: Settings) -> AsyncIterator[Tracer | None]:
    """Open the tracer of the settings; None if traces are off.

    Raises:
        StartError: The extra `traces` is not installed.
    """
    if settings.traces_endpoint is None:
        yield None
        return
    with check_setting("SIGHTLINE_TRACES_ENDPOINT (it needs `pip install 'sightline-live[traces]'`)"):
        tracer = OpenTelemetryTracer(settings.traces_endpoint, settings.traces_ratio)
    try:
        yield tracer
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(tracer.close)
