"""What a phone says of itself, and what the desk says of its jobs."""

from playwright.sync_api import Browser, expect

from tests.console.people import (
    PHONE,
    ConsoleServer,
    a_tab,
    add_funds,
    camera_link,
    come_online,
    request_view,
    sign_up,
)

TURKU = (60.451813, 22.266630)
JOBS = "#film-job"


def test_a_declined_job_leaves_the_film_page_and_comes_back_in_no_tab(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url, place=TURKU) as consumer, a_tab(browser, server.url) as operator:
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        add_funds(consumer)
        sign_up(operator, "Pier Cams", "both")
        with a_tab(browser, server.url, PHONE, place=TURKU) as phone:
            come_online(phone, camera_link(operator))
            request_view(consumer, "The cathedral")
            operator.shows(JOBS)
            phone.click("#decline")
            phone.shows(".notice", "Declined")
            consumer.shows("#reopened", "The operator declined.")
            expect(operator.page.locator(JOBS)).to_have_count(0)
            consumer.click("#cancel")
            consumer.shows(".stage a.main", "Ask again")
            # A tab that comes later gets what the first one heard.
            later = operator.page.context.new_page()
            later.goto(f"{server.url}/console/#/operate")
            expect(later.locator(".badge.online").first).to_be_visible()
            expect(later.locator(JOBS)).to_have_count(0)
            phone.page.reload()
            request_view(consumer, "The market")
            expect(later.locator(JOBS)).to_be_visible()
            phone.click("#decline")
            expect(later.locator(JOBS)).to_have_count(0)
            expect(operator.page.locator(JOBS)).to_have_count(0)
            later.reload()
            expect(later.locator(".badge.online").first).to_be_visible()
            expect(later.locator(JOBS)).to_have_count(0)
