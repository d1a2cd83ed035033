"""What each side reads of what the other did: a decline, a suspension, a view that is already filmed, who ended it."""

import re

import httpx
import pytest
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
    decline,
    end_view,
    request_view,
    sign_up,
)
from tests.console.review import Review

TAMPERE, BERGEN, GRAZ, LINZ = (61.498, 23.760), (60.391262, 5.322054), (47.070714, 15.439504), (48.306940, 14.285830)
WELS = (48.157546, 14.022640)
WORKSPACE = "fetch('/api/v1/me').then((answer) => answer.json()).then((body) => body.data.workspaceId)"


def decide(server: ConsoleServer, workspace_id: str, what: str) -> None:
    """Suspend a workspace, or lift that."""
    answer = httpx.post(
        f"{server.internal_url}/internal/admin/workspaces/{workspace_id}/{what}",
        json={"operator": "Ada", "reason": "a complaint"},
        headers={"authorization": f"Bearer {server.internal_token}"},
    )
    assert answer.status_code == 200, answer.text


def refund(server: ConsoleServer, session_id: str, micro: int) -> None:
    answer = httpx.post(
        f"{server.internal_url}/internal/admin/sessions/{session_id}/refund",
        json={"operator": "Ada", "reason": "a complaint", "amountMicroUsdc": str(micro)},
        headers={"authorization": f"Bearer {server.internal_token}"},
        timeout=PATIENCE_MS / 1000,
    )
    assert answer.json()["data"]["state"] == "CONFIRMED", answer.text


def figure(tab: Tab, name: str) -> float:
    """The amount in the row of a list of facts."""
    row = tab.page.locator(".facts > div", has=tab.page.locator("dt", has_text=re.compile(name)))
    return float(row.locator("dd").first.inner_text().split()[0])


def test_a_consumer_reads_that_the_operator_declined_and_the_name_of_the_place(browser: Browser, server: ConsoleServer):
    review = Review()
    with a_tab(browser, server.url, place=TAMPERE) as consumer, a_tab(browser, server.url) as operator:
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        add_funds(consumer)
        sign_up(operator, "Pier Cams", "SUPPLIER")
        with a_tab(browser, server.url, PHONE, place=TAMPERE) as phone:
            come_online(phone, camera_link(operator))
            consumer.go("buy")
            consumer.page.fill("#place", "Tampere")
            consumer.page.press("#place", "Enter")
            consumer.page.fill("#instructions", "The rapids")
            consumer.click("#request:not([disabled])")
            consumer.shows(".badge.assigned")
            expect(consumer.page.locator("#reopened")).to_have_count(0)
            decline(phone)
            consumer.shows("#reopened", "The operator declined. The request is open for others")
            consumer.page.reload()
            consumer.shows("#reopened", "The operator declined.")
            stage, cancel = (consumer.page.locator(each).bounding_box() for each in (".stage", "#cancel"))
            assert stage is not None
            assert cancel is not None
            assert cancel["y"] + cancel["height"] <= stage["y"] + stage["height"], "nothing is cut off"
            review.look(consumer, "watch-declined")
            consumer.shows("h1", re.compile("^Tampere,"))
            consumer.shows(".lead", re.compile(r"^61\.\d+, 23\.\d+, within"))
            consumer.go("sessions")
            consumer.shows(".list-row small", re.compile(r"^Tampere,.* · 61\.\d+, 23\.\d+$"))
            review.look(consumer, "sessions-named")
            consumer.shows(".running", "Tampere")
            consumer.click(".running .danger")
            expect(consumer.page.locator(".running")).to_have_count(0)
        review.done(consumer, operator)


