"""Every screen and state of a view, from the first visit to the receipt, looked at in every form."""

import base64
import json
import re

from playwright.sync_api import Browser, Route, expect

from tests.console.people import (
    ACROSS,
    PATIENCE_MS,
    PHONE,
    ConsoleServer,
    Tab,
    a_tab,
    camera_link,
    end_view,
    request_view,
    sign_up,
)
from tests.console.review import IMAGES, Review
from tests.console.test_walk import forge

MUNICH = (48.137154, 11.576124)
ELSEWHERE = (48.2, 11.7)
WISH = "North gate. Look at the queue"
NO_CAMERA = """if (navigator.mediaDevices) navigator.mediaDevices.getUserMedia = async () => {
  throw new DOMException("Permission denied", "NotAllowedError");
}"""
FILM_STREET = """if (navigator.mediaDevices) navigator.mediaDevices.getUserMedia = async () => {
  const street = new Image();
  street.src = "data:image/jpeg;base64,PICTURE";
  await street.decode();
  const canvas = Object.assign(document.createElement("canvas"), { width: 1280, height: 720 });
  const pen = canvas.getContext("2d");
  setInterval(() => pen.drawImage(street, 0, 0, canvas.width, canvas.height), 50);
  return canvas.captureStream(20);
}"""
MISSING = "00000000-0000-4000-8000-000000000000"


def stand_at(tab: Tab, place: tuple[float, float]) -> None:
    latitude, longitude = place
    tab.page.context.set_geolocation({"latitude": latitude, "longitude": longitude, "accuracy": 8})


def is_unsettled(route: Route) -> None:
    """Answer a receipt as it was before its payment was on the chain."""
    answer = route.fetch()
    body = answer.json()
    body["data"]["settlement"] = dict.fromkeys(body["data"]["settlement"]) | {"state": "PENDING", "mismatched": False}
    route.fulfill(response=answer, body=json.dumps(body))


def is_mismatched(route: Route) -> None:
    """Answer a receipt as if the contract had settled one second more than the service recorded."""
    answer = route.fetch()
    body = answer.json()
    settlement = body["data"]["settlement"]
    settlement["mismatched"] = True
    settlement["payload"]["chargeableSeconds"] += 1
    route.fulfill(response=answer, body=json.dumps(body))


