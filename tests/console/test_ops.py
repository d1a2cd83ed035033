"""The page of the server's operators: a parked actor is shown with its reason, and started again; backup and books."""

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from playwright.sync_api import Browser, expect

from sightline.bootstrap.observability.last_backup import note_backup
from sightline.storage.embedded.postgres_child import find_binaries, lay_out
from tests.conftest import on_server
from tests.console.people import ConsoleServer, a_tab, add_funds, request_view, sign_up
from tests.console.review import Review

LIMA = (-12.046374, -77.042793)
END = """id => fetch(`/api/v1/sessions/${id}/end`, {
  method: "POST", headers: { "idempotency-key": crypto.randomUUID() },
}).then((answer) => answer.status)"""


def swap_document(server: ConsoleServer, session_id: str, document: str) -> str:
    """Replace a session's stored document; returns the one before."""
    before: list[str] = []

    async def swap(connection: Any) -> None:
        before.append(await connection.fetchval("SELECT doc FROM session WHERE id = $1", session_id))
        await connection.execute("UPDATE session SET doc = $2 WHERE id = $1", session_id, document)

    dsn = lay_out(server.data_dir / "postgres", find_binaries()).dsn
    with ThreadPoolExecutor(1) as pool:  # Playwright has an event loop in this thread
        pool.submit(on_server, dsn, swap).result()
    return before[0]


def test_a_parked_actor_is_shown_with_its_reason_and_started_again(browser: Browser, server: ConsoleServer):
    review = Review()
    with a_tab(browser, server.url, place=LIMA) as tab, a_tab(browser, server.internal_url) as ops:
        sign_up(tab, "Harbour Watch", "CONSUMER")
        add_funds(tab)
        session_id = request_view(tab, "The square")
        tab.click("#cancel")
        tab.shows(".badge.cancelled")
        document = swap_document(server, session_id, "{}")
        assert tab.page.evaluate(END, session_id) >= 400
        ops.allowed = (r"401 \(\S*\) ",)
        ops.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        ops.page.goto(f"{server.internal_url}/ops")
        ops.page.fill("#token", "not the token")
        ops.page.press("#token", "Enter")
        ops.shows("#token-wrong")
        ops.page.fill("#token", server.internal_token)
        ops.page.press("#token", "Enter")
        parked = ops.page.locator(f"[data-parked='{session_id}']")
        expect(parked).to_contain_text("Error")
        expect(parked.locator(f"code[title='{session_id}']")).to_have_text(session_id[:8])
        parked.get_by_role("button", name=f"Copy {session_id[:8]}").click()
        expect(parked.get_by_role("status")).to_have_text("Copied")
        assert ops.page.evaluate("navigator.clipboard.readText()") == session_id
        expect(ops.page.locator("#backup.bad")).to_have_text("None is known. Run: sightline backup FILE")
        expect(ops.page.locator("#differences")).to_have_text("0")  # compared soon after the first start
        expect(ops.page.locator("#books")).to_have_text(re.compile(r"20\d\d.*\sUTC"))
        review.look(ops, "ops-parked")
        note_backup(server.data_dir, 1_700_000_000_000)
        expect(ops.page.locator("#backup.bad")).to_have_text(re.compile("Nov 14, 2023, 10:13\\sPM\\sUTC"))
        swap_document(server, session_id, document)
        parked.get_by_role("button", name="Start again").click()
        expect(parked).to_have_count(0)
        review.done(ops)
