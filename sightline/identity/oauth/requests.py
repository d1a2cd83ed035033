"""Authorization requests: what a client asks for, checked, and the redirects that answer it.

Sources: OAuth 2.1 (draft-ietf-oauth-v2-1), RFC 7636 (PKCE), RFC 8252 (native apps), RFC 8707 (resource),
RFC 9207 (iss).
"""

import ipaddress
import re
from enum import StrEnum, unique
from typing import Final, final
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from sightline.domain.access import Scope
from sightline.domain.value import Value

REQUEST_LENGTH_MAX: Final = 6_000
REDIRECT_LENGTH_MAX: Final = 400
_FIELDS_MAX: Final = 20
_STATE_LENGTH_MAX: Final = 1_024
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
_TEXT: Final = re.compile(r"[!-~]+", re.ASCII)
AGENT_SCOPES: Final = (Scope.SESSIONS_READ, Scope.SESSIONS_CREATE, Scope.PRICING_READ, Scope.WALLET_READ)
"""The scopes that a client can be granted: those of the tools of MCP. Keys of other scopes are minted by hand."""
_APP_SCHEMES: Final = frozenset({"cursor", "vscode", "vscode-insiders", "windsurf", "zed", "claude"})
"""Schemes of apps without a domain in them. Others must have a dot (RFC 8252, section 7.1), so that none is one that a
browser runs or reads, as `javascript` or `file`."""
_APP_SCHEME: Final = re.compile(r"[a-z][a-z0-9+-]*(\.[a-z0-9+-]+)+", re.ASCII)


@unique
class OAuthCode(StrEnum):
    """Error codes of RFC 6749, RFC 7009, RFC 7591 and RFC 8707."""

    INVALID_REQUEST = "invalid_request"
    INVALID_CLIENT = "invalid_client"
    INVALID_GRANT = "invalid_grant"
    INVALID_SCOPE = "invalid_scope"
    INVALID_TARGET = "invalid_target"
    INVALID_REDIRECT_URI = "invalid_redirect_uri"
    INVALID_CLIENT_METADATA = "invalid_client_metadata"
    UNSUPPORTED_GRANT_TYPE = "unsupported_grant_type"
    UNSUPPORTED_RESPONSE_TYPE = "unsupported_response_type"
    ACCESS_DENIED = "access_denied"


class OAuthError(Exception):
    """A request of a client that is refused. `description` tells its developer why, without secrets."""

    def __init__(self, code: OAuthCode, description: str) -> None:
        super().__init__(f"{code}: {description}")
        self.code = code
        self.description = description


@final
class AuthorizationRequest(Value, kw_only=True):
    """One request. `error` is an error that the client is told by a redirect."""

    client_id: str
    redirect_uri: str
    state: str | None
    challenge: str
    scopes: tuple[Scope, ...]
    resource: str
    error: OAuthError | None = None

    @property
    def redirect_host(self) -> str:
        """The host, or the app's scheme, that the answer goes to."""
        parts = urlsplit(self.redirect_uri)
        return parts.netloc if parts.scheme in ("http", "https") else f"{parts.scheme}:"

    @property
    def is_loopback(self) -> bool:
        """Whether the answer goes to a program on the member's own machine."""
        return _is_loopback(urlsplit(self.redirect_uri))

    def refused_url(self, error: OAuthError, *, issuer: str) -> str:
        """The redirect that tells the client an error."""
        return self._redirect({"error": error.code.value, "error_description": error.description}, issuer)

    def granted_url(self, code: str, *, issuer: str) -> str:
        """The redirect that gives the client its code."""
        return self._redirect({"code": code}, issuer)

    def _redirect(self, fields: dict[str, str], issuer: str) -> str:
        state = {} if self.state is None else {"state": self.state}
        parts = urlsplit(self.redirect_uri)
        query = "&".join(filter(None, (parts.query, urlencode(fields | state | {"iss": issuer}))))
        return urlunsplit(parts._replace(query=query))


def parse_fields(text: str) -> dict[str, str]:
    """Read a form or query. Fields without a value count as left out (RFC 6749, section 3.1).

    Raises:
        OAuthError: It is malformed, or names a field twice.
    """
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_FIELDS_MAX)
    except ValueError as error:
        raise OAuthError(OAuthCode.INVALID_REQUEST, "The form is malformed or has too many fields") from error
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise OAuthError(OAuthCode.INVALID_REQUEST, "A field is named twice")
    if any("\x00" in value for value in fields.values()):
        raise OAuthError(OAuthCode.INVALID_REQUEST, "A field has a NUL character")
    return {name: value for name, value in fields.items() if value}


