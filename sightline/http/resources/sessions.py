"""Sessions: requested, assigned, started, ended; read and listed."""

from functools import partial
from typing import Final, final

import orjson

from sightline.actors.refusals import NOT_PARTY
from sightline.actors.types import Answer, NewExtension, NewSession, SessionListing
from sightline.domain.access import ApiKeyPrincipal, Operation, Principal, credential_of, parties_to_end
from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Code
from sightline.domain.session.model import SessionState
from sightline.domain.session.status import SessionStatus
from sightline.domain.units import MicroUsdc
from sightline.http.budgets import RateClass
from sightline.http.cursors import read_session_cursor, session_cursor
from sightline.http.pipeline.call import Call, Reply, reply
from sightline.http.pipeline.routes import Link, Route
from sightline.http.resources.signalling import play_url_of
from sightline.http.schemas.sessions import (
    AcceptSessionBody,
    AssignedSession,
    CancelledAssignments,
    CreateSessionBody,
    ExtendSessionBody,
    ListSessionsQuery,
    MessageBody,
    MessagesShownBody,
    Meter,
    Session,
    SessionPage,
    StartedSession,
    ViewerToken,
    meter_json,
    session_json,
    started_session_json,
)
from sightline.http.services import Services
from sightline.ports.store import KeySpending, SessionView

TAG: Final = "sessions"
_PATH: Final = "/api/v1/sessions"
_ID: Final = "$response.body#/data/id"
_UNKNOWN: Final = (Code.SESSION_NOT_FOUND,)
_STATE: Final = (Code.SESSION_NOT_FOUND, Code.INVALID_STATE, Code.CONFLICT, Code.AUTHZ_ERROR)


def spending_of(principal: Principal | None) -> KeySpending | None:
    """Return the API key whose limits a session counts against; None for wallets and unlimited keys."""
    if not isinstance(principal, ApiKeyPrincipal) or principal.limits is None:
        return None
    return KeySpending(principal.key_id, principal.limits)


