"""The console is where a member allows a program: the official MCP client signs in, buys a view, and is turned away."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.console.oauth.host import AgentHost, an_agent_host, text_of
from tests.console.people import ConsoleServer, a_tab, add_funds, in_trio, sign_up
from tests.console.review import Review
from tests.e2e.server import Tenant, a_tenant, go_online
from tests.house.test_readme import device_process

HARBOUR = (53.541_230, 9.984_110)


@contextmanager
def a_camera(url: str, folder: Path) -> Iterator[None]:
    """A device that films at the harbour."""

    async def operator() -> Tenant:
        tenant = await a_tenant(url, "SUPPLIER", "harbour-camera")
        await go_online(url, tenant, HARBOUR)
        return tenant

    device = device_process(url, in_trio(operator).key, folder / "device.log", HARBOUR)
    try:
        yield
    finally:
        device.terminate()
        device.wait(20)


def test_a_program_signs_in_through_the_console_buys_a_view_and_is_refused_after_revocation(
    browser: Browser, server: ConsoleServer, tmp_path: Path
) -> None:
    review = Review()
    with (
        a_camera(server.url, tmp_path),
        a_tab(browser, server.url, place=HARBOUR) as tab,
        an_agent_host(server.url) as host,
    ):
        sign_up(tab, "Harbour Watch", "CONSUMER")
        add_funds(tab)
        tab.page.goto(host.browse())
        tab.shows("h1", "Allow Harbour agent to act for you?")
        tab.shows("#answer-host", host.redirect_uri.removeprefix("http://").removesuffix("/callback"))
        expect(tab.page.get_by_label("Per session (USDC)")).to_have_value("2.00")
        review.look(tab, "authorize")
        tab.click("#allow")
        tab.shows("#back")
        buy_a_view(host)

        tab.go("team")
        tab.shows(".rows li", "Harbour agent")
        tab.shows(".rows li", "access by sign-in, until")
        review.look(tab, "team-grant")
        tab.click(".rows li button:has-text('Revoke')")
        tab.click(".rows li .confirm button.danger")
        tab.shows(".rows li", "stops in")
        tokens = host.kept.tokens
        assert tokens is not None
        again = refused_and_asked_again(host)
        tab.page.goto(again)
        tab.click("#deny")
        tab.shows("#back")
        assert "access_denied" in tab.page.url
        refused = httpx.get(f"{server.url}/api/v1/me", headers={"authorization": f"Bearer {tokens.access_token}"})
        assert (refused.status_code, refused.json()["code"]) == (401, "REVOKED_API_KEY")
        form = {"grant_type": "refresh_token", "refresh_token": tokens.refresh_token}
        assert host.kept.client is not None
        told = httpx.post(f"{server.url}/oauth/token", data=form | {"client_id": host.kept.client.client_id})
        assert (told.status_code, told.json()["error"]) == (400, "invalid_grant")
        tab.problems = [each for each in tab.problems if f"foreign request {host.redirect_uri}" not in each]
        assert review.wrong + tab.problems == []


def buy_a_view(host: AgentHost) -> None:
    place = {"lat": HARBOUR[0], "lng": HARBOUR[1], "seconds": 60}
    host.call("check_place", **place)
    quote = text_of(host.result())
    host.call("request_view", **place, quote_id=quote["quoteId"], max_charge_usdc="1")
    session = text_of(host.result())
    assert session["state"] == "LIVE"
    host.call("end_session", session_id=session["sessionId"])
    assert text_of(host.result())["state"] == "ENDED"


def refused_and_asked_again(host: AgentHost) -> str:
    """Call tools until the host asks for a new sign-in.

    A call that has passed the check of /mcp is refused by its tool.
    """
    while True:
        host.call("wallet")
        said = host.next()
        if isinstance(said, str):
            return said


@pytest.mark.nightly(
    "tests/console/oauth/test_authorize.py::test_a_program_signs_in_through_the_console_buys_a_view_and_is_refused_after_revocation"
)
def test_a_request_for_access_says_what_is_wrong_and_warns_of_other_hosts(
    browser: Browser, server: ConsoleServer
) -> None:
    review = Review()
    with a_tab(browser, server.url, place=(1.5, 1.5)) as tab:
        tab.allowed = (r"400 \(Bad Request\) \S*/authorization-request",)

        def a_request(**changes: str) -> str:
            metadata = {"client_name": "<b>Web</b> app", "redirect_uris": ["https://app.example/cb?x=1"]}
            client = httpx.post(f"{server.url}/oauth/register", json=metadata).json()
            fields = {
                "response_type": "code",
                "client_id": client["client_id"],
                "redirect_uri": "https://app.example/cb?x=1",
                "code_challenge": "c" * 43,
                "code_challenge_method": "S256",
                "scope": "sessions:read",
            }
            return f"{server.url}/oauth/authorize?{urlencode(fields | changes)}"

        tab.page.goto(a_request())
        tab.click("#test-wallet")  # not signed in: the start, and back here afterwards
        tab.page.fill("#workspace-name", "Reader")
        tab.page.select_option("#purpose", "CONSUMER")
        tab.click("#create-workspace")
        tab.shows("h1", "Allow <b>Web</b> app to act for you?")
        tab.shows(".banner.warn", "Whoever runs app.example gets the access")
        expect(tab.page.get_by_label("Per session (USDC)")).to_have_count(0)
        review.look(tab, "authorize-host")
        tab.page.goto(a_request(redirect_uri="https://evil.example/cb"))
        tab.shows("h1", "This request for access is wrong")
        review.look(tab, "authorize-wrong")
        tab.page.goto(a_request(code_challenge_method="plain"))
        tab.shows("main button", "Back to app.example")
        assert review.wrong + tab.problems == []
