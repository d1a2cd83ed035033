"""Workspaces: created with a signature, listed, read, changed."""

from typing import Final, final

from sightline.actors.types import Answer, NewWorkspace
from sightline.domain.access import Operation, WalletPrincipal, may_call
from sightline.domain.errors import RefusedError, UnavailableError
from sightline.domain.geofence import DeviceKind
from sightline.domain.operator.machine import Patch
from sightline.domain.operator.model import Availability, WorkspaceRole
from sightline.domain.refusal import Code
from sightline.domain.views import workspace_view
from sightline.http.deps import Deps
from sightline.http.pipeline.call import Call
from sightline.http.pipeline.idempotency import Once
from sightline.http.pipeline.rate_limit import RateClass
from sightline.http.pipeline.routes import Link, Route
from sightline.http.resources.me_auth import challenge_view
from sightline.http.resources.own_workspace import require_own_workspace
from sightline.http.schemas.identity import Challenge, ChallengeBody
from sightline.http.schemas.workspaces import CreateWorkspaceBody, PatchWorkspaceBody, Workspace, WorkspaceList
from sightline.ports.identity import Purpose

TAG: Final = "workspaces"


@final
class Workspaces:
    """/workspaces and /workspaces/{id}."""

    def __init__(self, deps: Deps, once: Once) -> None:
        self._deps = deps
        self._once = once

    def routes(self) -> tuple[Route, ...]:
        """The calls of this resource."""
        return (
            Route(
                method="POST",
                path="/api/v1/workspaces/challenge",
                operation_id="challengeWorkspace",
                tag=TAG,
                summary="Get a text to create a workspace with",
                handler=self.challenge,
                rate=RateClass.AUTH,
                body=ChallengeBody,
                output=Challenge,
            ),
            Route(
                method="POST",
                path="/api/v1/workspaces",
                operation_id="createWorkspace",
                tag=TAG,
                summary="Create a workspace; the signing wallet becomes its OWNER",
                handler=self.create,
                rate=RateClass.AUTH,
                body=CreateWorkspaceBody,
                output=Workspace,
                errors=(Code.NOT_AUTHENTICATED, Code.NOT_AUTHORIZED, Code.CONFLICT, Code.AUTHZ_ERROR),
            ),
            Route(
                method="GET",
                path="/api/v1/workspaces",
                operation_id="listWorkspaces",
                tag=TAG,
                summary="List the workspaces of the wallet",
                handler=self.list,
                operation=Operation.LIST_WORKSPACES,
                rate=RateClass.LIST,
                output=WorkspaceList,
                errors=(Code.AUTHZ_ERROR,),
            ),
            Route(
                method="GET",
                path="/api/v1/workspaces/{id}",
                operation_id="getWorkspace",
                tag=TAG,
                summary="Read the caller's workspace",
                handler=self.read,
                operation=Operation.GET_WORKSPACE,
                output=Workspace,
                errors=(Code.NOT_FOUND,),
            ),
            Route(
                method="PATCH",
                path="/api/v1/workspaces/{id}",
                operation_id="updateWorkspace",
                tag=TAG,
                summary="Change name, availability, coverage or device",
                handler=self.update,
                operation=Operation.RENAME_WORKSPACE,
                body=PatchWorkspaceBody,
                output=Workspace,
                errors=(Code.NOT_FOUND, Code.INVALID_STATE, Code.CONFLICT),
                links=(Link("getWorkspace", {"id": "$response.body#/data/id"}),),
            ),
        )

    async def challenge(self, call: Call) -> Answer:
        """A text for the wallet to sign, good for creating one workspace."""
        body: ChallengeBody = call.body
        challenge = await self._deps.sign_in.challenge(body.wallet_address, Purpose.CREATE_WORKSPACE)
        return Answer(challenge_view(challenge), self._deps.clock.now_ms())

    async def create(self, call: Call) -> Answer:
        """Create a workspace. There is no principal, so an idempotency key is scoped to the wallet."""
        body: CreateWorkspaceBody = call.body
        key = call.idempotency(body.wallet_address.lower())

        async def create() -> Answer:
            sign_in = self._deps.sign_in
            owner = await sign_in.prove(body.wallet_address, body.nonce, body.signature, Purpose.CREATE_WORKSPACE)
            new = NewWorkspace(
                wallet_address=owner,
                slug=body.slug,
                name=body.name,
                roles=tuple(WorkspaceRole(role) for role in body.roles),
            )
            try:
                return await self._deps.broker.create_workspace(new, key)
            except UnavailableError:
                await sign_in.give_back(body.nonce)
                raise

        answer = await self._once.replayed(key, create)
        self._deps.wake_watcher()
        return answer

    async def list(self, call: Call) -> Answer:
        """All workspaces of the wallet: few, hence one page."""
        assert isinstance(call.principal, WalletPrincipal)
        memberships = await self._deps.members.memberships_of(call.principal.wallet_address)
        roles = {each.workspace.id: each.role for each in memberships}
        found = await self._deps.broker.reads.workspaces(list(roles))
        items = [workspace_view(each) | {"role": roles[each.id].value} for each in found]
        return Answer({"items": items, "nextCursor": None}, self._deps.clock.now_ms())

    async def read(self, call: Call) -> Answer:
        """The caller's workspace."""
        return await self._deps.broker.reads.read_workspace(await require_own_workspace(call, self._deps.broker))

    async def update(self, call: Call) -> Answer:
        """Change it. Whoever may act for the workspace may rename it; the rest is for who operates it."""
        body: PatchWorkspaceBody = call.body
        assert call.principal is not None
        refusal = None if body.is_rename else may_call(call.principal, Operation.UPDATE_WORKSPACE)
        if refusal is not None:
            raise RefusedError(refusal)
        workspace_id = await require_own_workspace(call, self._deps.broker)
        patch = Patch(
            name=body.name,
            availability=Availability(body.availability_state) if body.availability_state is not None else None,
            coverage_lat=body.coverage_lat,
            coverage_lng=body.coverage_lng,
            coverage_radius_m=body.coverage_radius_meters,
            device_kind=DeviceKind(body.device_kind) if body.device_kind is not None else None,
        )
        return await self._deps.broker.patch_workspace(workspace_id, call.caller(), patch)
