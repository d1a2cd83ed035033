"""Who is calling, and signing in with a wallet."""

from typing import final

from sightline.actors.types import Answer
from sightline.domain.access import ApiKeyPrincipal, Operation, WalletPrincipal
from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Code, Refusal
from sightline.domain.views import View, iso
from sightline.http.deps import Challenge, Deps, Membership
from sightline.http.pipeline.call import Call, Reply
from sightline.http.pipeline.rate_limit import RateClass
from sightline.http.pipeline.routes import Route
from sightline.http.schemas.identity import (
    Challenge as ChallengeModel,
)
from sightline.http.schemas.identity import (
    ChallengeBody,
    Identity,
    LoginBody,
    SelectBody,
    Selected,
    SignedIn,
    SignedOut,
)
from sightline.ports.identity import Purpose

_SIGN_IN_ERRORS = (Code.NOT_AUTHENTICATED, Code.NOT_AUTHORIZED, Code.AUTHZ_ERROR)


def challenge_view(challenge: Challenge) -> View:
    """A challenge as the client gets it."""
    return {
        "nonce": challenge.nonce,
        "message": challenge.message,
        "expiresAt": iso(challenge.expires_at_ms),
    }


def membership_view(membership: Membership) -> View:
    """A workspace among those of a wallet."""
    workspace = membership.workspace
    return {
        "id": workspace.id,
        "slug": workspace.slug,
        "name": workspace.name,
        "role": membership.role.value,
    }


@final
class MeAndAuth:
    """GET /me, and /auth."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    def routes(self) -> tuple[Route, ...]:
        """The calls of this resource."""
        return (
            Route(
                method="GET",
                path="/api/v1/me",
                operation_id="getMe",
                tag="identity",
                summary="Identify the caller",
                handler=self.me,
                operation=Operation.ME,
                output=Identity,
                errors=(Code.AUTHZ_ERROR,),
            ),
            Route(
                method="POST",
                path="/api/v1/auth/wallet/challenge",
                operation_id="challengeLogin",
                tag="identity",
                summary="Get a text to sign in with",
                handler=self.challenge,
                rate=RateClass.AUTH,
                body=ChallengeBody,
                output=ChallengeModel,
            ),
            Route(
                method="POST",
                path="/api/v1/auth/wallet/login",
                operation_id="login",
                tag="identity",
                summary="Sign in with a signature; sets the cookie svc_session",
                handler=self.login,
                rate=RateClass.AUTH,
                body=LoginBody,
                output=SignedIn,
                errors=_SIGN_IN_ERRORS,
            ),
            Route(
                method="POST",
                path="/api/v1/auth/workspace/select",
                operation_id="selectWorkspace",
                tag="identity",
                summary="Pick the workspace to act for; re-issues the cookie",
                handler=self.select,
                operation=Operation.SELECT_WORKSPACE,
                body=SelectBody,
                output=Selected,
                errors=(Code.AUTHZ_ERROR,),
            ),
            Route(
                method="POST",
                path="/api/v1/auth/logout",
                operation_id="logout",
                tag="identity",
                summary="Clear the session cookie",
                handler=self.logout,
                operation=Operation.LOGOUT,
                output=SignedOut,
            ),
        )

    async def me(self, call: Call) -> Answer:
        """The principal and what it is bound to."""
        principal, now_ms = call.principal, self._deps.clock.now_ms()
        if isinstance(principal, ApiKeyPrincipal):
            return Answer(await self._key_view(principal), now_ms)
        assert isinstance(principal, WalletPrincipal)
        memberships = await self._deps.members.memberships_of(principal.wallet_address)
        data = {
            "kind": "wallet_session",
            "walletAddress": principal.wallet_address,
            "workspaceId": principal.workspace_id,
            "role": principal.role.value if principal.role is not None else None,
            "workspaces": [membership_view(each) for each in memberships],
            "expiresAt": iso(principal.expires_at_ms),
        }
        return Answer(data, now_ms)

    async def _key_view(self, principal: ApiKeyPrincipal) -> View:
        found = await self._deps.broker.reads.workspaces([principal.workspace_id])
        if not found:
            raise RefusedError(Refusal(Code.NOT_AUTHENTICATED, "auth:credential"))
        workspace = found[0]
        return {
            "kind": "api_key",
            "workspaceId": principal.workspace_id,
            "keyId": principal.key_id,
            "scopes": sorted(scope.value for scope in principal.scopes),
            "environment": principal.environment.value,
            "workspace": {
                "id": workspace.id,
                "slug": workspace.slug,
                "name": workspace.name,
                "roles": [role.value for role in workspace.roles],
            },
        }

    async def challenge(self, call: Call) -> Answer:
        """A text for the wallet to sign."""
        body: ChallengeBody = call.body
        challenge = await self._deps.sign_in.challenge(body.wallet_address, Purpose.LOGIN)
        return Answer(challenge_view(challenge), self._deps.clock.now_ms())

    async def login(self, call: Call) -> Reply:
        """Open a session. A repeat is refused with `auth:nonce`: a cookie is never replayed."""
        body: LoginBody = call.body
        signed_in = await self._deps.sign_in.login(body.wallet_address, body.nonce, body.signature)
        data = {
            "walletAddress": signed_in.principal.wallet_address,
            "workspaces": [membership_view(each) for each in signed_in.memberships],
        }
        return Reply(data, headers=(("set-cookie", signed_in.set_cookie),))

    async def select(self, call: Call) -> Reply:
        """Choose the workspace."""
        body: SelectBody = call.body
        principal = call.principal
        assert isinstance(principal, WalletPrincipal)
        selected = await self._deps.sign_in.select(principal, body.workspace_id)
        role = selected.principal.role
        assert role is not None
        data = {"workspaceId": body.workspace_id, "role": role.value}
        return Reply(data, headers=(("set-cookie", selected.set_cookie),))

    async def logout(self, _call: Call) -> Reply:
        """Make the browser forget the session; there is nothing to forget on the server."""
        return Reply({}, headers=tuple(("set-cookie", header) for header in self._deps.clear_cookies()))
