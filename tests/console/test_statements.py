"""Statements by month on the wallet screen: what a view cost, what filming it earned, and their files."""

import csv
import io
import json
import re

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.console.people import (
    PATIENCE_MS,
    PHONE,
    ConsoleServer,
    Tab,
    a_tab,
    add_funds,
    camera_link,
    come_online,
    end_view,
    request_view,
    sign_up,
)
from tests.console.review import Review

VILNIUS = (54.687157, 25.279652)
NOTHING = re.compile(r"^0\.00\sUSDC$")


def statement_shows(tab: Tab, selector: str) -> str:
    """Read the wallet screen until the statement has an amount: books are written when the block is final."""
    tab.go("wallet")
    expect(tab.page.locator(selector)).not_to_have_text(NOTHING, timeout=PATIENCE_MS)
    return tab.page.locator(selector).inner_text().replace("\u00a0", " ")


def downloaded(tab: Tab, form: str) -> bytes:
    with tab.page.expect_download() as started:
        tab.page.get_by_role("link", name=form, exact=True).first.click()
    assert re.fullmatch(rf"sightline-statement-\d{{4}}-\d\d\.{form.lower()}", started.value.suggested_filename)
    return started.value.path().read_bytes()


def is_closed(route: Route) -> None:
    """Answer a statement as that of a closed month: with an invoice, and a payment that the wallet refused."""
    answer = route.fetch()
    body = answer.json()
    data = body["data"]
    data["isClosed"] = True
    data["consumer"]["invoice"] = {
        "number": "TEST-2026-000041", "issuedAt": "2026-12-01T02:00:00.000Z", "sessions": 2,
        "chargedMicroUsdc": "142560", "refundedMicroUsdc": "0",
    }  # fmt: skip
    data["operator"]["total"] |= {"earnedMicroUsdc": "900000", "creditedMicroUsdc": "300000", "paidMicroUsdc": "600000"}
    route.fulfill(response=answer, body=json.dumps(body))


@pytest.mark.nightly("tests/console/test_statements.py::test_a_month_shows_what_was_charged_and_earned_and_gives_files")
def test_a_closed_month_names_its_invoice_and_says_what_waits_in_the_contract(browser: Browser, server: ConsoleServer):
    review = Review()
    with a_tab(browser, server.url, place=VILNIUS) as tab:
        sign_up(tab, "Harbour Watch", "both")
        tab.page.route("**/statements/*", is_closed)
        tab.go("wallet")
        tab.shows("#invoice", "Invoice TEST-2026-000041")
        expect(tab.page.locator("main")).not_to_contain_text("This month is not over")
        tab.shows("main", re.compile(r"Credited in the contract\s*0\.30\sUSDC"))
        tab.shows("main", "call withdraw with the wallet")
        review.look(tab, "statement-closed")
        review.done(tab)


def test_a_month_shows_what_was_charged_and_earned_and_gives_files(browser: Browser, server: ConsoleServer):
    review = Review()
    with a_tab(browser, server.url, place=VILNIUS) as consumer, a_tab(browser, server.url) as operator:
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        add_funds(consumer)
        consumer.go("wallet")
        consumer.shows("#statement-charged", "0.00")
        consumer.shows("main", "Nothing was settled")
        review.look(consumer, "statement-empty")
        sign_up(operator, "Pier Cams", "SUPPLIER")
        link = camera_link(operator)
        with a_tab(browser, server.url, PHONE, place=VILNIUS) as phone:
            come_online(phone, link)
            request_view(consumer, "North gate")
            phone.click("#start")
            expect(consumer.page.locator("#proved")).to_have_text(
                re.compile(r"0:(0[3-9]|[1-5]\d)"), timeout=PATIENCE_MS
            )
            end_view(consumer)
            consumer.click("#to-receipt")
            consumer.shows(".badge.confirmed", within_ms=PATIENCE_MS)
            charged = consumer.page.locator("#charged").inner_text().replace("\u00a0", " ")
        assert statement_shows(consumer, "#statement-charged") == charged
        consumer.shows("main", "This month is not over")
        consumer.shows(".rows li:has(a[href*=receipt])", "North gate")
        review.look(consumer, "statement-consumer")
        rows = list(csv.DictReader(io.StringIO(downloaded(consumer, "CSV").decode())))
        assert [each["side"] for each in rows] == ["consumer"]
        assert f"{int(rows[0]['chargedMicroUsdc']) / 1_000_000} USDC" == charged
        assert downloaded(consumer, "PDF").startswith(b"%PDF-")
        assert json.loads(downloaded(consumer, "JSON"))["data"]["consumer"]["total"]["sessions"] == 1

        earned = statement_shows(operator, "#statement-earned")
        assert float(earned.split()[0]) < float(charged.split()[0]), "the fee is not earned"
        operator.shows("main", "Paid to the wallet")
        expect(operator.page.locator("#statement-charged")).to_have_count(0)
        expect(operator.page.locator("h2").first).to_have_text("Balance")
        operator.shows("#balance", earned.replace(" ", "\u00a0"))
        expect(operator.page.locator("#allowance")).to_have_count(0)
        review.look(operator, "statement-operator")
        review.done(consumer, operator)
