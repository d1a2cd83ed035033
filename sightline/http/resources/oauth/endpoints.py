"""OAuth for clients of MCP: discovery, registration, tokens. Errors have the form of RFC 6749.

Sources: RFC 9728 (protected resource), RFC 8414 (authorization server), RFC 7591 (registration), RFC 6749 and OAuth
2.1, RFC 7009 (revocation).
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, final

import orjson

from sightline.http.budgets import RateClass
from sightline.http.pipeline.call import Call, Raw, TextHeaders
from sightline.http.pipeline.errors import ApiError
from sightline.http.pipeline.json_body import parse_json
from sightline.http.pipeline.routes import Route
from sightline.http.services import Services
from sightline.identity.oauth.grants import TokenPair
from sightline.identity.oauth.requests import AGENT_SCOPES, OAuthCode, OAuthError, parse_fields

TAG: Final = "oauth"
RESOURCE_PATH: Final = "/mcp"
PROTECTED_RESOURCE: Final = "/.well-known/oauth-protected-resource"
FORM: Final = "application/x-www-form-urlencoded"
_BODY_BYTES_MAX: Final = 16_384
_NO_STORE: Final = ("cache-control", "no-store")
_JSON: Final = ("content-type", "application/json")


@final
class OAuthResources:
    """/.well-known, and /oauth."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @Route("GET", PROTECTED_RESOURCE, "getProtectedResource", TAG, "Who gives access to /mcp", is_documented=False)
    @Route(
        "GET",
        PROTECTED_RESOURCE + RESOURCE_PATH,
        "getProtectedResourceOfPath",
        TAG,
        "Who gives access to /mcp",
        is_documented=False,
    )
    async def resource(self, call: Call) -> Raw:
        """The metadata of the resource /mcp (RFC 9728)."""
        base = call.base_url()
        return _json(
            {
                "resource": base + RESOURCE_PATH,
                "authorization_servers": [base],
                "scopes_supported": list(AGENT_SCOPES),
                "bearer_methods_supported": ["header"],
                "resource_name": "Sightline",
            }
        )

    @Route(
        "GET",
        "/.well-known/oauth-authorization-server",
        "getAuthorizationServer",
        TAG,
        "How to ask for access",
        is_documented=False,
    )
    async def server(self, call: Call) -> Raw:
        """The metadata of the authorization server (RFC 8414)."""
        base = call.base_url()
        return _json(
            {
                "issuer": base,
                "authorization_endpoint": f"{base}/oauth/authorize",
                "token_endpoint": f"{base}/oauth/token",
                "registration_endpoint": f"{base}/oauth/register",
                "revocation_endpoint": f"{base}/oauth/revoke",
                "scopes_supported": list(AGENT_SCOPES),
                "response_types_supported": ["code"],
                "response_modes_supported": ["query"],
                "grant_types_supported": ["authorization_code", "refresh_token"],
                "token_endpoint_auth_methods_supported": ["none"],
                "revocation_endpoint_auth_methods_supported": ["none"],
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": True,
                "client_id_metadata_document_supported": True,
            }
        )

    @Route("GET", "/oauth/authorize", "authorizeClient", TAG, "Lead a browser to the consent", is_documented=False)
    async def authorize(self, call: Call) -> Raw:
        """Lead to the page of the console that checks the request and asks the member.

        The request stays in the fragment: it is no secret, and the page is the same for all.
        """
        query = call.query_string.decode("ascii", "replace")
        return Raw(302, (("location", f"/console/#/authorize?{query}"), _NO_STORE))

    @Route(
        "POST",
        "/oauth/register",
        "registerClient",
        TAG,
        "Register a client",
        rate=RateClass.AUTH,
        raw_body=("application/json",),
        is_oauth=True,
        checks_origin=False,
        is_documented=False,
    )
    async def register(self, call: Call) -> Raw:
        """Register (RFC 7591). Clients are public: they get no secret."""

        async def register() -> Raw:
            _check_size(call.raw_body)
            try:
                metadata = parse_json(call.raw_body)
            except ApiError as error:
                raise OAuthError(OAuthCode.INVALID_CLIENT_METADATA, "The body is not valid JSON") from error
            if not isinstance(metadata, dict):
                raise OAuthError(OAuthCode.INVALID_CLIENT_METADATA, "The body must be an object")
            client = self._services.oauth_clients.register(metadata)
            application = metadata.get("application_type")
            return _json(
                {
                    "client_id": client.client_id,
                    "client_id_issued_at": self._services.clock.now_ms() // 1_000,
                    "client_name": client.name,
                    "redirect_uris": list(client.redirect_uris),
                    "grant_types": ["authorization_code", "refresh_token"],
                    "response_types": ["code"],
                    "token_endpoint_auth_method": "none",
                    "scope": " ".join(AGENT_SCOPES),
                    "application_type": application if application in ("native", "web") else "native",
                },
                status=201,
                headers=(_NO_STORE,),
            )

        return await _told(register)

    @Route(
        "POST",
        "/oauth/token",
        "issueTokens",
        TAG,
        "Exchange a code or a refresh token",
        rate=RateClass.AUTH,
        raw_body=(FORM,),
        is_oauth=True,
        checks_origin=False,
        is_documented=False,
    )
    async def token(self, call: Call) -> Raw:
        """Exchange."""

        async def exchange() -> Raw:
            fields = _form(call.raw_body)
            match _needed(fields, "grant_type"):
                case "authorization_code":
                    pair = await self._services.grants.exchange(
                        _needed(fields, "code"),
                        client_id=_needed(fields, "client_id"),
                        redirect_uri=_needed(fields, "redirect_uri"),
                        verifier=_needed(fields, "code_verifier"),
                        resource=fields.get("resource"),
                    )
                case "refresh_token":
                    pair = await self._services.grants.refresh(
                        _needed(fields, "refresh_token"), client_id=_needed(fields, "client_id")
                    )
                case other:
                    raise OAuthError(
                        OAuthCode.UNSUPPORTED_GRANT_TYPE,
                        f"grant_type must be authorization_code or refresh_token, not {other[:40]!a}",
                    )
            return _json(_pair_json(pair), headers=(_NO_STORE,))

        return await _told(exchange)

    @Route(
        "POST",
        "/oauth/revoke",
        "revokeTokens",
        TAG,
        "Give access back",
        rate=RateClass.AUTH,
        raw_body=(FORM,),
        is_oauth=True,
        checks_origin=False,
        is_documented=False,
    )
    async def revoke(self, call: Call) -> Raw:
        """End the grant of a token (RFC 7009). The answer does not say whether there was one."""

        async def revoke() -> Raw:
            fields = _form(call.raw_body)
            await self._services.grants.revoke(_needed(fields, "token"), client_id=_needed(fields, "client_id"))
            return _json({}, headers=(_NO_STORE,))

        return await _told(revoke)


