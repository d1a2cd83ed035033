"""Workspaces: created with a signature, listed, read, changed."""

from typing import Final, final

from sightline.actors.types import Answer, NewWorkspace
from sightline.domain.access import Operation, WalletPrincipal, may_call
from sightline.domain.errors import RefusedError, UnavailableError
from sightline.domain.geofence import DeviceKind
from sightline.domain.operator.machine import Patch
from sightline.domain.operator.model import Availability, WorkspaceRole
from sightline.domain.operator.model import Workspace as DomainWorkspace
from sightline.domain.refusal import Code
from sightline.http.budgets import RateClass
from sightline.http.pipeline.call import Call, Reply
from sightline.http.pipeline.routes import Link, Route
from sightline.http.resources.own_workspace import require_own_workspace
from sightline.http.schemas.identity import Challenge, ChallengeBody, challenge_json
from sightline.http.schemas.workspaces import (
    CreateWorkspaceBody,
    OwnWorkspace,
    PatchWorkspaceBody,
    WorkspaceList,
    own_workspace_json,
    workspace_json,
)
from sightline.http.services import Services
from sightline.ports.identity import Purpose

TAG: Final = "workspaces"


@final
class Workspaces:
    """/workspaces and /workspaces/{id}."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @Route(
        "POST",
        "/api/v1/workspaces/challenge",
        "challengeWorkspace",
        TAG,
        "Get a text to create a workspace with",
        rate=RateClass.AUTH,
        body=ChallengeBody,
        output=Challenge,
    )
    async def challenge(self, call: Call) -> Reply:
        """A text for the wallet to sign, good for creating one workspace."""
        body: ChallengeBody = call.body
        challenge = await self._services.sign_in.challenge(body.wallet_address, Purpose.CREATE_WORKSPACE)
        return Reply(challenge_json(challenge))

    @Route(
        "POST",
        "/api/v1/workspaces",
        "createWorkspace",
        TAG,
        "Create a workspace; the signing wallet becomes its OWNER",
        rate=RateClass.AUTH,
        body=CreateWorkspaceBody,
        output=OwnWorkspace,
        errors=(Code.NOT_AUTHENTICATED, Code.NOT_AUTHORIZED, Code.CONFLICT, Code.AUTHZ_ERROR),
    )
    async def create(self, call: Call) -> Reply:
        """Create a workspace. There is no principal, so an idempotency key is scoped to the wallet."""
        body: CreateWorkspaceBody = call.body
        key = call.idempotency(body.wallet_address.lower())

        sign_in = self._services.sign_in
        is_proved = False

        async def prove() -> NewWorkspace:
            nonlocal is_proved
            owner = await sign_in.prove(body.wallet_address, body.nonce, body.signature, Purpose.CREATE_WORKSPACE)
            is_proved = True
            roles = tuple(WorkspaceRole(role) for role in body.roles)
            return NewWorkspace(wallet_address=owner, slug=body.slug, name=body.name, roles=roles)

        try:
            answer = await self._services.broker.create_workspace(prove, key)
        except UnavailableError:
            if is_proved:
                await sign_in.give_back(body.nonce)
            raise
        self._services.wake_watcher()
        return await self._own(answer)

    @Route(
        "GET",
        "/api/v1/workspaces",
        "listWorkspaces",
        TAG,
        "List the workspaces of the wallet",
        operation=Operation.LIST_WORKSPACES,
        rate=RateClass.LIST,
        output=WorkspaceList,
        errors=(Code.AUTHZ_ERROR,),
    )
    async def list(self, call: Call) -> Reply:
        """All workspaces of the wallet: few, hence one page."""
        assert isinstance(call.principal, WalletPrincipal)
        memberships = await self._services.members.memberships_of(call.principal.wallet_address)
        roles = {each.workspace.id: each.role for each in memberships}
        found = await self._services.broker.reads.workspaces(list(roles))
        items = [workspace_json(each) | {"role": roles[each.id]} for each in found]
        return Reply({"items": items, "nextCursor": None})

    @Route(
        "GET",
        "/api/v1/workspaces/{id}",
        "getWorkspace",
        TAG,
        "Read the caller's workspace",
        operation=Operation.GET_WORKSPACE,
        output=OwnWorkspace,
        errors=(Code.NOT_FOUND,),
    )
    async def read(self, call: Call) -> Reply:
        """The caller's workspace."""
        workspace_id = await require_own_workspace(call, self._services.broker)
        return await self._own(await self._services.broker.reads.read_workspace(workspace_id))

    @Route(
        "PATCH",
        "/api/v1/workspaces/{id}",
        "updateWorkspace",
        TAG,
        "Change name, availability, coverage or device",
        operation=Operation.RENAME_WORKSPACE,
        body=PatchWorkspaceBody,
        output=OwnWorkspace,
        errors=(Code.NOT_FOUND, Code.INVALID_STATE, Code.CONFLICT),
        links=(Link("getWorkspace", {"id": "$response.body#/data/id"}),),
    )
    async def update(self, call: Call) -> Reply:
        """Change it. Whoever may act for the workspace may rename it; the rest is for who operates it."""
        body: PatchWorkspaceBody = call.body
        assert call.principal is not None
        refusal = None if body.is_rename else may_call(call.principal, Operation.UPDATE_WORKSPACE)
        if refusal is not None:
            raise RefusedError(refusal)
        workspace_id = await require_own_workspace(call, self._services.broker)
        patch = Patch(
            name=body.name,
            availability=Availability(body.availability_state) if body.availability_state is not None else None,
            coverage_lat=body.coverage_lat,
            coverage_lng=body.coverage_lng,
            coverage_radius_m=body.coverage_radius_meters,
            device_kind=DeviceKind(body.device_kind) if body.device_kind is not None else None,
        )
        return await self._own(await self._services.broker.patch_workspace(workspace_id, call.caller(), patch))

    async def _own(self, answer: Answer[DomainWorkspace]) -> Reply:
        until_ms = await self._services.broker.reads.passed_over_until(answer.value)
        return Reply(own_workspace_json(answer.value, until_ms), answer.at_ms)
