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
    WalletSessionList,
)
from sightline.http.schemas.identity import (
    WalletSession as WalletSessionModel,
)
from sightline.ports.identity import Purpose, WalletSession

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


def wallet_session_view(session: WalletSession, current_id: str) -> View:
    """A sign-in as JSON. `isCurrent` marks that of the caller."""
    return {
        "sessionId": session.session_id,
        "signedInAt": iso(session.signed_in_at_ms),
        "lastUsedAt": iso(session.last_used_at_ms),
        "endedAt": None if session.ended_at_ms is None else iso(session.ended_at_ms),
        "clientAddress": session.client_ip,
        "userAgent": session.user_agent,
        "isCurrent": session.session_id == current_id,
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
                summary="Sign in with a signature; sets the cookie svc_session (__Host-svc_session over https)",
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
                summary="End the sign-in and clear the session cookie",
                handler=self.logout,
                operation=Operation.LOGOUT,
                output=SignedOut,
            ),
            Route(
                method="GET",
                path="/api/v1/me/sessions",
                operation_id="listWalletSessions",
                tag="identity",
                summary="List the open sign-ins of the wallet",
                handler=self.wallet_sessions,
                operation=Operation.LIST_WALLET_SESSIONS,
                rate=RateClass.LIST,
                output=WalletSessionList,
            ),
            Route(
                method="DELETE",
                path="/api/v1/me/sessions/{id}",
                operation_id="endWalletSession",
                tag="identity",
                summary="End a sign-in of the wallet; its cookie is refused from then on",
                handler=self.end_wallet_session,
                operation=Operation.END_WALLET_SESSION,
                output=WalletSessionModel,
                errors=(Code.NOT_FOUND,),
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
        signed_in = await self._deps.sign_in.login(
            body.wallet_address,
            body.nonce,
            body.signature,
            client_ip=call.client_ip,
            user_agent=call.headers.get("user-agent") or "",
        )
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

    async def wallet_sessions(self, call: Call) -> Answer:
        """List sign-ins on all devices: few, hence one page."""
        principal = call.principal
        assert isinstance(principal, WalletPrincipal)
        sessions = await self._deps.wallet_sessions.open_of(principal.wallet_address)
        items = [wallet_session_view(each, principal.session_id) for each in sessions]
        return Answer({"items": items, "nextCursor": None}, self._deps.clock.now_ms())

    async def end_wallet_session(self, call: Call) -> Answer:
        """End a sign-in, for example of a lost phone. Ending it again answers the same."""
        principal = call.principal
        assert isinstance(principal, WalletPrincipal)
        ended = await self._deps.wallet_sessions.end(principal.wallet_address, call.params["id"])
        return Answer(wallet_session_view(ended, principal.session_id), self._deps.clock.now_ms())

    async def logout(self, call: Call) -> Reply:
        """End the sign-in on the server and clear the cookie. An API key has no sign-in to end."""
        principal = call.principal
        if isinstance(principal, WalletPrincipal):
            await self._deps.wallet_sessions.end(principal.wallet_address, principal.session_id)
        return Reply({}, headers=tuple(("set-cookie", header) for header in self._deps.clear_cookies()))
