"""Links by which others see one view. The key of a link is in the fragment of its URL, which no browser sends."""

from functools import partial
from typing import Final, final

from sightline.actors.refusals import NOT_PARTY
from sightline.domain.access import ApiKeyPrincipal, Operation
from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Code, Refusal
from sightline.domain.session.model import SessionState
from sightline.domain.session.status import SessionStatus
from sightline.domain.units import SECOND_MS
from sightline.http.budgets import RateClass
from sightline.http.links import other_devices_hint
from sightline.http.pipeline.call import Call, Reply
from sightline.http.pipeline.idempotency import Idempotency
from sightline.http.pipeline.routes import Link, Route
from sightline.http.resources.signalling import play_url_of
from sightline.http.schemas.sessions import (
    MadeShare,
    Share,
    ShareBody,
    SharedView,
    ShareList,
    share_json,
    shared_view_json,
)
from sightline.http.services import Services
from sightline.ports.store import IdempotencyRecord

TAG: Final = "sharing"
_SESSION: Final = "/api/v1/sessions/{id}"
_OPEN: Final = frozenset({SessionState.REQUESTED, SessionState.ASSIGNED, SessionState.LIVE})


@final
class ShareResources:
    """/sessions/{id}/shares and /sessions/{id}/shared."""

    def __init__(self, services: Services, idempotency: Idempotency) -> None:
        self._services = services
        self._idempotency = idempotency

    @Route(
        "POST",
        f"{_SESSION}/shares",
        "shareSession",
        TAG,
        "Consumer: make a link by which others see the view",
        description="Whoever has the link sees the picture, the state and the place until the link ends or is revoked, "
        "and can change and spend nothing. A guest is a viewer of the consumer: while one watches, the lease "
        "does not end the view. At most 20 links of a session are open at a time (CONFLICT `share:limit`).",
        operation=Operation.SHARE_VIEW,
        rate=RateClass.CREATE,
        body=ShareBody,
        output=MadeShare,
        errors=(Code.SESSION_NOT_FOUND, Code.NOT_FOUND, Code.INVALID_STATE, Code.CONFLICT),
        links=(
            Link(
                "revokeShare",
                {"id": "$response.body#/data/sessionId", "shareId": "$response.body#/data/shareId"},
            ),
        ),
    )
    async def make(self, call: Call) -> Reply:
        """Make a link. The answer is never kept, so a repeat with the same idempotency key is refused."""
        body: ShareBody = call.body
        status = await self._own_session(call)
        if status.state not in _OPEN:
            raise RefusedError(Refusal(Code.INVALID_STATE, "session:state", "The view is over", state=status.state))
        owner = (await self._services.broker.reads.read_workspace(call.workspace_id)).value

        async def make(record: IdempotencyRecord | None) -> Reply:
            made = await self._services.shares.make(
                call.workspace_id,
                status.terms.id,
                created_by=owner.wallet_address,
                label=body.label,
                lifetime_ms=body.expires_in_seconds * SECOND_MS,
                call=record,
            )
            url = f"{call.base_url()}/console/#/shared/{status.terms.id}?key={made.plaintext}"
            shown = share_json(made.record, self._services.clock.now_ms())
            return Reply(shown | {"url": url, "urlHint": other_devices_hint(url), "key": made.plaintext})

        return await self._idempotency.once(call.caller().idempotency, make)

    @Route(
        "GET",
        f"{_SESSION}/shares",
        "listShares",
        TAG,
        "Consumer: list the links of a view",
        operation=Operation.READ_SESSION,
        rate=RateClass.LIST,
        output=ShareList,
        errors=(Code.SESSION_NOT_FOUND,),
    )
    async def list(self, call: Call) -> Reply:
        """The newest links, ended ones included."""
        session_id = (await self._own_session(call)).terms.id
        records = await self._services.shares.of_session(call.workspace_id, session_id)
        present = partial(share_json, now_ms=self._services.clock.now_ms())
        return Reply({"items": [present(record) for record in records], "nextCursor": None})

    @Route(
        "DELETE",
        f"{_SESSION}/shares/{{shareId}}",
        "revokeShare",
        TAG,
        "Consumer: revoke a link, at once",
        description="Viewers by WHEP that this server connects are disconnected; those of other servers, and open "
        "streams, within 15 s. A repeat answers the same.",
        operation=Operation.SHARE_VIEW,
        output=Share,
        errors=(Code.SESSION_NOT_FOUND, Code.NOT_FOUND),
    )
    async def revoke(self, call: Call) -> Reply:
        """End a link."""
        session_id = (await self._own_session(call)).terms.id
        record = await self._services.shares.revoke(call.workspace_id, session_id, call.params["shareId"])
        return Reply(share_json(record, self._services.clock.now_ms()))

    @Route(
        "GET",
        f"{_SESSION}/shared",
        "getSharedView",
        TAG,
        "What a share link shows of a session",
        description="With the key of the link, or as a party of the session.",
        operation=Operation.READ_SHARED_VIEW,
        output=SharedView,
        errors=(Code.SESSION_NOT_FOUND,),
        is_hot=True,
    )
    async def read(self, call: Call) -> Reply:
        """The view as its guests see it."""
        answer = await self._services.broker.reads.read_session(call.params["id"], call.workspace_id)
        principal, ends_at_ms = call.principal, None
        if isinstance(principal, ApiKeyPrincipal) and principal.is_guest:
            ends_at_ms = await self._services.shares.ends_at_ms(principal.workspace_id, principal.key_id)
        play_url = play_url_of(self._services.video, call)
        return Reply(shared_view_json(answer.value, play_url=play_url, ends_at_ms=ends_at_ms), answer.at_ms)

    async def _own_session(self, call: Call) -> SessionStatus:
        """The session, if the caller is its consumer.

        Raises:
            RefusedError: SESSION_NOT_FOUND, or NOT_AUTHORIZED for the operator.
        """
        status = (await self._services.broker.reads.read_session(call.params["id"], call.workspace_id)).value
        if status.terms.consumer_workspace_id != call.workspace_id:
            raise RefusedError(NOT_PARTY)
        return status
