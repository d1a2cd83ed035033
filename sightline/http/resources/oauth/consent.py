"""The calls of the console's page on which a member allows or refuses a client."""

from functools import partial
from typing import Final, final

from sightline.domain.access import Operation, WalletPrincipal
from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Code, Refusal
from sightline.http.audit import Act, actor_of
from sightline.http.budgets import RateClass
from sightline.http.pipeline.call import Call, Reply
from sightline.http.pipeline.idempotency import Idempotency
from sightline.http.pipeline.routes import Route
from sightline.http.resources.oauth.endpoints import RESOURCE_PATH, TAG
from sightline.http.resources.own_workspace import require_own_workspace
from sightline.http.schemas.identity import AuthorizationAsked, AuthorizationQuery, GrantBody, Granted
from sightline.http.services import Services
from sightline.identity.oauth.clients import OAuthClient
from sightline.identity.oauth.grants import MemberConsent
from sightline.identity.oauth.requests import AuthorizationRequest, OAuthCode, OAuthError, parse_request
from sightline.ports.administration import AuditAction
from sightline.ports.store import IdempotencyRecord

_DENIED: Final = OAuthError(OAuthCode.ACCESS_DENIED, "The member refused")


@final
class ConsentResources:
    """/me/authorization-request and /workspaces/{id}/grants."""

    def __init__(self, services: Services, idempotency: Idempotency) -> None:
        self._services = services
        self._idempotency = idempotency

    @Route(
        "GET",
        "/api/v1/me/authorization-request",
        "readAuthorizationRequest",
        TAG,
        "Check what a client asks a member for",
        operation=Operation.READ_AUTHORIZATION_REQUEST,
        rate=RateClass.LIST,
        query=AuthorizationQuery,
        output=AuthorizationAsked,
    )
    async def read(self, call: Call) -> Reply:
        """Check the request, and say who asks for what."""
        query: AuthorizationQuery = call.query
        request, client = await self._asked(call, query.request)
        return Reply(
            {
                "clientName": client.name,
                "clientHost": client.host,
                "redirectHost": request.redirect_host,
                "isLoopback": request.is_loopback,
                "scopes": list(request.scopes),
                "denyUrl": request.refused_url(request.error or _DENIED, issuer=call.base_url()),
                "refused": None if request.error is None else request.error.description,
            }
        )

    @Route(
        "POST",
        "/api/v1/workspaces/{id}/grants",
        "grantAccess",
        TAG,
        "Allow a client to act for the workspace",
        operation=Operation.MINT_API_KEY,
        body=GrantBody,
        output=Granted,
        errors=(Code.NOT_FOUND, Code.CONFLICT),
    )
    async def grant(self, call: Call) -> Reply:
        """Allow. The answer is never kept, so a repeat with the same idempotency key is refused."""
        body: GrantBody = call.body
        workspace_id = await require_own_workspace(call, self._services.broker)
        principal = call.principal
        assert isinstance(principal, WalletPrincipal)
        request, client = await self._asked(call, body.request)
        if request.error is not None:
            raise _refused(request.error)
        consent = MemberConsent(
            workspace_id=workspace_id,
            allowed_by=principal.wallet_address,
            days=body.days,
            limits=None if body.limits is None else body.limits.to_domain(),
        )

        async def grant(record: IdempotencyRecord | None) -> Reply:
            code = await self._services.grants.allow(consent, request, client, record)
            return Reply({"redirectUrl": request.granted_url(code, issuer=call.base_url())})

        act = Act(actor_of(principal), AuditAction.KEY_MINT, f"workspace {workspace_id}", f"grant to {client.name}")
        return await self._idempotency.once(
            call.caller().idempotency, lambda record: self._services.audit.record(act, partial(grant, record))
        )

    async def _asked(self, call: Call, text: str) -> tuple[AuthorizationRequest, OAuthClient]:
        """The request and its client; the redirect URI is the client's.

        Raises:
            RefusedError: INVALID_INPUT: the client must not be told by a redirect.
        """
        try:
            request = parse_request(text, resource=call.base_url() + RESOURCE_PATH)
            return request, await self._services.oauth_clients.client_of(request)
        except OAuthError as error:
            raise _refused(error) from error


def _refused(error: OAuthError) -> RefusedError:
    return RefusedError(Refusal(Code.INVALID_INPUT, f"oauth:{error.code.value}", error.description))
