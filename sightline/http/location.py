"""Operator location: single heartbeats, batches, and a WebSocket. Nothing is acknowledged before it is durable."""

from typing import Any, Final, final

import orjson

from sightline.actors.types import Answer, HeartbeatReport
from sightline.domain.access import Operation
from sightline.domain.errors import OutcomeUnknownError, RefusedError, UnavailableError
from sightline.domain.refusal import Code, Refusal
from sightline.http.bound import require_bound
from sightline.http.call import Call, Socket
from sightline.http.deps import Deps
from sightline.http.errors import ApiError, to_api_error
from sightline.http.once import Once
from sightline.http.rate_limit import RateClass
from sightline.http.routes import AnyRoute, Route, SocketRoute
from sightline.http.schemas.location import HeartbeatBody, HeartbeatsBody, HeartbeatVerdicts
from sightline.http.schemas.workspaces import Workspace

TAG: Final = "location"
ACCURACY_DEFAULT_M: Final = 50.0
MESSAGE_BYTES_MAX: Final = 4_096
_ERRORS: Final = (Code.NOT_FOUND, Code.CONFLICT, Code.INVALID_STATE)


def report_of(body: HeartbeatBody) -> HeartbeatReport:
    """What the workspace's actor is told."""
    return HeartbeatReport(
        lat=body.lat,
        lng=body.lng,
        sequence=body.sequence,
        accuracy_m=ACCURACY_DEFAULT_M if body.accuracy_meters is None else body.accuracy_meters,
        heading_degrees=body.heading_degrees,
        speed_mps=body.speed_mps,
        altitude_m=body.altitude_meters,
        battery_percent=body.battery_percent,
        captured_at_ms=body.captured_at,
        session_id=body.session_id,
        source=body.source,
        is_mock=body.is_mock,
    )


@final
class LocationResources:
    """/workspaces/{id}/location, /locations, /location/stream."""

    def __init__(self, deps: Deps, once: Once) -> None:
        self._deps = deps
        self._once = once

    def routes(self) -> tuple[AnyRoute, ...]:
        """The calls of this resource."""
        return (
            Route(
                method="POST",
                path="/api/v1/workspaces/{id}/location",
                operation_id="postLocation",
                tag=TAG,
                summary="Operator heartbeat, about every 2 seconds",
                handler=self.post,
                operation=Operation.POST_LOCATION,
                rate=RateClass.LOCATION,
                body=HeartbeatBody,
                output=Workspace,
                errors=_ERRORS,
                is_hot=True,
            ),
            Route(
                method="POST",
                path="/api/v1/workspaces/{id}/locations",
                operation_id="postLocations",
                tag=TAG,
                summary="Several heartbeats at once, oldest first",
                handler=self.post_batch,
                operation=Operation.POST_LOCATION,
                rate=RateClass.LOCATION,
                body=HeartbeatsBody,
                output=HeartbeatVerdicts,
                errors=_ERRORS,
            ),
            SocketRoute(
                path="/api/v1/workspaces/{id}/location/stream",
                operation_id="streamLocation",
                tag=TAG,
                summary="Heartbeats over a WebSocket",
                description="One JSON heartbeat per message, answered {sequence, ok} once durable.",
                handler=self.stream,
                operation=Operation.POST_LOCATION,
            ),
        )

    async def post(self, call: Call) -> Answer:
        """Take one heartbeat."""
        report = report_of(call.body)
        workspace_id = await require_bound(call, self._deps.broker)
        if call.idempotency_key is None:
            return await self._deps.broker.heartbeat(workspace_id, report)
        key = call.caller().idempotency
        return await self._once.recorded(key, lambda: self._deps.broker.heartbeat(workspace_id, report))

    async def post_batch(self, call: Call) -> Answer:
        """Take several; each is judged by itself."""
        body: HeartbeatsBody = call.body
        reports = [report_of(item) for item in body.items]
        workspace_id = await require_bound(call, self._deps.broker)
        key = call.caller().idempotency
        return await self._once.recorded(key, lambda: self._deps.broker.heartbeats(workspace_id, reports))

    async def stream(self, call: Call, socket: Socket) -> None:
        """Take heartbeats until the peer leaves. A refused one is answered and changes nothing."""
        workspace_id = await require_bound(call, self._deps.broker)
        while True:
            verdict = await self._take(call, workspace_id, await socket.receive())
            await socket.send(orjson.dumps(verdict).decode())

    async def _take(self, call: Call, workspace_id: str, message: str | bytes) -> dict[str, Any]:
        sequence: int | None = None
        try:
            call.limit_rate(RateClass.LOCATION, workspace_id)
            heartbeat = HeartbeatBody.parse(_read(message))
            sequence = heartbeat.sequence
            await self._deps.broker.heartbeat(workspace_id, report_of(heartbeat))
        except (ApiError, RefusedError, UnavailableError, OutcomeUnknownError) as error:
            mapped = to_api_error(error, is_read=False)
            assert mapped is not None
            return {
                "sequence": sequence,
                "ok": False,
                "code": mapped.code.value,
                "detail": mapped.detail,
                "message": mapped.message,
            }
        return {"sequence": sequence, "ok": True}


def _read(message: str | bytes) -> object:
    if len(message) > MESSAGE_BYTES_MAX:
        raise RefusedError(Refusal(Code.INVALID_INPUT, "location:body", "A heartbeat has at most 4096 bytes"))
    try:
        value: object = orjson.loads(message)
    except orjson.JSONDecodeError:
        raise RefusedError(Refusal(Code.INVALID_INPUT, "body:json", "The message is not JSON")) from None
    return value