@final
class SessionResources:
    """/sessions."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @Route(
        "POST",
        _PATH,
        "createSession",
        TAG,
        "Request live video of a place",
        description="Locks the rate (the quote's, else the spot rate) and reserves it for maxDurationSeconds. 409 "
        "CONFLICT `pricing:aboveMaximum` when the hold would be above maxHoldMicroUsdc; nothing is created then.",
        operation=Operation.CREATE_SESSION,
        rate=RateClass.CREATE,
        body=CreateSessionBody,
        output=Session,
        errors=(
            Code.NOT_FOUND,
            Code.INVALID_STATE,
            Code.CONFLICT,
            Code.INSUFFICIENT_CREDIT,
            Code.AUTHZ_ERROR,
        ),
        links=tuple(
            Link(name, {"id": _ID}) for name in ("getSession", "dispatchSession", "acceptSession", "cancelSession")
        ),
    )
    async def create(self, call: Call) -> Reply:
        """Request a session."""
        body: CreateSessionBody = call.body
        if body.workspace_id not in {None, call.workspace_id}:
            raise RefusedError(NOT_PARTY)
        new = NewSession(
            lat=body.lat,
            lng=body.lng,
            max_duration_s=body.max_duration_seconds,
            wait_timeout_s=body.wait_timeout_seconds,
            quote_id=body.quote_id,
            radius_m=body.radius_meters,
            instructions=body.instructions,
            metadata_json=None if body.metadata is None else orjson.dumps(body.metadata).decode(),
            consumer_lease_s=body.consumer_lease_seconds,
            max_hold=None if body.max_hold_micro_usdc is None else MicroUsdc(int(body.max_hold_micro_usdc)),
            requires_coverage=body.require_coverage,
            spending=spending_of(call.principal),
            consent=None if body.payment is None else body.payment.consent(),
        )
        return reply(await self._services.broker.create_session(call.caller(), new), self._present(call))

    @Route(
        "GET",
        _PATH,
        "listSessions",
        TAG,
        "List sessions, newest first",
        description="view=open shows what an operator may accept: REQUESTED, unexpired, inside its coverage.",
        operation=Operation.READ_SESSION,
        rate=RateClass.LIST,
        query=ListSessionsQuery,
        output=SessionPage,
        errors=(Code.NOT_OPERATOR,),
    )
    async def list(self, call: Call) -> Reply:
        """A page of sessions."""
        query: ListSessionsQuery = call.query
        listing = SessionListing(
            view=SessionView(query.view) if query.view is not None else None,
            limit=query.limit,
            states=frozenset(SessionState(state) for state in query.state),
            created_after_ms=query.created_after,
            created_before_ms=query.created_before,
            after=read_session_cursor(query.cursor) if query.cursor is not None else None,
        )
        page = await self._services.broker.reads.list_sessions(call.workspace_id, listing)
        following = session_cursor(page.next) if page.next is not None else None
        present = partial(self._present(call), shows_whip_url=call.may_publish)
        items = [present(status) for status in page.items]
        return Reply({"items": items, "nextCursor": following})

    @Route(
        "POST",
        f"{_PATH}/cancel-all-assignments",
        "cancelAllAssignments",
        TAG,
        "Operator: drop every ASSIGNED session",
        operation=Operation.CANCEL_ASSIGNMENTS,
        output=CancelledAssignments,
        errors=(Code.NOT_OPERATOR, Code.CONFLICT, Code.AUTHZ_ERROR),
    )
    async def cancel_all(self, call: Call) -> Reply:
        """Drop every assignment of the caller's workspace."""
        answer = await self._services.broker.cancel_all(call.caller())
        cancelled = answer.value.session_ids
        return Reply({"count": len(cancelled), "cancelled": cancelled}, answer.at_ms)

    @Route(
        "POST",
        f"{_PATH}/{{id}}/dispatch",
        "dispatchSession",
        TAG,
        "Consumer: assign the longest-idle operator",
        description="One atomic decision: an ONLINE operator becomes BUSY and has the session. 503 UNAVAILABLE when "
        "there is none, or none that covers the place if the session has requireCoverage. 429 RATE_LIMITED when too "
        "many dispatched sessions of the workspace are not started, or were abandoned lately.",
        operation=Operation.DISPATCH_SESSION,
        rate=RateClass.CREATE,
        output=AssignedSession,
        errors=_STATE,
        links=(Link("startSession", {"id": _ID}),),
        is_hot=True,
    )
    async def dispatch(self, call: Call) -> Reply:
        """Assign an operator."""
        return self._assigned(call, await self._services.broker.dispatch(call.params["id"], call.caller()))

    @Route(
        "POST",
        f"{_PATH}/{{id}}/accept",
        "acceptSession",
        TAG,
        "Operator: claim a requested session",
        operation=Operation.ACCEPT_SESSION,
        body=AcceptSessionBody,
        output=AssignedSession,
        errors=(*_STATE, Code.NOT_OPERATOR),
        links=(Link("startSession", {"id": _ID}),),
    )
    async def accept(self, call: Call) -> Reply:
        """Assign the caller's own workspace."""
        body: AcceptSessionBody = call.body
        accepted = await self._services.broker.accept(call.params["id"], call.caller(), body.operator_workspace_id)
        return self._assigned(call, accepted)

    @Route(
        "POST",
        f"{_PATH}/{{id}}/start",
        "startSession",
        TAG,
        "Operator: go live",
        description="Creates the live input. whipUrl embeds a secret. After 503 VIDEO_ERROR the session is "
        "still ASSIGNED; a retry is safe.",
        operation=Operation.START_SESSION,
        output=StartedSession,
        errors=(*_STATE, Code.NOT_OPERATOR, Code.VIDEO_ERROR),
        links=tuple(
            Link(name, {"id": "$response.body#/data/session/id"})
            for name in ("endSession", "getViewerToken", "getMeter")
        ),
    )
    async def start(self, call: Call) -> Reply:
        """Go live."""
        present = partial(started_session_json, play_url=play_url_of(self._services.video, call))
        return reply(await self._services.broker.start(call.params["id"], call.caller()), present)

    @Route(
        "POST",
        f"{_PATH}/{{id}}/decline",
        "declineSession",
        TAG,
        "Operator: refuse an assignment",
        description="The session is REQUESTED again for the rest of its waiting time, and is not assigned to this "
        "operator again. Later than 20 s after the assignment it counts as a no-show of the operator's wallet.",
        operation=Operation.CANCEL_ASSIGNMENTS,
        output=Session,
        errors=_STATE,
    )
    async def decline(self, call: Call) -> Reply:
        """Refuse."""
        return reply(await self._services.broker.decline(call.params["id"], call.caller()), self._present(call))

    @Route(
        "POST",
        f"{_PATH}/{{id}}/extend",
        "extendSession",
        TAG,
        "Consumer: more time for a LIVE session",
        description="maxDurationSeconds and holdMicroUsdc grow together, at the session's rate; at most 14,400 seconds "
        "in all. Send an Idempotency-Key: a repeat with it, or with the same payment, adds nothing. With escrow "
        "the answer comes when the contract has the amount; 503 UNAVAILABLE while it has not, and a repeat goes on.",
        operation=Operation.CREATE_SESSION,
        rate=RateClass.CREATE,
        body=ExtendSessionBody,
        output=Session,
        errors=(*_STATE, Code.INSUFFICIENT_CREDIT),
    )
    async def extend(self, call: Call) -> Reply:
        """Extend the maximum duration of a LIVE session."""
        body: ExtendSessionBody = call.body
        new = NewExtension(
            seconds=body.seconds,
            max_hold=None if body.max_hold_micro_usdc is None else MicroUsdc(int(body.max_hold_micro_usdc)),
            spending=spending_of(call.principal),
            consent=None if body.payment is None else body.payment.consent(),
        )
        return reply(await self._services.broker.extend(call.params["id"], call.caller(), new), self._present(call))

    @Route(
        "POST",
        f"{_PATH}/{{id}}/messages",
        "messageOperator",
        TAG,
        "Consumer: tell the operator something",
        description="A short text such as `turn left`. The operator's screen shows it, and it is in `messages` of the "
        "session and in its events. It costs nothing. At most 10 in a minute (429) and 200 in a session (409).",
        operation=Operation.MESSAGE_OPERATOR,
        body=MessageBody,
        output=Session,
        errors=_STATE,
    )
    async def message(self, call: Call) -> Reply:
        """Send a short text to the operator."""
        body: MessageBody = call.body
        sent = await self._services.broker.message(call.params["id"], call.caller(), body.text)
        return reply(sent, self._present(call))

    @Route(
        "POST",
        f"{_PATH}/{{id}}/messages/shown",
        "markMessagesShown",
        TAG,
        "Operator: say that messages were shown",
        description="The consumer reads `shown` of each message. A repeat changes nothing, nor does a number that is "
        "not above the last one.",
        operation=Operation.SHOW_MESSAGES,
        body=MessagesShownBody,
        output=Session,
        errors=_STATE,
    )
    async def messages_shown(self, call: Call) -> Reply:
        """Mark messages as shown."""
        body: MessagesShownBody = call.body
        marked = await self._services.broker.mark_shown(call.params["id"], call.caller(), body.number)
        return reply(marked, self._present(call))

    @Route(
        "POST",
        f"{_PATH}/{{id}}/end",
        "endSession",
        TAG,
        "Either party: hang up",
        description="An API key with sessions:create ends as the consumer, one with sessions:operate as the operator. "
        "The charge is fixed at this moment; a second end "
        "changes nothing.",
        operation=Operation.END_SESSION,
        output=Session,
        errors=_STATE,
        links=(Link("getSettlement", {"sessionId": _ID}),),
    )
    async def end(self, call: Call) -> Reply:
        """Hang up."""
        assert call.principal is not None
        ended = await self._services.broker.end(
            call.params["id"], call.caller(), parties_to_end(call.principal), credential_of(call.principal)
        )
        return reply(ended, self._present(call))

    @Route(
        "DELETE",
        f"{_PATH}/{{id}}",
        "cancelSession",
        TAG,
        "Consumer: withdraw a request",
        operation=Operation.CANCEL_SESSION,
        output=Session,
        errors=_STATE,
    )
    async def cancel(self, call: Call) -> Reply:
        """Withdraw."""
        return reply(await self._services.broker.cancel(call.params["id"], call.caller()), self._present(call))

    @Route(
        "GET",
        f"{_PATH}/{{id}}",
        "getSession",
        TAG,
        "Read a session",
        operation=Operation.READ_SESSION,
        output=Session,
        errors=_UNKNOWN,
        is_hot=True,
    )
    async def read(self, call: Call) -> Reply:
        """The session as the caller may see it."""
        answer = await self._services.broker.reads.read_session(call.params["id"], call.workspace_id)
        return reply(answer, partial(self._present(call), shows_whip_url=call.may_publish))

    @Route(
        "GET",
        f"{_PATH}/{{id}}/meter",
        "getMeter",
        TAG,
        "Read the meter and its evidence",
        operation=Operation.READ_SESSION,
        output=Meter,
        errors=_UNKNOWN,
    )
    async def meter(self, call: Call) -> Reply:
        """The meter."""
        return reply(await self._services.broker.reads.meter(call.params["id"], call.workspace_id), meter_json)

    @Route(
        "GET",
        f"{_PATH}/{{id}}/viewer-token",
        "getViewerToken",
        TAG,
        "Where to play a LIVE session",
        operation=Operation.WATCH_VIDEO,
        output=ViewerToken,
        errors=(*_UNKNOWN, Code.INVALID_STATE, Code.VIDEO_ERROR),
    )
    async def viewer_token(self, call: Call) -> Reply:
        """The playback URL."""
        feed = await self._services.broker.reads.live_feed(call.params["id"], call.workspace_id)
        return Reply(
            {"videoBackendRef": feed.video_ref, "whepUrl": play_url_of(self._services.video, call)(feed.whep_url)}
        )

    def _present(self, call: Call) -> partial[dict[str, object]]:
        """Present a session to the caller, with a play URL of its own."""
        return partial(session_json, play_url=play_url_of(self._services.video, call))

    def _assigned(self, call: Call, answer: Answer[SessionStatus]) -> Reply:
        """Present an assignment as `AssignedSession`; a replay may show a later session, without a token."""
        data = self._present(call)(answer.value)
        found = {"distanceMeters": answer.value.operator_distance_m, "coversPlace": answer.value.is_place_covered}
        return Reply(data | found | {"consistencyToken": answer.token}, answer.at_ms)