def test_every_screen_of_a_view_is_accessible_and_fits(browser: Browser, server: ConsoleServer):
    review = Review()
    url = server.url
    with (
        a_tab(browser, url, place=MUNICH) as consumer,
        a_tab(browser, url) as operator,
        a_tab(browser, url, PHONE, place=MUNICH) as phone,
    ):
        consumer.page.goto(url)
        consumer.shows("#test-wallet")
        review.look(consumer, "start-stranger")
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        review.look(consumer, "start-money")
        consumer.click("#faucet")
        consumer.shows("#first-allowance")
        review.look(consumer, "start-allowance")
        consumer.click("#approve")
        consumer.shows("#to-buy")
        review.look(consumer, "start-ready")
        for screen, shown in (("sessions", ".empty"), ("wallet", ".rows li")):
            consumer.go(screen)
            consumer.shows(shown)
            review.look(consumer, f"{screen}-new")
        consumer.go("buy")
        consumer.shows("[data-map=ready]")
        review.look(consumer, "buy-empty")
        consumer.page.fill("#place", "nowhere at all")
        consumer.shows(".hint.bad")
        review.look(consumer, "buy-wrong")

        sign_up(operator, "Pier Cams", "SUPPLIER")
        operator.go("operate")
        operator.shows(".empty")
        review.look(operator, "operate-empty")
        link = camera_link(operator)
        review.look(operator, "operate-code")
        street = base64.b64encode((IMAGES / "demo-frame.jpg").read_bytes()).decode()
        phone.page.add_init_script(FILM_STREET.replace("PICTURE", street))
        phone.page.goto(link)
        phone.shows("#position", "±")
        review.look(phone, "camera-offline", (PHONE,))

        request_view(consumer, WISH)
        consumer.shows("#cancel")
        review.look(consumer, "watch-requested")
        consumer.click("#cancel")
        consumer.shows(".badge.cancelled")
        review.look(consumer, "watch-cancelled")
        request_view(consumer, WISH)
        phone.click("#go-online")
        # Requests of other tests may be open: an operator without an area is shown those of everywhere.
        operator.click(f".rows li:has-text('{MUNICH[0]:.5f}') .button:has-text('Accept')")
        operator.shows(".badge.assigned")
        review.look(operator, "operate-assigned")
        consumer.shows(".badge.assigned")
        review.look(consumer, "watch-assigned")
        phone.shows(".job", "North gate")
        review.look(phone, "camera-asked", (PHONE,))

        phone.click("#start")
        consumer.picture("playing", within_ms=PATIENCE_MS)
        expect(consumer.page.locator("#proved")).to_have_text(re.compile(r"0:(0[3-9]|[1-5]\d)"), timeout=PATIENCE_MS)
        consumer.shows("#operator")
        sound, stills = (consumer.page.locator(each).bounding_box() for each in ("#sound", "#show-stills"))
        assert sound is not None
        assert stills is not None
        assert sound["y"] == stills["y"], "no button is alone in its line"
        review.look(consumer, "watch-live")
        review.publish(consumer, "watch")
        review.look(phone, "camera-filming", (PHONE,))
        stand_at(phone, ELSEWHERE)
        consumer.shows(".banner.warn", "ends by itself")
        consumer.click("#snapshot")
        consumer.shows(".taken-paused", "this is not proved")
        consumer.click("#saved button:has-text('Close')")
        consumer.shows(".tag", "Paused · The operator is outside of the area.")
        expect(consumer.page.locator(".tag"), "it is not live").not_to_contain_text("Live")
        review.look(consumer, "watch-paused")
        phone.shows(".banner.warn", "not paid")
        review.look(phone, "camera-paused", (PHONE,))
        phone.page.set_viewport_size(ACROSS)
        for seen in ("#paused", "#stop"):
            expect(phone.page.locator(seen), "without scrolling").to_be_in_viewport(ratio=1)
        review.look(phone, "camera-paused-across", (ACROSS,))
        phone.page.set_viewport_size(PHONE)
        stand_at(phone, MUNICH)
        consumer.shows(".badge.live")
        consumer.click("#snapshot")
        consumer.shows("img.snapshot")
        consumer.click("#save-clip")
        consumer.shows("video.snapshot")
        consumer.until("() => document.querySelector('video.snapshot').videoWidth > 0")
        review.look(consumer, "watch-clip")
        consumer.click("#show-stills")
        consumer.shows(".stage > img")
        review.look(consumer, "watch-stills")
        end_view(consumer)
        consumer.shows("#to-receipt")
        review.look(consumer, "watch-ended")
        phone.shows("#next-job")
        review.look(phone, "camera-done", (PHONE,))
        phone.click("#next-job")

        consumer.page.route("**/receipt", is_unsettled)
        consumer.click("#to-receipt")
        consumer.shows(".badge.pending")
        review.look(consumer, "receipt-pending")
        consumer.page.unroute_all(behavior="wait")
        consumer.shows(".badge.confirmed", within_ms=PATIENCE_MS)
        consumer.click("#verify")
        expect(consumer.page.locator("[data-check][data-state=right]")).to_have_count(5, timeout=PATIENCE_MS)
        charged, timeline = (consumer.page.locator(each).bounding_box() for each in ("#charged", ".timeline"))
        assert charged is not None
        assert timeline is not None
        assert timeline["x"] == charged["x"], "what explains the amount is below it"
        review.look(consumer, "receipt")
        review.publish(consumer, "receipt")
        consumer.page.route("**/receipt", forge)
        consumer.click("#verify")
        consumer.shows("[data-check=hashChain][data-state=wrong]")
        review.look(consumer, "receipt-forged")
        consumer.page.unroute_all(behavior="wait")
        consumer.page.route("**/receipt", is_mismatched)
        consumer.click("#verify")
        consumer.shows(".badge.mismatched")
        consumer.shows(".banner.bad", "settled this session otherwise")
        consumer.shows("[data-check=charge][data-state=wrong]", "settlement.mismatched")
        review.look(consumer, "receipt-mismatched")
        consumer.page.unroute_all(behavior="wait")

        for screen, shown in (("sessions", ".list-row"), ("wallet", "a[href*=receipt]")):
            consumer.go(screen)
            consumer.shows(shown)
            review.look(consumer, screen)
        operator.go("operate")
        operator.shows(".days")
        review.look(operator, "operate-earned")
        consumer.go("buy")
        consumer.page.fill("#place", f"{MUNICH[0]}, {MUNICH[1]}")
        consumer.page.fill("#instructions", WISH)
        consumer.shows("#request:not([disabled])")
        consumer.shows("[data-map=ready] .map-count", "1")
        review.look(consumer, "buy")
        review.publish(consumer, "buy")

        consumer.allowed = (r"404 \(Not Found\) \S*/sessions/0000",)
        for screen in ("watch", "receipt"):
            consumer.go(f"{screen}/{MISSING}")
            consumer.shows(".empty")
            review.look(consumer, f"{screen}-missing")
        consumer.go("nowhere")
        consumer.shows(".empty")
        review.look(consumer, "not-found")
        review.done(consumer, operator, phone)


def test_a_camera_without_link_or_permission_says_what_to_do(browser: Browser, server: ConsoleServer):
    review = Review()
    with a_tab(browser, server.url) as operator, a_tab(browser, server.url, PHONE, place=MUNICH) as phone:
        phone.page.goto(f"{server.url}/console/#/camera")
        phone.shows(".empty")
        review.look(phone, "camera-no-link", (PHONE,))
        sign_up(operator, "Pier Cams", "SUPPLIER")
        link = camera_link(operator)
        phone.page.add_init_script(NO_CAMERA)
        phone.page.goto("about:blank")
        phone.page.goto(link)
        phone.shows(".cover", "Allow it for this page")
        review.look(phone, "camera-refused", (PHONE,))
        phone.allowed = (r"401 \(\S*\) \S*/api/v1/",)
        phone.page.goto(link[:-4] + "0000")
        phone.shows(".empty")
        assert "key" not in phone.page.url, "a second link in the same tab also leaves the address"
        review.look(phone, "camera-revoked", (PHONE,))
        review.done(operator, phone)
