"""A view shared by a link: the guest has no account, watches, and sees nothing once the link has ended."""

import re

import httpx
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
    end_view,
    sign_up,
)
from tests.console.review import Review

TALLINN = (59.436962, 24.753574)
ENDED = (r"401 \(\S*\) \S*/api/v1/sessions/",)


def share(consumer: Tab, label: str) -> str:
    """Make a link on the Watch page."""
    consumer.page.fill("#share-label", label)
    consumer.click("#share")
    consumer.shows(".rows strong", label)
    return consumer.page.input_value("#share-url")


def viewers_of(url: str, session_id: str, key: str) -> httpx.Response:
    return httpx.get(f"{url}/api/v1/sessions/{session_id}/shared", headers={"authorization": f"Bearer {key}"})


def test_a_view_is_shared_by_a_link_that_can_be_revoked(browser: Browser, server: ConsoleServer):
    url, review = server.url, Review()
    with (
        a_tab(browser, url, place=TALLINN) as consumer,
        a_tab(browser, url, place=TALLINN) as operator,
        a_tab(browser, url, PHONE, place=TALLINN) as phone,
        a_tab(browser, url, place=TALLINN) as guest,
        a_tab(browser, url, PHONE, place=TALLINN) as second,
    ):
        for each in (guest, second):
            each.allowed = (*each.allowed, *ENDED)
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        add_funds(consumer)
        sign_up(operator, "Pier Cams", "SUPPLIER")
        come_online(phone, camera_link(operator))
        consumer.go("buy")
        consumer.page.fill("#place", "Tallinn")
        consumer.page.locator(".options [role=option]").first.click()
        consumer.page.fill("#instructions", "Between us. Look at the ferry")
        consumer.click("#request:not([disabled])")
        consumer.page.wait_for_url("**/#/watch/*", timeout=PATIENCE_MS)
        session_id = consumer.page.url.rpartition("/")[2]
        phone.click("#start")
        consumer.picture("playing", within_ms=PATIENCE_MS)

        link = share(consumer, "Site manager")
        review.look(consumer, "watch-share")
        guest.page.goto(link)
        guest.picture("playing", within_ms=PATIENCE_MS)
        assert "svc_" not in guest.page.url, "the key leaves the address at once"
        guest.shows(".page-head", re.compile(r"Tallinn.* · 59\.\d+, 24\.\d+"))
        assert "Between us" not in guest.page.inner_text("body")
        assert "USDC" not in guest.page.inner_text("main")
        expect(guest.page.locator("#end, #extend, #share, nav[aria-label]")).to_have_count(0)
        guest.page.reload()
        guest.picture("playing", within_ms=PATIENCE_MS)
        guest.shows("main", re.compile(r"Time left\s*0?\d:\d\d"))
        review.look(guest, "shared")
        guest.click("#show-stills")
        guest.page.wait_for_selector(".stage[data-picture=stills] img", timeout=PATIENCE_MS)

        second.page.goto(share(consumer, "Insurance"))
        second.picture("playing", within_ms=PATIENCE_MS)
        row = consumer.page.locator(".rows li", has_text="Site manager")
        row.locator("button:has-text('Revoke')").click()
        row.locator(".confirm .danger").click()
        expect(row).to_contain_text("ended")
        guest.shows(".empty h1", "This link has ended")
        review.look(guest, "shared-revoked")
        key = link.partition("key=")[2].partition("&")[0]
        assert viewers_of(url, session_id, key).json()["code"] == "REVOKED_API_KEY"
        expect(second.page.locator(".stage[data-picture=playing]")).to_be_visible()

        end_view(consumer)
        second.shows(".empty h1", "This view has ended")
        review.look(second, "shared-ended", (PHONE,))
        consumer.click("#to-receipt")
        consumer.shows(".badge.confirmed")
        consumer.shows(".rows strong", "Insurance")
        expect(consumer.page.get_by_role("heading", name="Links to this view")).to_be_visible()
        expect(consumer.page.locator("main")).not_to_contain_text("Share this view")
        review.look(consumer, "receipt-shares")
        expect(consumer.page.locator(".rows li", has_text="Insurance")).to_contain_text("ended with the view")
        expect(consumer.page.locator(".rows li", has_text="Site manager")).not_to_contain_text("with the view")
        expect(consumer.page.get_by_role("button", name="Revoke")).to_have_count(0)
        review.done(consumer, operator, phone, guest, second)


def test_a_link_without_its_key_says_that_it_has_ended(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url, place=TALLINN) as guest:
        guest.go("shared/00000000-0000-4000-8000-000000000000")
        guest.shows(".empty h1", "This link has ended")
        assert guest.problems == []
