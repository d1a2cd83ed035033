"""Members of a workspace; the OWNER's business."""

from typing import Final, final

from sightline.actors.types import Answer
from sightline.domain.access import Operation
from sightline.domain.refusal import Code
from sightline.domain.views import View
from sightline.http.deps import Deps
from sightline.http.pipeline.call import Call
from sightline.http.pipeline.idempotency import Once
from sightline.http.pipeline.rate_limit import RateClass
from sightline.http.pipeline.routes import Param, Route
from sightline.http.resources.own_workspace import require_own_workspace
from sightline.http.schemas.workspaces import AddMemberBody, MemberList
from sightline.http.schemas.workspaces import Member as MemberModel
from sightline.ports.identity import Member

TAG: Final = "members"
_PATH: Final = "/api/v1/workspaces/{id}/members"
_ERRORS: Final = (Code.NOT_FOUND, Code.AUTHZ_ERROR)


def member_view(member: Member) -> View:
    """A member as it is shown."""
    return {
        "workspaceId": member.workspace_id,
        "walletAddress": member.wallet_address,
        "role": member.role.value,
    }


@final
class MemberResources:
    """/workspaces/{id}/members."""

    def __init__(self, deps: Deps, once: Once) -> None:
        self._deps = deps
        self._once = once

    def routes(self) -> tuple[Route, ...]:
        """The calls of this resource."""
        return (
            Route(
                method="GET",
                path=_PATH,
                operation_id="listMembers",
                tag=TAG,
                summary="List members",
                handler=self.list,
                operation=Operation.CHANGE_MEMBERS,
                rate=RateClass.LIST,
                output=MemberList,
                errors=_ERRORS,
            ),
            Route(
                method="POST",
                path=_PATH,
                operation_id="addMember",
                tag=TAG,
                summary="Make a wallet a member, or give it another role",
                handler=self.add,
                operation=Operation.CHANGE_MEMBERS,
                body=AddMemberBody,
                output=MemberModel,
                errors=(*_ERRORS, Code.INVALID_STATE, Code.CONFLICT),
            ),
            Route(
                method="DELETE",
                path=_PATH + "/{walletAddress}",
                operation_id="removeMember",
                tag=TAG,
                summary="Take a member away; takes effect at its next selection of a workspace",
                handler=self.remove,
                operation=Operation.CHANGE_MEMBERS,
                params={"walletAddress": Param.ADDRESS},
                output=MemberModel,
                errors=(*_ERRORS, Code.INVALID_STATE, Code.CONFLICT),
            ),
        )

    async def list(self, call: Call) -> Answer:
        """All members: few, hence one page."""
        members = await self._deps.members.members_of(await require_own_workspace(call, self._deps.broker))
        data = {"items": [member_view(member) for member in members], "nextCursor": None}
        return Answer(data, self._deps.clock.now_ms())

    async def add(self, call: Call) -> Answer:
        """Add, or change the role."""
        body: AddMemberBody = call.body
        workspace_id = await require_own_workspace(call, self._deps.broker)

        async def add() -> Answer:
            member = await self._deps.members.add(workspace_id, body.wallet_address, body.role)
            return Answer(member_view(member), self._deps.clock.now_ms())

        return await self._once.recorded(call.caller().idempotency, add)

    async def remove(self, call: Call) -> Answer:
        """Remove; answers with the member as it was."""
        workspace_id = await require_own_workspace(call, self._deps.broker)

        async def remove() -> Answer:
            member = await self._deps.members.remove(workspace_id, call.params["walletAddress"])
            return Answer(member_view(member), self._deps.clock.now_ms())

        return await self._once.recorded(call.caller().idempotency, remove)