def parse_request(text: str, *, resource: str) -> AuthorizationRequest:
    """Read the query of an authorization request.

    Args:
        resource: The resource that tokens are given for.

    Raises:
        OAuthError: There is no client or no redirect URI to tell an error to.
    """
    if len(text) > REQUEST_LENGTH_MAX:
        raise OAuthError(OAuthCode.INVALID_REQUEST, f"The request is longer than {REQUEST_LENGTH_MAX} characters")
    fields = parse_fields(text)
    for name in ("client_id", "redirect_uri"):
        if name not in fields:
            raise OAuthError(OAuthCode.INVALID_REQUEST, f"{name} is missing")
    error: OAuthError | None = None
    scopes: tuple[Scope, ...] = ()
    state = fields.get("state")
    if state is not None and (len(state) > _STATE_LENGTH_MAX or not _TEXT.fullmatch(state)):
        state, error = None, OAuthError(OAuthCode.INVALID_REQUEST, "state must be at most 1024 visible characters")
    try:
        _check(fields, resource)
        scopes = parse_requested(fields.get("scope"))
    except OAuthError as found:
        error = error or found
    return AuthorizationRequest(
        client_id=fields["client_id"],
        redirect_uri=fields["redirect_uri"],
        state=state,
        challenge=fields.get("code_challenge", ""),
        scopes=scopes,
        resource=resource,
        error=error,
    )


def _check(fields: dict[str, str], resource: str) -> None:
    if fields.get("response_type") != "code":
        raise OAuthError(OAuthCode.UNSUPPORTED_RESPONSE_TYPE, "response_type must be code")
    if fields.get("code_challenge_method") != "S256" or not _CHALLENGE.fullmatch(fields.get("code_challenge", "")):
        raise OAuthError(
            OAuthCode.INVALID_REQUEST, "Send a code_challenge of 43 characters and code_challenge_method=S256"
        )
    check_resource(fields.get("resource"), resource)


def check_resource(sent: str | None, resource: str) -> None:
    """Check the `resource` of a request; left out, it is this server's.

    Raises:
        OAuthError: It is another one.
    """
    if sent is not None and sent.removesuffix("/") != resource:
        raise OAuthError(OAuthCode.INVALID_TARGET, f"resource must be {resource}")


def parse_requested(scope: str | None) -> tuple[Scope, ...]:
    """The scopes that can be granted among those asked for; all of them if none is named.

    Raises:
        OAuthError: None of the named scopes can be granted.
    """
    if scope is None:
        return AGENT_SCOPES
    asked = set(scope.split(" "))
    found = tuple(each for each in AGENT_SCOPES if each.value in asked)
    if not found:
        raise OAuthError(OAuthCode.INVALID_SCOPE, f"scope must name some of {' '.join(AGENT_SCOPES)}")
    return found


def check_redirect_uri(uri: str) -> None:
    """Check a redirect URI that a client registers: https, http to the own machine, or the scheme of an app.

    Raises:
        OAuthError: It is not one of them.
    """
    if len(uri) > REDIRECT_LENGTH_MAX or not _TEXT.fullmatch(uri) or "#" in uri or "\\" in uri:
        raise _bad_redirect(f"must be at most {REDIRECT_LENGTH_MAX} visible characters without # and backslash")
    parts = _split(uri)
    scheme = parts.scheme.lower()
    if scheme in ("http", "https"):
        if parts.username is not None or parts.password is not None or not parts.hostname:
            raise _bad_redirect("must have a host, and neither user name nor password")
        if scheme == "http" and not _is_loopback(parts):
            raise _bad_redirect("must be https unless it names localhost, 127.0.0.1 or [::1]")
    elif scheme not in _APP_SCHEMES and not _APP_SCHEME.fullmatch(scheme):
        raise _bad_redirect("must be https, http to this machine, or a reverse domain name as scheme")


def matches(registered: str, sent: str) -> bool:
    """Whether a redirect URI is the registered one. The port of a loopback URI is free (RFC 8252, section 7.3)."""
    if registered == sent:
        return True
    try:
        ours, theirs = _split(registered), _split(sent)
    except OAuthError:
        return False
    if ours.scheme != "http" or not _is_loopback(ours) or theirs.username is not None:
        return False
    return _without_port(ours) == _without_port(theirs) and sent == theirs.geturl()


def _without_port(parts: SplitResult) -> tuple[str, str | None, str, str, str]:
    return parts.scheme, parts.hostname, parts.path, parts.query, parts.fragment


def _is_loopback(parts: SplitResult) -> bool:
    if parts.scheme != "http":
        return False
    if parts.hostname == "localhost":
        return True
    try:
        return ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


def _split(uri: str) -> SplitResult:
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError as error:
        raise _bad_redirect("is no URI") from error
    return parts


def _bad_redirect(why: str) -> OAuthError:
    return OAuthError(OAuthCode.INVALID_REDIRECT_URI, f"A redirect URI {why}")