@pytest.mark.nightly("tests/admin/test_administration.py::test_a_suspended_workspace_is_refused_and_its_sessions_end")
def test_the_camera_of_a_suspended_operator_says_so_and_never_just_that_it_is_offline(
    browser: Browser, server: ConsoleServer
):
    review = Review()
    with a_tab(browser, server.url, place=BERGEN) as operator, a_tab(browser, server.url, PHONE, place=BERGEN) as phone:
        for tab in (operator, phone):
            tab.allowed = (r"403 ",)
        sign_up(operator, "Pier Cams", "SUPPLIER")
        workspace_id = operator.page.evaluate(WORKSPACE)
        link = camera_link(operator)
        come_online(phone, link)
        phone.page.evaluate("""() => {
          const badge = document.querySelector(".page-head .badge");
          window.shown = [];
          new MutationObserver(() => shown.push(document.querySelector(".page-head .badge").textContent))
            .observe(badge.parentNode, { childList: true, subtree: true, characterData: true });
        }""")
        operator.shows(".badge.online")
        decide(server, workspace_id, "suspend")
        phone.shows(".badge.suspended", "Suspended")
        phone.shows(".banner.bad", "The administrators of this service stopped it.")
        expect(phone.page.locator("#go-online")).to_have_count(0)
        badges = phone.page.evaluate("shown")
        assert badges[-1] == "Suspended"
        assert not [each for each in badges if "ffline" in each]
        review.look(phone, "camera-suspended", (PHONE,))
        phone.page.reload()
        phone.shows("h1", "This workspace is suspended")
        operator.shows("h1", "This workspace is suspended")
        review.look(operator, "suspended")
        decide(server, workspace_id, "unsuspend")
        operator.click("main .button.main")
        operator.shows(".badge.offline")
        phone.click("main .button.main")
        phone.shows("#go-online")
        expect(phone.page.locator(".badge.offline")).to_be_visible()

        phone.click("#go-online:not([disabled])")
        phone.shows(".badge.online")
        decide(server, workspace_id, "suspend")
        phone.shows(".badge.suspended", "Suspended")
        decide(server, workspace_id, "unsuspend")
        phone.shows("#changed-elsewhere", "The suspension is over.")
        review.look(phone, "camera-suspension-over", (PHONE,))
        phone.click("#go-online:not([disabled])")
        phone.shows(".badge.online")
        expect(phone.page.locator("#changed-elsewhere")).to_have_count(0)
        review.done(operator, phone)


@pytest.mark.nightly("tests/console/test_walk.py::test_a_stranger_gets_to_a_verified_receipt_by_clicks")
def test_a_place_whose_operator_films_for_the_caller_leads_to_that_view(browser: Browser, server: ConsoleServer):
    review = Review()
    with a_tab(browser, server.url, place=GRAZ) as consumer, a_tab(browser, server.url) as operator:
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        add_funds(consumer)
        sign_up(operator, "Pier Cams", "SUPPLIER")
        with a_tab(browser, server.url, PHONE, place=GRAZ) as phone:
            come_online(phone, camera_link(operator))
            session_id = request_view(consumer, "The clock tower")
            phone.click("#start")
            consumer.picture("playing", within_ms=PATIENCE_MS)
            consumer.go("buy")
            consumer.shows(".banner.info", "The operator here films another view of yours.")
            expect(consumer.page.locator("#widen")).to_have_count(0)
            review.look(consumer, "buy-own-view")
            consumer.click("#own-view")
            consumer.page.wait_for_url(f"**/#/watch/{session_id}", timeout=PATIENCE_MS)
            end_view(consumer)
            consumer.shows("#to-receipt")
        review.done(consumer, operator)


@pytest.mark.nightly("tests/console/test_walk.py::test_a_stranger_gets_to_a_verified_receipt_by_clicks")
def test_an_operator_reads_what_it_earns_first_and_a_receipt_names_who_ended_the_view(
    browser: Browser, server: ConsoleServer
):
    review = Review()
    with a_tab(browser, server.url, place=LINZ) as consumer, a_tab(browser, server.url) as operator:
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        add_funds(consumer)
        sign_up(operator, "Pier Cams", "SUPPLIER")
        with a_tab(browser, server.url, PHONE, place=LINZ) as phone:
            come_online(phone, camera_link(operator))
            session_id = request_view(consumer, "The river")
            phone.click("#start")
            consumer.picture("playing", within_ms=PATIENCE_MS)
            expect(consumer.page.locator("#proved")).not_to_have_text("0:00", timeout=PATIENCE_MS)
            operator.go(f"watch/{session_id}")
            operator.shows(".facts", re.compile(r"Charged\s*0\.00\d+\sUSDC\s*Fee \(15 %\)", re.DOTALL))
            cost = float(consumer.page.locator(".bar + .hint").inner_text().split()[-2])
            assert float(operator.page.locator(".bar + .hint").inner_text().split()[-2]) < cost, "without the fee"
            review.look(operator, "watch-earned")
            end_view(consumer)
            consumer.click("#to-receipt")
            charged = consumer.page.locator("#charged").inner_text()
            ended_by = consumer.page.locator("main .facts > div", has_text="Ended with the wallet")
            expect(ended_by.locator("code").first).to_have_attribute("title", re.compile("^0x[0-9a-fA-F]{40}$"))
            phone.shows(".facts", "Fee (")
            assert figure(phone, "^Charged$") == float(charged.split()[0])
            review.look(phone, "camera-over", (PHONE,))
        operator.go(f"receipt/{session_id}")
        operator.shows(".card-head h2", "Earned")
        earned = float(operator.page.locator("#charged").inner_text().split()[0])
        assert figure(operator, "^Charged$") == float(charged.split()[0])
        assert round(earned + figure(operator, r"^Fee \("), 6) == figure(operator, "^Charged$")
        expect(operator.page.locator("#ending")).to_contain_text("The viewer ended it.")
        expect(operator.page.locator("main")).not_to_contain_text("Ended with")
        review.look(operator, "receipt-earned")
        operator.go("sessions")
        operator.shows(".list-end .number", f"{earned}")
        operator.shows(".list-main", f"Charged {charged} · Fee (")
        review.look(operator, "sessions-earned")
        operator.go("operate")
        operator.shows("#earned", f"{earned}")
        review.look(operator, "operate-earned")
        review.done(consumer, operator)