async def _told(work: Callable[[], Awaitable[Raw]]) -> Raw:
    """Answer a refused request in the form of RFC 6749, section 5.2."""
    try:
        return await work()
    except OAuthError as error:
        body = {"error": error.code.value, "error_description": error.description}
        return _json(body, status=400, headers=(_NO_STORE,))


def _form(body: bytes) -> dict[str, str]:
    _check_size(body)
    try:
        return parse_fields(body.decode("ascii"))
    except UnicodeDecodeError as error:
        raise OAuthError(OAuthCode.INVALID_REQUEST, "The form is not ASCII") from error


def _check_size(body: bytes) -> None:
    if len(body) > _BODY_BYTES_MAX:
        raise OAuthError(OAuthCode.INVALID_REQUEST, f"The body is longer than {_BODY_BYTES_MAX} bytes")


def _needed(fields: dict[str, str], name: str) -> str:
    value = fields.get(name)
    if value is None:
        raise OAuthError(OAuthCode.INVALID_REQUEST, f"{name} is missing")
    return value


def _pair_json(pair: TokenPair) -> dict[str, object]:
    return {
        "access_token": pair.access_token,
        "token_type": "Bearer",
        "expires_in": pair.expires_in_s,
        "refresh_token": pair.refresh_token,
        "scope": " ".join(pair.scopes),
    }


def _json(value: Mapping[str, object], *, status: int = 200, headers: TextHeaders = ()) -> Raw:
    return Raw(status, (_JSON, *headers), orjson.dumps(value))
