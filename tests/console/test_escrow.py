"""Money in escrow: the wallet signs the payment of a view, and limits within which API keys pay."""

import re
from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.console.people import ConsoleServer, a_tab, camera_link, come_online, request_view, sign_up

PORTO = (41.157944, -8.629105)
NO_MANDATE = r"404 \([\w ]+\) \S*/wallet/mandate"


def test_a_wallet_signs_limits_and_the_payment_of_a_view(browser: Browser, tmp_path: Path):
    server = ConsoleServer(tmp_path, SIGHTLINE_FUNDS_POLICY="escrow")
    server.start()
    try:
        with a_tab(browser, server.url, place=PORTO) as consumer, a_tab(browser, server.url, place=PORTO) as operator:
            consumer.allowed += (NO_MANDATE,)
            sign_up(operator, "Pier Cams", "SUPPLIER")
            come_online(operator, camera_link(operator))
            sign_up(consumer, "Harbour Watch", "CONSUMER")
            consumer.click("#faucet")
            consumer.shows("#approve")
            consumer.go("wallet")
            sent: list[str] = []
            consumer.page.on("request", lambda request: sent.append(request.post_data or ""))
            consumer.page.fill("#allowance", "12.50")
            consumer.click("#allowance + button")  # the wallet signs a permit
            consumer.shows(".facts", re.compile(r"12\.50\sUSDC"))
            assert not any("eth_sendRawTransaction" in body for body in sent)
            consumer.page.fill("#per-session", "1.50")
            consumer.page.fill("#per-day", "20")
            consumer.click("button:has-text('Sign both limits')")
            consumer.shows("form", re.compile(r"1\.50\sUSDC.*20\.00\sUSDC.*Valid until", re.DOTALL))
            consumer.click("button:has-text('Stop paying within limits')")
            consumer.shows("form", "Not set")

            session_id = request_view(consumer, "the pier")
            operator.click("#start")
            consumer.shows(".badge.live")
            consumer.click("#extend")  # the wallet signs it: the mandate has been withdrawn
            consumer.shows(".facts", "10:00")
            consumer.go("wallet")
            consumer.shows(".facts", re.compile(r"In escrow for open sessions\s*\d+\.\d*[1-9]"))
            consumer.click("button:has-text('End the session')")
            consumer.click("main .confirm button.danger")
            consumer.shows(".facts", re.compile(r"In escrow for open sessions\s*0\.00"))
            consumer.go(f"receipt/{session_id}")
            consumer.shows(".facts", re.compile(r"Held\s*\d.*Returned from escrow\s*\d", re.DOTALL))
            consumer.go("wallet")
            consumer.shows("section:has-text('Movements') .rows", "Returned from escrow")
            held = consumer.page.locator("section:has-text('Movements') .rows li:has-text('Held in escrow')")
            expect(held).to_have_count(2)  # of the view and of its extension
            expect(held.get_by_role("link", name="Receipt").first).to_be_visible()
            balance = consumer.page.locator(".facts div:has-text('Balance') dd").inner_text()
            expect(consumer.page.locator("#available"), "no allowance limits it").to_have_text(balance)
            assert consumer.problems == []
    finally:
        server.end()
