"""Members of a workspace; the OWNER's business."""

from typing import Final, final

from sightline.domain.access import Operation, WalletPrincipal
from sightline.domain.refusal import Code
from sightline.http.audit import Act, actor_of
from sightline.http.budgets import RateClass
from sightline.http.pipeline.call import Call, Reply
from sightline.http.pipeline.idempotency import Idempotency
from sightline.http.pipeline.routes import Param, Route
from sightline.http.resources.own_workspace import require_own_workspace
from sightline.http.schemas.workspaces import AddMemberBody, MemberList, member_json
from sightline.http.schemas.workspaces import Member as MemberModel
from sightline.http.services import Services
from sightline.ports.administration import AuditAction

TAG: Final = "members"
_PATH: Final = "/api/v1/workspaces/{id}/members"
_ERRORS: Final = (Code.NOT_FOUND, Code.AUTHZ_ERROR)


@final
class MemberResources:
    """/workspaces/{id}/members."""

    def __init__(self, services: Services, idempotency: Idempotency) -> None:
        self._services = services
        self._idempotency = idempotency

    @Route(
        "GET",
        _PATH,
        "listMembers",
        TAG,
        "List members and invited wallets",
        operation=Operation.LIST_MEMBERS,
        rate=RateClass.LIST,
        output=MemberList,
        errors=_ERRORS,
    )
    async def list(self, call: Call) -> Reply:
        """All members, then invited wallets: few, hence one page."""
        members = await self._services.invitations.members_of(await require_own_workspace(call, self._services.broker))
        return Reply({"items": [member_json(member) for member in members], "nextCursor": None})

    @Route(
        "POST",
        _PATH,
        "addMember",
        TAG,
        "Invite a wallet, or give a member another role",
        operation=Operation.CHANGE_MEMBERS,
        body=AddMemberBody,
        output=MemberModel,
        errors=(*_ERRORS, Code.INVALID_STATE, Code.CONFLICT),
    )
    async def add(self, call: Call) -> Reply:
        """Invite; the wallet becomes a member when it accepts. A member gets its role at once."""
        body: AddMemberBody = call.body
        assert isinstance(call.principal, WalletPrincipal)
        invited_by = call.principal.wallet_address
        workspace_id = await require_own_workspace(call, self._services.broker)

        async def add() -> Reply:
            member = await self._services.invitations.invite(
                workspace_id, body.wallet_address, body.role, invited_by=invited_by
            )
            return Reply(member_json(member))

        act = Act(
            actor_of(call.principal),
            AuditAction.MEMBER_SET,
            f"workspace {workspace_id}",
            f"{body.wallet_address} {body.role}",
        )
        return await self._idempotency.recorded(
            call.caller().idempotency, lambda: self._services.audit.record(act, add)
        )

    @Route(
        "DELETE",
        _PATH + "/{walletAddress}",
        "removeMember",
        TAG,
        "Remove a member, or withdraw an invitation",
        operation=Operation.CHANGE_MEMBERS,
        params={"walletAddress": Param.ADDRESS},
        output=MemberModel,
        errors=(*_ERRORS, Code.INVALID_STATE, Code.CONFLICT),
    )
    async def remove(self, call: Call) -> Reply:
        """Remove; answers with the member as it was."""
        workspace_id = await require_own_workspace(call, self._services.broker)

        address = call.params["walletAddress"]

        async def remove() -> Reply:
            member = await self._services.invitations.remove(workspace_id, address)
            return Reply(member_json(member))

        act = Act(actor_of(call.principal), AuditAction.MEMBER_REMOVE, f"workspace {workspace_id}", address)
        return await self._idempotency.recorded(
            call.caller().idempotency, lambda: self._services.audit.record(act, remove)
        )