@pytest.mark.nightly(
    "tests/admin/test_administration.py::test_an_ended_session_is_charged_and_refunded_once_and_every_act_recorded"
)
def test_a_refund_is_on_the_receipt_of_the_consumer_and_named_in_its_movements(browser: Browser, server: ConsoleServer):
    review = Review()
    with a_tab(browser, server.url, place=WELS) as consumer, a_tab(browser, server.url) as operator:
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        add_funds(consumer)
        sign_up(operator, "Pier Cams", "SUPPLIER")
        with a_tab(browser, server.url, PHONE, place=WELS) as phone:
            come_online(phone, camera_link(operator))
            session_id = request_view(consumer, "The square")
            phone.click("#start")
            consumer.picture("playing", within_ms=PATIENCE_MS)
            expect(consumer.page.locator("#proved")).not_to_have_text("0:00", timeout=PATIENCE_MS)
            end_view(consumer)
        consumer.click("#to-receipt")
        consumer.shows(".badge.confirmed")
        expect(consumer.page.locator("#refunded")).to_have_count(0)
        refund(server, session_id, 100)  # paid from the fees, which are a multiple of that
        consumer.go("wallet")
        line = consumer.page.locator("main .rows li", has_text="Refund")
        expect(line).to_contain_text("0.0001")
        review.look(consumer, "wallet-refund")
        line.get_by_role("link", name="Receipt").click()
        consumer.shows("#refunded", re.compile(r"^0\.0001\sUSDC"))
        expect(consumer.page.locator("#refunded code").first).to_have_attribute("title", re.compile("^0x[0-9a-f]{64}$"))
        review.look(consumer, "receipt-refunded")
        operator.go(f"receipt/{session_id}")
        operator.shows(".badge.confirmed")
        expect(operator.page.locator("#refunded")).to_have_count(0)
        review.done(consumer, operator)


@pytest.mark.nightly("tests/console/test_walk.py::test_a_stranger_gets_to_a_verified_receipt_by_clicks")
def test_operators_without_an_area_are_named_below_the_map(browser: Browser, server: ConsoleServer):
    review = Review()
    with (
        a_tab(browser, server.url, place=LINZ) as consumer,
        a_tab(browser, server.url) as operator,
        a_tab(browser, server.url, PHONE, place=LINZ) as phone,
    ):
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        sign_up(operator, "Pier Cams", "SUPPLIER")
        phone.page.goto(camera_link(operator))
        with phone.page.expect_response(re.compile("/location"), timeout=PATIENCE_MS):
            phone.shows("#position", "±")
        operator.click("button:text-is('Go online')")
        operator.shows(".badge.online")
        consumer.go("buy")
        consumer.page.fill("#place", f"{LINZ[0]}, {LINZ[1]}")
        consumer.shows("#everywhere", re.compile(r"Online without an area of their own.*: 1$"))
        review.look(consumer, "buy-everywhere")
        operator.click("button:text-is('Go offline')")  # it would count for every other test
        operator.shows(".badge.offline")
        expect(consumer.page.locator("#everywhere")).to_have_count(0, timeout=PATIENCE_MS)
        review.done(consumer, operator)


def test_without_a_network_a_price_and_a_button_say_that_this_device_is_offline(
    browser: Browser, server: ConsoleServer
):
    with a_tab(browser, server.url, place=LINZ) as consumer:
        consumer.allowed = (r"ERR_INTERNET_DISCONNECTED", r"ERR_FAILED")
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        consumer.go("buy")
        consumer.shows("#place")
        consumer.page.context.set_offline(True)
        consumer.page.fill("#place", f"{LINZ[0]}, {LINZ[1]}")
        consumer.shows(".offer .bad", re.compile("^You are offline$"))
        consumer.click("header summary")
        consumer.page.get_by_role("button", name="Sign out").click()
        consumer.shows(".notice.bad", re.compile("^You are offline$"))
        expect(consumer.page.locator("body")).not_to_contain_text("Failed to fetch")
        consumer.page.context.set_offline(False)
        expect(consumer.page.locator(".notice.bad"), "it does not outlive that").to_have_count(0, timeout=6_000)
        assert consumer.problems == []
