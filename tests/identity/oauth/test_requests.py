"""Authorization requests and redirect URIs: what is accepted, what is told to the client, and what never is."""

import re
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from sightline.domain.access import Scope
from sightline.identity.oauth.requests import (
    AGENT_SCOPES,
    AuthorizationRequest,
    OAuthCode,
    OAuthError,
    check_redirect_uri,
    matches,
    parse_request,
)

RESOURCE = "https://sightline.test/mcp"
FIELDS = {
    "response_type": "code",
    "client_id": "client",
    "redirect_uri": "http://127.0.0.1:3000/callback",
    "state": "a state",
    "code_challenge": "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
    "code_challenge_method": "S256",
    "resource": RESOURCE,
    "scope": "sessions:read sessions:create offline_access",
}


def a_request(**changes: str | None) -> AuthorizationRequest:
    fields = {name: value for name, value in (FIELDS | {"state": "state"} | changes).items() if value is not None}
    return parse_request(urlencode(fields), resource=RESOURCE)


def test_a_request_names_the_scopes_that_can_be_granted_and_keeps_its_state() -> None:
    request = a_request()
    assert request.error is None
    assert request.scopes == (Scope.SESSIONS_READ, Scope.SESSIONS_CREATE)
    assert a_request(scope=None).scopes == AGENT_SCOPES
    answer = urlsplit(request.granted_url("the-code", issuer="https://sightline.test"))
    assert answer.netloc == "127.0.0.1:3000"
    assert parse_qs(answer.query) == {"code": ["the-code"], "state": ["state"], "iss": ["https://sightline.test"]}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"response_type": "token"}, OAuthCode.UNSUPPORTED_RESPONSE_TYPE),
        ({"code_challenge": None}, OAuthCode.INVALID_REQUEST),
        ({"code_challenge_method": "plain"}, OAuthCode.INVALID_REQUEST),
        ({"code_challenge_method": None}, OAuthCode.INVALID_REQUEST),
        ({"code_challenge": "short"}, OAuthCode.INVALID_REQUEST),
        ({"resource": "https://other.test/mcp"}, OAuthCode.INVALID_TARGET),
        ({"scope": "sessions:operate webhooks:write"}, OAuthCode.INVALID_SCOPE),
        ({"state": "with space"}, OAuthCode.INVALID_REQUEST),
    ],
)
def test_the_client_is_told_of_a_wrong_request_by_its_redirect(changes: dict[str, str | None], code: OAuthCode) -> None:
    request = a_request(**changes)
    assert request.error is not None
    assert request.error.code is code
    told = parse_qs(urlsplit(request.refused_url(request.error, issuer="https://sightline.test")).query)
    assert told["error"] == [code.value]
    assert told["iss"] == ["https://sightline.test"]


@pytest.mark.parametrize("text", ["", "client_id=x", "redirect_uri=https://a.test/", urlencode(FIELDS) + "&scope=x"])
def test_a_request_without_a_place_to_answer_to_is_refused_here(text: str) -> None:
    with pytest.raises(OAuthError, match=re.escape("invalid_request")):
        parse_request(text, resource=RESOURCE)


@pytest.mark.parametrize(
    "uri",
    [
        "https://claude.ai/api/mcp/auth_callback",
        "http://localhost:6274/oauth/callback",
        "http://127.0.0.1/",
        "http://[::1]:9/cb?x=1",
        "cursor://anysphere.cursor-mcp/oauth/callback",
        "com.example.app:/callback",
    ],
)
def test_clients_of_the_web_of_this_machine_and_of_apps_can_register(uri: str) -> None:
    check_redirect_uri(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "http://example.com/cb",
        "http://127.0.0.1.example.com/cb",
        "javascript:alert(1)",
        "JavaScript://claude.ai/%0aalert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "blob:https://a.test/1",
        "https://user@evil.test/cb",
        "https:///cb",
        "https://a.test/cb#fragment",
        "https://a.test\\@evil.test/",
        "https://a.test:99999/",
        "//a.test/cb",
        "",
        "https://a.test/" + "x" * 400,
    ],
)
def test_a_redirect_uri_that_a_browser_would_run_or_strangers_could_read_is_refused(uri: str) -> None:
    with pytest.raises(OAuthError, match=re.escape("invalid_redirect_uri")):
        check_redirect_uri(uri)


@pytest.mark.parametrize(
    ("registered", "sent", "is_same"),
    [
        ("https://a.test/cb", "https://a.test/cb", True),
        ("https://a.test/cb", "https://a.test/cb/", False),
        ("https://a.test/cb", "https://a.test:443/cb", False),
        ("https://a.test/cb", "https://a.test/cb?x=1", False),
        ("http://127.0.0.1:1/cb", "http://127.0.0.1:65535/cb", True),
        ("http://localhost/cb", "http://localhost:3000/cb", True),
        ("http://[::1]/cb", "http://[::1]:3000/cb", True),
        ("http://127.0.0.1/cb", "http://localhost/cb", False),
        ("http://127.0.0.1/cb", "http://127.0.0.1:3000/other", False),
        ("http://127.0.0.1/cb", "https://127.0.0.1/cb", False),
        ("http://127.0.0.1/cb", "http://user@127.0.0.1:1/cb", False),
        ("http://127.0.0.1/cb", "http://127.0.0.1:1/cb#x", False),
        ("cursor://a/cb", "cursor://a:1/cb", False),
    ],
)
def test_a_redirect_uri_is_the_registered_one_but_for_the_port_on_this_machine(
    registered: str, sent: str, is_same: bool
) -> None:
    assert matches(registered, sent) is is_same
