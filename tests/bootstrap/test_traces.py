"""OpenTelemetry traces: a request is one trace through HTTP, the actor's turn and the commit; off by default."""

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import trio
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.client.api import Api
from tests.e2e.server import PLACE, Server, a_tenant
from tests.video.support.http_server import Reply, listen, serve

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"


@dataclass
class Collector:
    """Receives spans by OTLP over HTTP."""

    spans: list[Span] = field(default_factory=list)
    _more: trio.Condition = field(default_factory=trio.Condition)

    async def receive(self, method: str, target: str, _headers: dict[str, str], body: bytes) -> Reply:
        assert (method, target) == ("POST", "/v1/traces")
        message = ExportTraceServiceRequest.FromString(body)
        async with self._more:
            for resource in message.resource_spans:
                self.spans += [span for scope in resource.scope_spans for span in scope.spans]
            self._more.notify_all()
        return 200, [], b""

    async def trace_with(self, name: str) -> list[Span]:
        """Wait for a span of this name. Returns all spans of its trace, in the order of their starts."""
        with trio.fail_after(60):
            async with self._more:
                while not (found := [span for span in self.spans if span.name == name]):
                    await self._more.wait()
        of_trace = [span for span in self.spans if span.trace_id == found[0].trace_id]
        return sorted(of_trace, key=lambda span: span.start_time_unix_nano)


async def test_a_request_is_one_trace_through_http_actor_and_commit(data_directory: Path) -> None:
    collector = Collector()
    listeners, url = await listen()
    env = {
        "SIGHTLINE_TRACES_ENDPOINT": f"{url}/v1/traces",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        # No media is needed, and an external engine starts no worker.
        "SIGHTLINE_VIDEO_BACKEND": "mediamtx",
        "SIGHTLINE_VIDEO_MEDIAMTX_URL": "http://127.0.0.1:9",
        "SIGHTLINE_VIDEO_MEDIAMTX_API_URL": "http://127.0.0.1:9",
    }
    server = Server(data_directory, env=env)
    async with trio.open_nursery() as nursery:
        serve(nursery, listeners, collector.receive)
        try:
            await server.start()
            consumer = await a_tenant(server.url, "CONSUMER", "traced")
            async with Api(server.url, key=consumer.key) as api:
                session = await api.post("/sessions", lat=PLACE[0], lng=PLACE[1])
                await api.transport.http.get(
                    f"{server.url}/api/v1/sessions/{session['id']}",
                    headers=api.transport.headers | {"traceparent": f"00-{TRACE}-{CALLER}-01"},
                )
            request, *inner = await collector.trace_with("POST /api/v1/sessions")
            read = (await collector.trace_with("GET /api/v1/sessions/{id}"))[0]
            assert await server.stop() == 0
        finally:
            server.end()
        nursery.cancel_scope.cancel()

    assert request.kind == Span.SPAN_KIND_SERVER
    assert {each.key: each.value.int_value for each in request.attributes}["http.response.status_code"] == 200
    turn = next(span for span in inner if span.name == "session CreateSession")
    assert turn.parent_span_id == request.span_id
    commit = next(span for span in inner if span.name.startswith("database ") and span.parent_span_id == turn.span_id)
    assert turn.start_time_unix_nano <= commit.start_time_unix_nano
    assert commit.end_time_unix_nano <= turn.end_time_unix_nano <= request.end_time_unix_nano
    assert not [span for span in collector.spans if span.status.code == Status.STATUS_CODE_ERROR]
    assert (read.trace_id.hex(), read.parent_span_id.hex()) == (TRACE, CALLER), "the caller's trace is continued"


def test_without_the_setting_the_library_is_not_imported() -> None:
    program = (
        "import sys, sightline.bootstrap.run, sightline.bootstrap.listen\n"
        "import sightline.bootstrap.observability.traces\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
