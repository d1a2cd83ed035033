"""From stranger to verified receipt by clicks alone: a consumer at a desk, an operator with a phone."""

import json
import re
from typing import Any

import httpx
from playwright.sync_api import Browser, Route, expect

from tests.console.people import (
    DESK,
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

TRANSFERRED = "balanceOf(address)"


def balance(url: str, address: str) -> int:
    """The USDC of an address as the chain says."""
    token = httpx.get(f"{url}/api/v1/config").json()["data"]["usdcAddress"]
    data = "0x70a08231" + address[2:].lower().rjust(64, "0")
    call = {"jsonrpc": "2.0", "id": 1, "method": "eth_call", "params": [{"to": token, "data": data}, "latest"]}
    return int(httpx.post(f"{url}/rpc", json=call).json()["result"], 16)


def receipt_of(tab: Tab, session_id: str) -> dict[str, Any]:
    answer = tab.page.evaluate(
        "id => fetch(`/api/v1/sessions/${id}/receipt`).then((answer) => answer.json())", session_id
    )
    return answer["data"]


def forge(route: Route) -> None:
    """Answer the receipt with one event a second later than it was."""
    answer = route.fetch()
    body = answer.json()
    body["data"]["events"][2]["atMs"] += 1000
    route.fulfill(response=answer, body=json.dumps(body))


def test_a_stranger_gets_to_a_verified_receipt_by_clicks(browser: Browser, server: ConsoleServer):
    url = server.url
    with a_tab(browser, url) as consumer, a_tab(browser, url) as operator, a_tab(browser, url, PHONE) as phone:
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        address = consumer.page.evaluate("fetch('/api/v1/me').then((a) => a.json()).then((b) => b.data.walletAddress)")
        add_funds(consumer)

        sign_up(operator, "Pier Cams", "SUPPLIER")
        link = camera_link(operator)
        come_online(phone, link)
        assert "key" not in phone.page.url, "the key leaves the address at once"

        session_id = request_view(consumer, "North gate. Look at the queue")
        phone.shows(".job", "North gate")
        phone.click("#start")
        consumer.page.wait_for_selector(".badge.live", timeout=PATIENCE_MS)
        consumer.picture("playing", within_ms=PATIENCE_MS)
        phone.page.wait_for_selector("#sending[data-sending=sending]", timeout=PATIENCE_MS)
        expect(consumer.page.locator("#proved")).to_have_text(re.compile(r"0:(0[4-9]|[1-5]\d)"), timeout=PATIENCE_MS)
        consumer.shows("#operator", "± 8 m")
        expect(consumer.page.locator(".facts [role=timer]")).to_have_text(re.compile(r"[2-4]:\d\d"))
        consumer.shows("#extend", re.compile(r"at most [\d.]+\sUSDC more"))
        expect(consumer.page.locator(".so-far")).to_be_hidden()
        consumer.page.set_viewport_size(PHONE)
        consumer.shows(".so-far", re.compile(r"Time left [2-4]:\d\d · 0\.\d+\sUSDC"))
        consumer.page.set_viewport_size(DESK)
        consumer.page.select_option("#extend-by", "60")
        consumer.click("#extend")
        consumer.shows(".facts", "6:00")
        phone.shows(".notices", re.compile("The viewer has extended the view by.*1:00"))
        expect(consumer.page.locator(".facts [role=timer]")).to_have_text(re.compile(r"[3-5]:\d\d"))
        end_view(consumer)
        consumer.shows("#ask-again")
        consumer.click("#to-receipt")
        consumer.shows("#asked-instructions", "North gate. Look at the queue")
        expect(consumer.page.locator("#asked-for")).to_have_text("5:00")
        expect(consumer.page.locator("#extended-by")).to_have_text("1:00")
        consumer.shows(".badge.confirmed", within_ms=PATIENCE_MS)
        consumer.click("#verify")
        expect(consumer.page.locator("[data-check][data-state=right]")).to_have_count(5, timeout=PATIENCE_MS)

        receipt = receipt_of(consumer, session_id)
        charged = int(receipt["session"]["chargedMicroUsdc"])
        paid = receipt["settlement"]["payload"]
        assert charged > 0
        assert balance(url, address) == 10_000_000 - charged
        assert balance(url, paid["to"]) == int(paid["toAmount"])

        consumer.page.route("**/receipt", forge)
        consumer.click("#verify")
        expect(consumer.page.locator("[data-check=hashChain][data-state=wrong]")).to_contain_text(
            "events[2]", timeout=PATIENCE_MS
        )
        consumer.click("#ask-again")
        expect(consumer.page.locator("#instructions")).to_have_value("North gate. Look at the queue")
        expect(consumer.page.locator("#duration"), "without the extension").to_have_value("300")
        assert consumer.problems == operator.problems == phone.problems == []
