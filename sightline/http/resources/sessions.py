"""Sessions: requested, assigned, started, ended; read and listed."""

from typing import Final, final

import orjson

from sightline.actors.refusals import NOT_PARTY
from sightline.actors.types import Answer, NewSession, SessionListing
from sightline.domain.access import ApiKeyPrincipal, Operation, Principal, Scope
from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Code
from sightline.domain.session.messages import Party
from sightline.domain.session.model import SessionState
from sightline.http.deps import Deps
from sightline.http.pipeline.call import Call
from sightline.http.pipeline.cursors import read_session_cursor, session_cursor
from sightline.http.pipeline.rate_limit import RateClass
from sightline.http.pipeline.routes import Link, Route
from sightline.http.schemas.sessions import (
    AcceptSessionBody,
    AssignedSession,
    CancelledAssignments,
    CreateSessionBody,
    ListSessionsQuery,
    Meter,
    Session,
    SessionPage,
    StartedSession,
    ViewerToken,
)
from sightline.ports.store import SessionView

TAG: Final = "sessions"
_PATH: Final = "/api/v1/sessions"
_ID: Final = "$response.body#/data/id"
_UNKNOWN: Final = (Code.SESSION_NOT_FOUND,)
_STATE: Final = (Code.SESSION_NOT_FOUND, Code.INVALID_STATE, Code.CONFLICT, Code.AUTHZ_ERROR)
_SIDES: Final = {Scope.SESSIONS_OPERATE: Party.OPERATOR, Scope.SESSIONS_CREATE: Party.CONSUMER}


def sides_of(principal: Principal) -> frozenset[Party]:
    """The sides for which a credential may end a session: a key's by its scopes, a wallet's both."""
    if isinstance(principal, ApiKeyPrincipal):
        return frozenset(side for scope, side in _SIDES.items() if scope in principal.scopes)
    return frozenset(Party)


