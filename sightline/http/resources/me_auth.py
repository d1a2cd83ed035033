"""Who is calling, and signing in with a wallet."""

from typing import final

from sightline.domain.access import ApiKeyPrincipal, Operation, WalletPrincipal
from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Code, Refusal
from sightline.http.budgets import RateClass
from sightline.http.pipeline.call import Call, JsonObject, Reply
from sightline.http.pipeline.routes import Route
from sightline.http.schemas.base import iso
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
    challenge_json,
    membership_json,
    wallet_session_json,
)
from sightline.http.schemas.identity import WalletSession as WalletSessionModel
from sightline.http.services import Services
from sightline.ports.identity import Purpose

_SIGN_IN_ERRORS = (Code.NOT_AUTHENTICATED, Code.NOT_AUTHORIZED, Code.AUTHZ_ERROR)


@final
class MeAndAuth:
    """GET /me, and /auth."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @Route(
        "GET",
        "/api/v1/me",
        "getMe",
        "identity",
        "Identify the caller",
        operation=Operation.ME,
        output=Identity,
        errors=(Code.AUTHZ_ERROR,),
    )
    async def me(self, call: Call) -> Reply:
        """The principal and what it is bound to."""
        principal = call.principal
        if isinstance(principal, ApiKeyPrincipal):
            return Reply(await self._key_identity(principal))
        assert isinstance(principal, WalletPrincipal)
        memberships = await self._services.members.memberships_of(principal.wallet_address)
        return Reply(
            {
                "kind": "wallet_session",
                "walletAddress": principal.wallet_address,
                "workspaceId": principal.workspace_id,
                "role": principal.role,
                "workspaces": [membership_json(each) for each in memberships],
                "expiresAt": iso(principal.expires_at_ms),
            }
        )

    async def _key_identity(self, principal: ApiKeyPrincipal) -> JsonObject:
        found = await self._services.broker.reads.workspaces([principal.workspace_id])
        if not found:
            raise RefusedError(Refusal(Code.NOT_AUTHENTICATED, "auth:credential", "The API key's workspace is gone"))
        workspace = found[0]
        return {
            "kind": "api_key",
            "workspaceId": principal.workspace_id,
            "keyId": principal.key_id,
            "scopes": sorted(principal.scopes),
            "environment": principal.environment,
            "workspace": {
                "id": workspace.id,
                "slug": workspace.slug,
                "name": workspace.name,
                "roles": workspace.roles,
            },
        }

    @Route(
        "POST",
        "/api/v1/auth/wallet/challenge",
        "challengeLogin",
        "identity",
        "Get a text to sign in with",
        rate=RateClass.AUTH,
        body=ChallengeBody,
        output=ChallengeModel,
    )
    async def challenge(self, call: Call) -> Reply:
        """A text for the wallet to sign."""
        body: ChallengeBody = call.body
        challenge = await self._services.sign_in.challenge(body.wallet_address, Purpose.LOGIN)
        return Reply(challenge_json(challenge))

    @Route(
        "POST",
        "/api/v1/auth/wallet/login",
        "login",
        "identity",
        "Sign in with a signature; sets the cookie svc_session (__Host-svc_session over https)",
        rate=RateClass.AUTH,
        body=LoginBody,
        output=SignedIn,
        errors=_SIGN_IN_ERRORS,
    )
    async def login(self, call: Call) -> Reply:
        """Open a session. A repeat is refused with `auth:nonce`: a cookie is never replayed."""
        body: LoginBody = call.body
        signed_in = await self._services.sign_in.login(
            body.wallet_address,
            body.nonce,
            body.signature,
            client_ip=call.client_ip,
            user_agent=call.headers.get("user-agent") or "",
        )
        data = {
            "walletAddress": signed_in.principal.wallet_address,
            "workspaces": [membership_json(each) for each in signed_in.memberships],
        }
        return Reply(data, headers=(("set-cookie", signed_in.set_cookie),))

    @Route(
        "POST",
        "/api/v1/auth/workspace/select",
        "selectWorkspace",
        "identity",
        "Pick the workspace to act for; re-issues the cookie",
        operation=Operation.SELECT_WORKSPACE,
        body=SelectBody,
        output=Selected,
        errors=(Code.AUTHZ_ERROR,),
    )
    async def select(self, call: Call) -> Reply:
        """Choose the workspace."""
        body: SelectBody = call.body
        principal = call.principal
        assert isinstance(principal, WalletPrincipal)
        selected = await self._services.sign_in.select(principal, body.workspace_id)
        role = selected.principal.role
        assert role is not None
        data = {"workspaceId": body.workspace_id, "role": role}
        return Reply(data, headers=(("set-cookie", selected.set_cookie),))

    @Route(
        "GET",
        "/api/v1/me/sessions",
        "listWalletSessions",
        "identity",
        "List the open sign-ins of the wallet",
        operation=Operation.LIST_WALLET_SESSIONS,
        rate=RateClass.LIST,
        output=WalletSessionList,
    )
    async def wallet_sessions(self, call: Call) -> Reply:
        """List sign-ins on all devices: few, hence one page."""
        principal = call.principal
        assert isinstance(principal, WalletPrincipal)
        sessions = await self._services.wallet_sessions.open_of(principal.wallet_address)
        items = [wallet_session_json(each, principal.session_id) for each in sessions]
        return Reply({"items": items, "nextCursor": None})

    @Route(
        "DELETE",
        "/api/v1/me/sessions/{id}",
        "endWalletSession",
        "identity",
        "End a sign-in of the wallet; its cookie is refused from then on",
        operation=Operation.END_WALLET_SESSION,
        output=WalletSessionModel,
        errors=(Code.NOT_FOUND,),
    )
    async def end_wallet_session(self, call: Call) -> Reply:
        """End a sign-in, for example of a lost phone. Ending it again answers the same."""
        principal = call.principal
        assert isinstance(principal, WalletPrincipal)
        ended = await self._services.wallet_sessions.end(principal.wallet_address, call.params["id"])
        return Reply(wallet_session_json(ended, principal.session_id))

    @Route(
        "POST",
        "/api/v1/auth/logout",
        "logout",
        "identity",
        "End the sign-in and clear the session cookie",
        operation=Operation.LOGOUT,
        output=SignedOut,
    )
    async def logout(self, call: Call) -> Reply:
        """End the sign-in on the server and clear the cookie. An API key has no sign-in to end."""
        principal = call.principal
        if isinstance(principal, WalletPrincipal):
            await self._services.wallet_sessions.end(principal.wallet_address, principal.session_id)
        return Reply({}, headers=tuple(("set-cookie", header) for header in self._services.clear_cookies()))
