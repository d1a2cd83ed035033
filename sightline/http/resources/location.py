"""Operator location: single heartbeats, batches, and a WebSocket. Nothing is acknowledged before it is durable."""

from typing import Final, final

import orjson
import trio

from sightline.actors.types import HeartbeatReport, HeartbeatVerdict
from sightline.domain.access import Operation
from sightline.domain.errors import OutcomeUnknownError, RefusedError, UnavailableError
from sightline.domain.refusal import Code, Refusal
from sightline.http.budgets import RateClass
from sightline.http.pipeline.call import Call, JsonObject, Reply, Socket, SocketClosedError, reply
from sightline.http.pipeline.errors import ApiError, to_api_error
from sightline.http.pipeline.routes import Route, SocketRoute
from sightline.http.resources.own_workspace import require_own_workspace
from sightline.http.schemas.location import HeartbeatBody, HeartbeatsBody, HeartbeatVerdicts
from sightline.http.schemas.workspaces import Workspace, workspace_json
from sightline.http.services import Services

TAG: Final = "location"
ACCURACY_DEFAULT_M: Final = 50.0
HEARTBEATS_PER_TOKEN: Final = 10
MESSAGE_BYTES_MAX: Final = 4_096
INBOX_MAX: Final = 64
"""Heartbeats of one socket that may wait for the commit under way."""
_ERRORS: Final = (Code.NOT_FOUND, Code.CONFLICT, Code.INVALID_STATE)


def report_of(body: HeartbeatBody) -> HeartbeatReport:
    """Convert the body to the message for the workspace actor."""
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
    """/workspaces/{id}/location, /location/reset, /locations, /location/stream."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @Route(
        "POST",
        "/api/v1/workspaces/{id}/location",
        "postLocation",
        TAG,
        "Operator heartbeat, about every 2 seconds",
        description="The answer is given only once the heartbeat is durable. sequence must be greater than "
        "the last accepted one, and at most 2^31 above it.",
        operation=Operation.POST_LOCATION,
        rate=RateClass.LOCATION,
        body=HeartbeatBody,
        output=Workspace,
        errors=_ERRORS,
        is_hot=True,
    )
    async def post(self, call: Call) -> Reply:
        """Take one heartbeat."""
        report = report_of(call.body)
        workspace_id = await require_own_workspace(call, self._services.broker)
        key = None if call.idempotency_key is None else call.caller().idempotency
        return reply(await self._services.broker.heartbeat(workspace_id, report, key), workspace_json)

    @Route(
        "POST",
        "/api/v1/workspaces/{id}/locations",
        "postLocations",
        TAG,
        "Several heartbeats at once, oldest first",
        operation=Operation.POST_LOCATION,
        rate=RateClass.LOCATION,
        body=HeartbeatsBody,
        output=HeartbeatVerdicts,
        errors=_ERRORS,
        is_hot=True,
    )
    async def post_batch(self, call: Call) -> Reply:
        """Take several; each is judged by itself."""
        body: HeartbeatsBody = call.body
        reports = [report_of(item) for item in body.items]
        if len(reports) > HEARTBEATS_PER_TOKEN:  # the request itself cost the first token
            # Taken even if the bucket has fewer: a batch that is refused for its size could never be sent.
            cost = -(-len(reports) // HEARTBEATS_PER_TOKEN) - 1
            call.charge_rate(RateClass.LOCATION, call.workspace_id, cost)
        workspace_id = await require_own_workspace(call, self._services.broker)
        answer = await self._services.broker.heartbeats(workspace_id, reports, call.caller().idempotency)
        items = [_verdict_json(verdict) for verdict in answer.value.items]
        return Reply({"items": items, "workspace": workspace_json(answer.value.workspace)}, answer.at_ms)

    @Route(
        "POST",
        "/api/v1/workspaces/{id}/location/reset",
        "resetLocation",
        TAG,
        "Let the device start its sequence again",
        description="The next heartbeat may have any sequence. Recorded heartbeats stay. For OWNERs only.",
        operation=Operation.RESET_LOCATION,
        output=Workspace,
        errors=(Code.NOT_FOUND,),
    )
    async def reset(self, call: Call) -> Reply:
        """Forget the last accepted sequence."""
        workspace_id = await require_own_workspace(call, self._services.broker)
        return reply(await self._services.broker.reset_location(workspace_id, call.caller()), workspace_json)

    @SocketRoute(
        "/api/v1/workspaces/{id}/location/stream",
        "streamLocation",
        TAG,
        "Heartbeats over a WebSocket",
        description="One JSON heartbeat per message, answered {sequence, ok} once durable.",
        operation=Operation.POST_LOCATION,
        takes_ticket=True,
    )
    async def stream(self, call: Call, socket: Socket) -> None:
        """Take heartbeats until the peer leaves, or for a stream's lifetime. A refused one changes nothing."""
        workspace_id = await require_own_workspace(call, self._services.broker)
        inbox = Inbox(socket)
        failure: Exception | None = None
        ends_s = trio.current_time() + self._services.options.stream_lifetime_ms / 1_000
        async with trio.open_nursery() as nursery:
            nursery.start_soon(inbox.fill)
            try:
                while trio.current_time() < ends_s:
                    messages: list[str | bytes] = []
                    with trio.move_on_at(ends_s):  # between messages: what has come is always answered
                        messages = await inbox.take()
                    for verdict in await self._take(call, workspace_id, messages):
                        await socket.send(orjson.dumps(verdict).decode())
            except Exception as error:  # noqa: BLE001 (raised again outside of the nursery, which would wrap it)
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _take(self, call: Call, workspace_id: str, messages: list[str | bytes]) -> list[JsonObject]:
        """What became of each message, in their order. Those that came while a commit was under way share the next."""
        verdicts: list[JsonObject] = []
        reports: list[HeartbeatReport] = []
        places: list[int] = []
        for message in messages:
            try:
                call.limit_rate(RateClass.LOCATION, workspace_id)
                report = report_of(HeartbeatBody.parse(_read(message)))
            except (ApiError, RefusedError) as error:
                verdicts.append(_refusal(None, error))
                continue
            places.append(len(verdicts))
            verdicts.append({"sequence": report.sequence, "ok": True})
            reports.append(report)
        if not reports:
            return verdicts
        try:
            answer = await self._services.broker.heartbeats(workspace_id, reports)
        except (RefusedError, UnavailableError, OutcomeUnknownError) as error:
            items = [_refusal(report.sequence, error) for report in reports]
        else:
            items = [_verdict_json(verdict) for verdict in answer.value.items]
        for place, item in zip(places, items, strict=True):
            verdicts[place] = item
        return verdicts