@final
class SessionResources:
    """/sessions."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    def routes(self) -> tuple[Route, ...]:
        """The calls of this resource."""
        return (*self._collection(), *self._transitions(), *self._reads())

    def _collection(self) -> tuple[Route, ...]:
        return (
            Route(
                method="POST",
                path=_PATH,
                operation_id="createSession",
                tag=TAG,
                summary="Request live video of a place",
                description="Locks the rate (the quote's, else the spot rate) and reserves it for maxDurationSeconds.",
                handler=self.create,
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
                    Link(name, {"id": _ID})
                    for name in ("getSession", "dispatchSession", "acceptSession", "cancelSession")
                ),
            ),
            Route(
                method="GET",
                path=_PATH,
                operation_id="listSessions",
                tag=TAG,
                summary="List sessions, newest first",
                description="view=open shows what an operator may accept: REQUESTED, unexpired, inside its coverage.",
                handler=self.list,
                operation=Operation.READ_SESSION,
                rate=RateClass.LIST,
                query=ListSessionsQuery,
                output=SessionPage,
                errors=(Code.NOT_OPERATOR,),
            ),
            Route(
                method="POST",
                path=f"{_PATH}/cancel-all-assignments",
                operation_id="cancelAllAssignments",
                tag=TAG,
                summary="Operator: drop every ASSIGNED session",
                handler=self.cancel_all,
                operation=Operation.CANCEL_ASSIGNMENTS,
                output=CancelledAssignments,
                errors=(Code.NOT_OPERATOR, Code.CONFLICT, Code.AUTHZ_ERROR),
            ),
        )

    def _transitions(self) -> tuple[Route, ...]:
        return (
            Route(
                method="POST",
                path=f"{_PATH}/{{id}}/dispatch",
                operation_id="dispatchSession",
                tag=TAG,
                summary="Consumer: assign the longest-idle operator",
                description=(
                    "One atomic decision: an ONLINE operator becomes BUSY and has the session. 503 "
                    "UNAVAILABLE when there is none."
                ),
                handler=self.dispatch,
                operation=Operation.DISPATCH_SESSION,
                rate=RateClass.CREATE,
                output=AssignedSession,
                errors=_STATE,
                links=(Link("startSession", {"id": _ID}),),
                is_hot=True,
            ),
            Route(
                method="POST",
                path=f"{_PATH}/{{id}}/accept",
                operation_id="acceptSession",
                tag=TAG,
                summary="Operator: claim a requested session",
                handler=self.accept,
                operation=Operation.ACCEPT_SESSION,
                body=AcceptSessionBody,
                output=AssignedSession,
                errors=(*_STATE, Code.NOT_OPERATOR),
                links=(Link("startSession", {"id": _ID}),),
            ),
            Route(
                method="POST",
                path=f"{_PATH}/{{id}}/start",
                operation_id="startSession",
                tag=TAG,
                summary="Operator: go live",
                description=(
                    "Creates the live input. whipUrl embeds a secret. After 503 VIDEO_ERROR the session is "
                    "still ASSIGNED; a retry is safe."
                ),
                handler=self.start,
                operation=Operation.START_SESSION,
                output=StartedSession,
                errors=(*_STATE, Code.NOT_OPERATOR, Code.VIDEO_ERROR),
                links=tuple(
                    Link(name, {"id": "$response.body#/data/session/id"})
                    for name in ("endSession", "getViewerToken", "getMeter")
                ),
            ),
            Route(
                method="POST",
                path=f"{_PATH}/{{id}}/end",
                operation_id="endSession",
                tag=TAG,
                summary="Either party: hang up",
                description=(
                    "A key ends for the side of its scope. The charge is fixed at this moment; a second end "
                    "changes nothing."
                ),
                handler=self.end,
                operation=Operation.END_SESSION,
                output=Session,
                errors=_STATE,
                links=(Link("getSettlement", {"sessionId": _ID}),),
            ),
            Route(
                method="DELETE",
                path=f"{_PATH}/{{id}}",
                operation_id="cancelSession",
                tag=TAG,
                summary="Consumer: withdraw a request",
                handler=self.cancel,
                operation=Operation.CANCEL_SESSION,
                output=Session,
                errors=_STATE,
            ),
        )

    def _reads(self) -> tuple[Route, ...]:
        return (
            Route(
                method="GET",
                path=f"{_PATH}/{{id}}",
                operation_id="getSession",
                tag=TAG,
                summary="Read a session",
                handler=self.read,
                operation=Operation.READ_SESSION,
                output=Session,
                errors=_UNKNOWN,
                is_hot=True,
            ),
            Route(
                method="GET",
                path=f"{_PATH}/{{id}}/meter",
                operation_id="getMeter",
                tag=TAG,
                summary="Read the meter and its evidence",
                handler=self.meter,
                operation=Operation.READ_SESSION,
                output=Meter,
                errors=_UNKNOWN,
            ),
            Route(
                method="GET",
                path=f"{_PATH}/{{id}}/viewer-token",
                operation_id="getViewerToken",
                tag=TAG,
                summary="Where to play a LIVE session",
                handler=self.viewer_token,
                operation=Operation.READ_SESSION,
                output=ViewerToken,
                errors=(*_UNKNOWN, Code.INVALID_STATE, Code.VIDEO_ERROR),
            ),
        )

    async def create(self, call: Call) -> Answer:
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
        )
        return await self._deps.broker.create_session(call.caller(), new)

    async def list(self, call: Call) -> Answer:
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
        page = await self._deps.broker.reads.list_sessions(call.workspace_id, listing)
        following = session_cursor(page.next) if page.next is not None else None
        return Answer({"items": page.items, "nextCursor": following}, self._deps.clock.now_ms())

    async def cancel_all(self, call: Call) -> Answer:
        """Drop every assignment of the caller's workspace."""
        return await self._deps.broker.cancel_all(call.caller())

    async def dispatch(self, call: Call) -> Answer:
        """Assign an operator."""
        return await self._deps.broker.dispatch(call.params["id"], call.caller())

    async def accept(self, call: Call) -> Answer:
        """Assign the caller's own workspace."""
        body: AcceptSessionBody = call.body
        return await self._deps.broker.accept(call.params["id"], call.caller(), body.operator_workspace_id)

    async def start(self, call: Call) -> Answer:
        """Go live."""
        return await self._deps.broker.start(call.params["id"], call.caller())

    async def end(self, call: Call) -> Answer:
        """Hang up."""
        assert call.principal is not None
        return await self._deps.broker.end(call.params["id"], call.caller(), sides_of(call.principal))

    async def cancel(self, call: Call) -> Answer:
        """Withdraw."""
        return await self._deps.broker.cancel(call.params["id"], call.caller())

    async def read(self, call: Call) -> Answer:
        """The session as the caller may see it."""
        return await self._deps.broker.reads.read_session(call.params["id"], call.workspace_id)

    async def meter(self, call: Call) -> Answer:
        """The meter."""
        return await self._deps.broker.reads.meter(call.params["id"], call.workspace_id)

    async def viewer_token(self, call: Call) -> Answer:
        """The playback URL."""
        return await self._deps.broker.reads.viewer_token(call.params["id"], call.workspace_id)
