"""Invitations that the signed-in wallet has received."""

from typing import Final, final

from sightline.domain.access import Operation, WalletPrincipal
from sightline.domain.refusal import Code
from sightline.http.audit import Act, actor_of
from sightline.http.budgets import RateClass
from sightline.http.pipeline.call import Call, Reply
from sightline.http.pipeline.idempotency import Idempotency
from sightline.http.pipeline.routes import Route
from sightline.http.schemas.identity import Invitation, InvitationList, invitation_json, membership_json
from sightline.http.schemas.workspaces import WorkspaceBrief
from sightline.http.services import Services
from sightline.ports.administration import AuditAction

TAG: Final = "members"
_PATH: Final = "/api/v1/me/invitations"
_ERRORS: Final = (Code.NOT_FOUND, Code.AUTHZ_ERROR)


@final
class InvitationResources:
    """/me/invitations."""

    def __init__(self, services: Services, idempotency: Idempotency) -> None:
        self._services = services
        self._idempotency = idempotency

    @Route(
        "GET",
        _PATH,
        "listInvitations",
        TAG,
        "List the open invitations of the wallet",
        operation=Operation.READ_INVITATIONS,
        rate=RateClass.LIST,
        output=InvitationList,
        errors=(Code.AUTHZ_ERROR,),
    )
    async def list(self, call: Call) -> Reply:
        """The oldest 20, on one page."""
        found = await self._services.invitations.received(_address(call))
        return Reply({"items": [invitation_json(each) for each in found], "nextCursor": None})

    @Route(
        "GET",
        _PATH + "/{id}",
        "getInvitation",
        TAG,
        "Read an open invitation of the wallet, also one that the list does not show",
        operation=Operation.READ_INVITATIONS,
        output=Invitation,
        errors=_ERRORS,
    )
    async def read(self, call: Call) -> Reply:
        """One invitation."""
        found = await self._services.invitations.received_invitation(_address(call), call.params["id"])
        return Reply(invitation_json(found))

    @Route(
        "POST",
        _PATH + "/{id}/accept",
        "acceptInvitation",
        TAG,
        "Become a member of the workspace; select it afterwards",
        operation=Operation.ANSWER_INVITATION,
        output=WorkspaceBrief,
        errors=(*_ERRORS, Code.CONFLICT),
    )
    async def accept(self, call: Call) -> Reply:
        """Accept; answers with the workspace and the role."""
        address = _address(call)

        async def accept() -> Reply:
            return Reply(membership_json(await self._services.invitations.accept(address, call.params["id"])))

        act = Act(actor_of(call.principal), AuditAction.MEMBER_ACCEPT, f"invitation {call.params['id']}", address)
        return await self._idempotency.recorded(
            call.idempotency(address.lower()), lambda: self._services.audit.record(act, accept)
        )

    @Route(
        "DELETE",
        _PATH + "/{id}",
        "declineInvitation",
        TAG,
        "Decline an invitation",
        operation=Operation.ANSWER_INVITATION,
        output=Invitation,
        errors=(*_ERRORS, Code.CONFLICT),
    )
    async def decline(self, call: Call) -> Reply:
        """Decline; answers with the invitation as it was."""
        address = _address(call)

        async def decline() -> Reply:
            return Reply(invitation_json(await self._services.invitations.decline(address, call.params["id"])))

        return await self._idempotency.recorded(call.idempotency(address.lower()), decline)


def _address(call: Call) -> str:
    assert isinstance(call.principal, WalletPrincipal)
    return call.principal.wallet_address
