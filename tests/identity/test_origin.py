"""Unsafe requests with a cookie must come from the server's own pages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.domain.access import ApiKeyPrincipal, WalletPrincipal
from sightline.identity.origin import check_origin, normalized_origin
from sightline.identity.refusals import FOREIGN_ORIGIN

OWN = {"https://sightline.example", "http://localhost:8080"}
WALLET = WalletPrincipal(
    session_id="00000000-0000-4000-8000-00000000000a",
    wallet_address="0x" + "ab" * 20,
    workspace_id=None,
    role=None,
    signed_in_at_ms=0,
    expires_at_ms=1,
)
KEY = ApiKeyPrincipal(workspace_id="w", key_id="k", scopes=frozenset())


@pytest.mark.parametrize(
    ("headers", "is_allowed"),
    [
        ({}, True),
        ({"origin": "https://sightline.example"}, True),
        ({"origin": "https://SIGHTLINE.example:443"}, True),
        ({"origin": "http://localhost:8080"}, True),
        ({"origin": "http://localhost"}, False),
        ({"origin": "http://sightline.example"}, False),
        ({"origin": "https://evil.sightline.example"}, False),
        ({"origin": "https://sightline.example.evil"}, False),
        ({"origin": "https://sightline.example@evil"}, False),
        ({"origin": "null"}, False),
        ({"origin": ""}, False),
        ({"origin": "https://[::1"}, False),
        ({"origin": "https://sightline.example:99999"}, False),
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"origin": "https://evil.example", "sec-fetch-site": "same-origin"}, False),
    ],
)
def test_a_cookie_request_is_judged_by_where_it_came_from(headers: dict[str, str], is_allowed: bool) -> None:
    assert check_origin(WALLET, "POST", headers, OWN) == (None if is_allowed else FOREIGN_ORIGIN)


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "get"])
def test_safe_methods_are_not_asked(method: str) -> None:
    assert check_origin(WALLET, method, {"origin": "https://evil.example"}, OWN) is None


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE", "PUT", "ANYTHING"])
def test_every_other_method_is(method: str) -> None:
    assert check_origin(WALLET, method, {"origin": "https://evil.example"}, OWN) == FOREIGN_ORIGIN


def test_a_websocket_opens_with_get_and_is_asked_all_the_same() -> None:
    evil = {"origin": "https://evil.example"}
    assert check_origin(WALLET, "GET", evil, OWN, is_websocket=True) == FOREIGN_ORIGIN


def test_keys_are_never_sent_by_a_browser_on_its_own() -> None:
    assert check_origin(KEY, "POST", {"origin": "https://evil.example"}, OWN) is None


@given(st.text())
def test_any_origin_is_read_without_an_error(origin: str) -> None:
    normalized_origin(origin)
