"""Team: keys with spending limits, members, and webhooks that are turned off and on; limits that the chain holds."""

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest
from eth_account import Account
from playwright.sync_api import Browser, expect

from tests.console.people import (
    PATIENCE_MS,
    PHONE,
    ConsoleServer,
    Tab,
    a_tab,
    add_funds,
    camera_link,
    come_online,
    request_view,
    sign_up,
)
from tests.console.review import Review

TOKYO = (35.689500, 139.691710)
OSAKA = (34.693740, 135.502180)
KYOTO = (35.011640, 135.768030)


class Receiver(BaseHTTPRequestHandler):
    """Answers 200 to each webhook."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name of the base class
        """Print nothing."""


@contextmanager
def a_receiver() -> Iterator[str]:
    """Run a receiver of webhooks; returns its URL."""
    receiver = HTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=receiver.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{receiver.server_port}/hook"
    finally:
        receiver.shutdown()
        thread.join()
        receiver.server_close()


def test_team_makes_limited_keys_members_and_webhooks(browser: Browser, server: ConsoleServer):
    review = Review()
    with a_tab(browser, server.url, place=TOKYO) as tab, a_receiver() as receiver:
        tab.allowed = (r"400 \(Bad Request\) \S*/webhooks",)
        sign_up(tab, "Harbour Watch", "CONSUMER")
        add_funds(tab)
        tab.go("team")
        tab.click("#new-key")
        tab.page.fill("#key-label", "Vision agent")
        expect(tab.page.get_by_label("Per session (USDC)")).to_have_value("2.00")
        expect(tab.page.get_by_label("Per day (USDC)")).to_have_value("10.00")
        tab.page.get_by_label("Per session (USDC)").fill("0.000001")
        review.look(tab, "team-new-key")
        tab.click("#mint")
        tab.shows(".rows li", "at most 0.000001 USDC per session")
        key = tab.page.input_value("#minted")
        wish = {"lat": TOKYO[0], "lng": TOKYO[1], "maxDurationSeconds": 300}
        answer = httpx.post(f"{tab.url}/api/v1/sessions", json=wish, headers={"authorization": f"Bearer {key}"})
        assert (answer.status_code, answer.json()["detail"]) == (402, "apiKey:spendLimit")
        assert "0.000001 USDC" in answer.json()["message"]

        friend = Account.create().address
        tab.page.fill("#member", friend)
        tab.click("button:has-text('Invite')")
        tab.shows(f"code[title='{friend.lower()}' i]")
        tab.shows(".badge.invited")

        tab.click("#new-webhook")
        tab.page.fill("#webhook-url", "https://10.0.0.1/hook")
        tab.click("#create-webhook")
        tab.shows(".field.wrong .hint.bad", "private address")
        expect(tab.page.locator(".notice.bad")).to_have_count(0)
        tab.page.fill("#webhook-url", receiver)
        review.look(tab, "team-new-webhook")
        tab.click("#create-webhook")
        expect(tab.page.locator("#webhook-secret")).to_have_value(re.compile("^whsec_"))
        tab.click(".webhook button:has-text('Deliveries')")
        tab.click(".webhook button:has-text('Send a test event')")
        tab.shows("[data-delivery=DELIVERED]", "webhook.ping")
        first = tab.page.input_value("#webhook-secret")
        tab.click("[data-delivery=DELIVERED] button:has-text('Send again')")
        tab.shows("[data-delivery]", "attempt 2")
        tab.click(".webhook button:has-text('New secret')")
        expect(tab.page.locator("#webhook-secret")).not_to_have_value(first)
        tab.shows(".webhook", "previous secret")
        tab.click(".webhook button:has-text('Turn off')")
        tab.shows(".webhook .bad")
        tab.click(".rows .danger:has-text('Revoke')")
        tab.shows(".confirm p", "Vision agent")
        review.look(tab, "team-revoke")
        tab.page.keyboard.press("Escape")
        expect(tab.page.locator(".confirm p")).to_have_count(0)
        tab.click(".rows .danger:has-text('Revoke')")
        tab.click(".confirm .danger:has-text('Vision agent')")
        tab.shows(".rows .bad", "stops in")
        review.look(tab, "team")
        tab.click(".rows button:has-text('Keep it')")
        expect(tab.page.locator(".rows .danger:has-text('Revoke')")).to_have_count(1)
        expect(tab.page.locator(".rows .bad:has-text('stops in')")).to_have_count(0)
        tab.shows(".notice", "The key was kept")
        tab.click(".webhook button:has-text('Turn on')")
        expect(tab.page.locator(".webhook .bad")).to_have_count(0)
        tab.click(".webhook button:has-text('Send a test event')")
        expect(tab.page.locator("[data-delivery=DELIVERED]")).to_have_count(2)
        review.done(tab)


@pytest.mark.nightly("tests/console/test_team.py::test_team_makes_limited_keys_members_and_webhooks")
def test_team_shows_what_another_program_changed_and_why_a_webhook_does_not_arrive(
    browser: Browser, server: ConsoleServer
):
    with a_tab(browser, server.url, place=KYOTO) as tab, socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        sign_up(tab, "Kyoto Watch", "CONSUMER")
        tab.go("team")
        tab.shows("#new-key")
        me = tab.page.request.get(f"{tab.url}/api/v1/me").json()["data"]
        key = {"label": "From elsewhere", "environment": "TEST", "scopes": ["sessions:read"]}
        made = tab.page.request.post(f"{tab.url}/api/v1/workspaces/{me['workspaceId']}/api-keys", data=key)
        assert made.ok
        expect(tab.page.locator(".rows li:has-text('From elsewhere')")).to_have_count(1, timeout=2 * PATIENCE_MS)

        tab.click("#new-webhook")
        tab.page.fill("#webhook-url", f"http://127.0.0.1:{reserved.getsockname()[1]}/hook")
        tab.click("#create-webhook")
        tab.click(".webhook button:has-text('Deliveries')")
        tab.click(".webhook button:has-text('Send a test event')")
        tab.shows("[data-delivery]", "no connection")


FORGET_CHOICE = """() => {
  for (const name of Object.keys(localStorage)) if (/workspace[.]0x/.test(name)) localStorage.removeItem(name);
}"""


def address_of(tab: Tab) -> str:
    """The wallet that is signed in."""
    address: str = tab.page.evaluate(
        "fetch('/api/v1/me').then(each => each.json()).then(each => each.data.walletAddress)"
    )
    return address


def sign_in_again(tab: Tab) -> None:
    tab.click(".menu summary")
    tab.click(".menu button:has-text('Sign out')")
    tab.click("#test-wallet")


@pytest.mark.nightly("tests/console/test_team.py::test_team_makes_limited_keys_members_and_webhooks")
def test_an_invited_wallet_decides_and_chooses_between_its_workspaces(browser: Browser, server: ConsoleServer):
    review = Review()
    with a_tab(browser, server.url, place=TOKYO) as owner, a_tab(browser, server.url, place=TOKYO) as guest:
        sign_up(owner, "Harbour Watch", "both")
        sign_up(guest, "Pier Nine", "both")
        payee, mine = address_of(owner), address_of(guest)
        owner.go("team")
        owner.page.fill("#member", mine)
        owner.page.get_by_label("Role").select_option("ADMIN")
        owner.click("button:has-text('Invite')")
        owner.shows(".rows .invited", "open until")
        review.look(owner, "team-invited")

        sign_in_again(guest)
        guest.shows("summary", "Pier Nine")
        guest.go("operate")
        guest.shows("p.payee", mine)
        guest.shows("nav .count", "1")
        guest.go("team")
        guest.shows("#invitations", payee)
        review.look(guest, "team-invitation")
        guest.click("#invitations button:has-text('Accept')")
        guest.shows("#workspaces", "Harbour Watch")
        guest.shows("summary", "Pier Nine")
        expect(owner.page.locator(".badge.invited")).to_have_count(1)  # until it reads again
        owner.page.reload()
        owner.shows("#member")
        expect(owner.page.locator(".badge.invited")).to_have_count(0)

        sign_in_again(guest)
        guest.shows("summary", "Pier Nine")  # the choice of this browser
        guest.page.evaluate(FORGET_CHOICE)
        sign_in_again(guest)
        guest.shows("#workspaces", "Harbour Watch")
        guest.shows("summary", "No workspace")
        review.look(guest, "choose-workspace")
        guest.click("#workspaces li:has-text('Harbour Watch') button")
        guest.shows("summary", "Harbour Watch")
        guest.go("operate")
        guest.shows(".banner code.payee", payee)
        review.look(guest, "operate-for-another")
        guest.go("team")
        guest.click("#new-key")
        guest.page.get_by_role("checkbox", name=re.compile("^film ")).check()
        guest.shows(".panel code.payee", payee)
        review.done(guest)
        assert owner.problems == []


def test_a_viewer_watches_and_is_offered_nothing_that_is_refused(browser: Browser, server: ConsoleServer):
    url = server.url
    with (
        a_tab(browser, url, place=OSAKA) as owner,
        a_tab(browser, url, place=OSAKA) as guest,
        a_tab(browser, url, place=OSAKA) as operator,
        a_tab(browser, url, PHONE, place=OSAKA) as phone,
    ):
        sign_up(owner, "Harbour Watch", "CONSUMER")
        add_funds(owner)
        sign_up(guest, "Pier Nine", "CONSUMER")
        owner.go("team")
        owner.page.fill("#member", address_of(guest))
        owner.click("button:has-text('Invite')")
        owner.shows(".rows .invited", "open until")
        sign_up(operator, "Pier Cams", "SUPPLIER")
        come_online(phone, camera_link(operator))
        session_id = request_view(owner, "The castle")
        phone.click("#start")
        owner.shows(".badge.live")
        owner.shows("#tell")
        owner.shows("#share")

        guest.go("team")
        guest.page.reload()
        guest.click("#invitations button:has-text('Accept')")
        guest.click("#workspaces li:has-text('Harbour Watch') button")
        guest.shows("summary", "Harbour Watch")
        guest.go(f"watch/{session_id}")
        guest.picture("playing", within_ms=PATIENCE_MS)
        guest.shows("#cost")
        for offered in ("#tell", "#end", "#extend", "#share"):
            expect(guest.page.locator(offered)).to_have_count(0)
        guest.go("buy")
        guest.page.fill("#place", f"{OSAKA[0]}, {OSAKA[1]}")
        guest.shows("#reads-only", "reads only")
        expect(guest.page.locator("#request")).to_be_disabled()
        assert guest.problems == []


def test_the_wallet_sets_limits_on_the_chain(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url, place=TOKYO) as tab:
        sign_up(tab, "Harbour Watch", "CONSUMER")
        tab.click("#faucet")
        tab.shows("#approve")
        tab.go("wallet")
        hint = tab.page.locator("#set-limits-hint")
        expect(tab.page.locator("#set-limits")).to_have_attribute("aria-describedby", "set-limits-hint")
        tab.page.get_by_label("Per day").fill("20")
        expect(hint).to_have_text("“Per session” is missing. Both limits are set together.")
        expect(tab.page.locator("#set-limits")).to_be_disabled()
        tab.page.get_by_label("Per day").fill("")
        tab.page.get_by_label("Per session").fill("1.50")
        expect(hint).to_have_text("“Per day” is missing. Both limits are set together.")
        tab.page.get_by_label("Per day").fill("20")
        tab.click("button:has-text('Set both limits')")
        tab.shows("form", re.compile(r"1\.50\sUSDC.*20\.00\sUSDC", re.DOTALL))
        expect(hint).to_have_text("An empty field keeps its limit.")
        expect(tab.page.locator("#set-limits")).to_be_disabled()
        tab.page.get_by_label("Per session").fill("30")
        expect(hint).to_contain_text("the limit per day is the one that counts")
        tab.click("#set-limits")
        tab.shows("form", re.compile(r"30\.00\sUSDC.*20\.00\sUSDC", re.DOTALL))
        expect(hint).to_contain_text("the limit per day is the one that counts")
        tab.click("#clear-limits")
        tab.shows("form", re.compile(r"No limit.*No limit", re.DOTALL))
        expect(tab.page.locator("#clear-limits")).to_have_count(0)
        tab.page.fill("#allowance", "7.5")
        tab.click("button:text-is('Set')")
        tab.shows("form", "Now 7.50 USDC")
        assert tab.problems == []