@final
class Inbox:
    """Messages of a socket that have come and not been looked at; the peer is held back when there are too many."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        self._messages: list[str | bytes] = []
        self._ended: SocketClosedError | None = None
        self._news = trio.Event()
        self._room = trio.Event()

    async def fill(self) -> None:
        """Receive until the socket ends."""
        while self._ended is None:
            if len(self._messages) >= INBOX_MAX:
                self._room = trio.Event()
                await self._room.wait()
            try:
                message = await self._socket.receive()
            except SocketClosedError as ended:
                self._ended = ended
            else:
                self._messages.append(message)
            self._news.set()

    async def take(self) -> list[str | bytes]:
        """All that have come, at least one.

        Raises:
            SocketClosedError: There will be no more.
        """
        while not self._messages:
            if self._ended is not None:
                raise self._ended
            self._news = trio.Event()
            await self._news.wait()
        messages, self._messages = self._messages, []
        self._room.set()
        return messages


def _verdict_json(verdict: HeartbeatVerdict) -> JsonObject:
    """Present the outcome of one heartbeat as `HeartbeatVerdict`."""
    if verdict.refusal is None:
        return {"sequence": verdict.sequence, "ok": True}
    return _refusal(verdict.sequence, RefusedError(verdict.refusal))


def _refusal(sequence: int | None, error: Exception) -> JsonObject:
    mapped = to_api_error(error, is_read=False)
    assert mapped is not None
    return {"sequence": sequence, "ok": False, **mapped.fields()}


def _read(message: str | bytes) -> object:
    if len(message) > MESSAGE_BYTES_MAX:
        raise RefusedError(Refusal(Code.INVALID_INPUT, "location:body", "A heartbeat has at most 4096 bytes"))
    try:
        value: object = orjson.loads(message)
    except orjson.JSONDecodeError:
        raise RefusedError(Refusal(Code.INVALID_INPUT, "body:json", "The message is not JSON")) from None
    return value
