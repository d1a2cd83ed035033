"""The camera page on a phone, and the jobs of its workspace on the Film page of a computer."""

import json
import re

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.console.people import (
    PATIENCE_MS,
    PHONE,
    ConsoleServer,
    a_tab,
    add_funds,
    all_three,
    camera_link,
    come_online,
    decline,
    request_view,
    sign_up,
    stop_filming,
)
from tests.console.review import Review

KEMI = (65.736319, 24.56372)
HAMINA = (60.569720, 27.198150)
TURKU, VAASA, PORVOO, RAUMA, KOTKA, LOVIISA, TORNIO, OULU, SALO = (
    (60.451813, 22.26663),
    (63.095089, 21.616458),
    (60.39317, 25.665074),
    (61.12875, 21.511127),
    (60.466667, 26.945833),
    (60.456624, 26.225077),
    (65.848099, 24.146579),
    (65.012115, 25.465078),
    (60.38616, 23.12508),
)
ASKS_AT_A_PRESS = """(() => {
  const { geolocation } = navigator;
  const [watch, ask] = [geolocation.watchPosition.bind(geolocation), geolocation.getCurrentPosition.bind(geolocation)];
  let isAsked = false;
  geolocation.watchPosition = (found, failed, options) => {
    if (isAsked) return watch(found, failed, options);
    setTimeout(() => failed({ code: GeolocationPositionError.PERMISSION_DENIED }));
    return 0;
  };
  geolocation.getCurrentPosition = (...given) => (window.answer = () => ((isAsked = true), ask(...given)));
})();"""
"""Some browsers ask for the permission again only for a call that is made in a press; `answer` allows it."""
LIGHT_AND_ZOOM = """(() => {
  window.lens = {};
  const track = MediaStreamTrack.prototype;
  track.getCapabilities = () => ({ torch: true, zoom: { min: 1, max: 8, step: 0.1 } });
  track.applyConstraints = async ({ advanced }) => void Object.assign(window.lens, ...advanced);
})();"""
"""The camera of a phone: that of the test's browser has neither."""
LOSE_THE_CAMERA = """() => {
  const { mediaDevices } = navigator;
  window.openCamera ??= mediaDevices.getUserMedia.bind(mediaDevices);
  window.isCameraFree = false;
  mediaDevices.getUserMedia = (wanted) =>
    window.isCameraFree ? window.openCamera(wanted) : Promise.reject(new DOMException("busy", "NotReadableError"));
  for (const track of document.querySelector("video").srcObject.getTracks()) {
    track.stop();
    track.dispatchEvent(new Event("ended"));
  }
}"""
"""As when another app takes the camera, or it is unplugged: the browser ends its tracks."""
COUNT_POSITIONS = """(() => {
  const { geolocation } = navigator;
  const watch = geolocation.watchPosition.bind(geolocation);
  window.positions = 0;
  geolocation.watchPosition = (found, ...others) =>
    watch((position) => (found(position), (window.positions += 1)), ...others);
})();"""
JOBS = "#film-job"


def began_long_ago(route: Route) -> None:
    """Answer with a LIVE session that is older than its longest time of five minutes."""
    answer = route.fetch()
    body = answer.json()
    if body["data"]["state"] == "LIVE":
        body["data"] |= {"startedAt": "2026-01-01T00:00:00.000Z", "maxDurationSeconds": 300}
    route.fulfill(response=answer, body=json.dumps(body))


def test_a_declined_job_leaves_the_film_page_and_comes_back_in_no_tab(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url, place=TURKU) as consumer, a_tab(browser, server.url) as operator:
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        add_funds(consumer)
        sign_up(operator, "Pier Cams", "both")
        with a_tab(browser, server.url, PHONE, place=TURKU) as phone:
            come_online(phone, camera_link(operator))
            request_view(consumer, "The cathedral")
            operator.shows(JOBS)
            expect(phone.page.locator("[data-map=ready] .map-fence")).to_be_visible(timeout=PATIENCE_MS)
            phone.click("#decline")
            phone.shows(".confirm", "Decline this request?")
            phone.click(".confirm button:text-is('Cancel')")
            start, refuse = (phone.page.locator(each).bounding_box() for each in ("#start", "#decline"))
            assert start is not None
            assert refuse is not None
            assert refuse["y"] - start["y"] - start["height"] >= 40, "nobody presses it in place of Start filming"
            decline(phone)
            phone.shows(".notice", "Declined")
            consumer.shows("#reopened", "The operator declined.")
            consumer.click("#dispatch")
            consumer.shows(".notice", "Nobody else is there now. The request stays open.")
            expect(operator.page.locator(JOBS)).to_have_count(0)
            consumer.click("#cancel")
            consumer.shows(".stage #ask-again")
            expect(consumer.page.locator(".notice"), "the request is not open any more").to_have_count(0, timeout=4_000)
            # A tab that is opened later receives the events that the first tab received.
            later = operator.page.context.new_page()
            later.goto(f"{server.url}/console/#/operate")
            expect(later.locator(".badge.online").first).to_be_visible()
            expect(later.locator(JOBS)).to_have_count(0)
            phone.page.reload()
            request_view(consumer, "The market")
            expect(later.locator(JOBS)).to_be_visible()
            decline(phone)
            expect(later.locator(JOBS)).to_have_count(0)
            expect(operator.page.locator(JOBS)).to_have_count(0)
            later.reload()
            expect(later.locator(".badge.online").first).to_be_visible()
            expect(later.locator(JOBS)).to_have_count(0)


@pytest.mark.nightly(
    "tests/console/faults/test_phones.py::test_a_declined_job_leaves_the_film_page_and_comes_back_in_no_tab"
)
def test_a_job_is_declined_on_the_page_that_lists_it_and_its_request_stays_open(
    browser: Browser, server: ConsoleServer
):
    with a_tab(browser, server.url, place=RAUMA) as consumer, a_tab(browser, server.url) as operator:
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        add_funds(consumer)
        sign_up(operator, "Pier Cams", "SUPPLIER")
        with a_tab(browser, server.url, PHONE, place=RAUMA) as phone:
            come_online(phone, camera_link(operator))
            request_view(consumer, "The old town")
            operator.shows(".card:has(#film-job)", "Must start within")
            operator.click("#decline")
            operator.shows(".confirm", "Decline this request?")
            operator.click("#decline-sure")
            expect(operator.page.locator(JOBS)).to_have_count(0)
            consumer.shows(".badge.requested")
            assert operator.problems == []


def test_a_phone_without_a_position_says_so_at_its_top_and_asks_again_without_a_reload(
    browser: Browser, server: ConsoleServer
):
    review = Review()
    with (
        a_tab(browser, server.url, place=VAASA) as consumer,
        a_tab(browser, server.url) as operator,
        a_tab(browser, server.url, PHONE, place=VAASA) as phone,
    ):
        # After a reload within a second, the sequence of the first position may be too low; the page then raises it.
        phone.allowed = (*phone.allowed, r"409 \(\w+\) \S*/location")
        sign_up(operator, "Pier Cams", "SUPPLIER")
        come_online(phone, camera_link(operator))
        phone.page.context.clear_permissions()
        phone.page.context.grant_permissions(["camera", "microphone"])
        phone.shows("#no-position[role=alert]", "The position is not allowed")
        phone.shows(".badge.paused", "No position")
        phone.page.reload()
        phone.shows("#no-position", "The position is not allowed")
        phone.shows(".badge.paused", "No position")
        expect(phone.page.locator(".badge.online")).to_have_count(0)
        phone.page.evaluate("scrollTo(0, 0)")
        button = phone.page.locator("#no-position button", has_text="Check the position again").bounding_box()
        assert button is not None
        assert button["y"] + button["height"] < PHONE["height"] / 2, "on the first screen, above the picture"
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        add_funds(consumer)
        request_view(consumer, "The market")
        expect(phone.page.locator("#start")).to_be_disabled(timeout=PATIENCE_MS)
        phone.shows(".banner:has(#decline)", "The position is not allowed. Allow it for this page")
        review.look(phone, "camera-no-position", (PHONE,))
        phone.page.context.grant_permissions(["camera", "microphone", "geolocation"])
        expect(phone.page.locator("#start")).to_be_enabled(timeout=PATIENCE_MS)
        decline(phone)
        phone.shows(".badge.online")
        expect(phone.page.locator("#no-position")).to_have_count(0)
        phone.page.add_init_script(ASKS_AT_A_PRESS)
        phone.page.reload()
        phone.shows("#no-position", "The position is not allowed")
        phone.page.locator("#no-position button", has_text="Check the position again").click()
        phone.shows("#no-position", "Checking the position…")
        expect(phone.page.locator("#no-position")).not_to_contain_text("not allowed")
        phone.page.evaluate("window.answer()")
        phone.shows(".badge.online")
        expect(phone.page.locator("#no-position")).to_have_count(0)
        review.done(consumer, operator, phone)


@pytest.mark.nightly("tests/console/test_walk.py::test_a_stranger_gets_to_a_verified_receipt_by_clicks")
def test_a_camera_with_light_and_zoom_offers_them_and_another_does_not(browser: Browser, server: ConsoleServer):
    review = Review()
    with a_tab(browser, server.url) as operator, a_tab(browser, server.url, PHONE, place=KEMI) as phone:
        sign_up(operator, "Pier Cams", "SUPPLIER")
        # After a reload within a second, the sequence of the first position may be too low; the page then raises it.
        phone.allowed = (*phone.allowed, r"409 \(\w+\) \S*/location")
        come_online(phone, camera_link(operator))
        expect(phone.page.locator("#microphone")).to_be_visible()
        expect(phone.page.locator("#torch, #zoom")).to_have_count(0)
        phone.page.add_init_script(LIGHT_AND_ZOOM)
        phone.page.reload()
        phone.click("#torch")
        phone.shows("#torch", "on")
        phone.page.locator("#zoom").fill("3")
        phone.until('() => JSON.stringify(window.lens) === \'{"torch":true,"zoom":3}\'')
        phone.shows(".badge.online")
        review.look(phone, "camera-light-and-zoom", (PHONE,))
        phone.click("#torch")
        phone.shows("#torch", "off")
        review.done(operator, phone)


@pytest.mark.nightly(
    "tests/console/faults/test_phones.py::test_a_phone_without_a_camera_gets_no_request_until_it_can_film_again"
)
def test_a_camera_that_stops_while_it_films_is_named_and_can_be_opened_again(browser: Browser, server: ConsoleServer):
    with (
        a_tab(browser, server.url, place=LOVIISA) as consumer,
        a_tab(browser, server.url) as operator,
        a_tab(browser, server.url, PHONE, place=LOVIISA) as phone,
    ):
        sign_up(operator, "Pier Cams", "SUPPLIER")
        come_online(phone, camera_link(operator))
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        add_funds(consumer)
        request_view(consumer, "The harbour")
        phone.click("#start")
        consumer.picture("playing", within_ms=PATIENCE_MS)
        phone.page.evaluate(LOSE_THE_CAMERA)
        phone.shows(".cover[role=alert]", "Another program uses the camera")
        phone.shows(".page-head .badge.paused", "No camera")
        phone.shows("#sending:not(.recording)", "No camera")
        phone.page.evaluate("window.isCameraFree = true")
        phone.shows("#sending[data-sending=sending]")
        consumer.picture("playing", within_ms=PATIENCE_MS)
        # Where the browser does not say that it would ask nobody, the page waits for a press.
        phone.page.evaluate("() => void (navigator.permissions.query = () => Promise.reject(new TypeError('camera')))")
        phone.page.evaluate(LOSE_THE_CAMERA)
        phone.shows(".cover[role=alert]", "Another program uses the camera")
        phone.page.evaluate("window.isCameraFree = true")
        phone.click(".cover button:has-text('Check the camera again')")
        phone.shows("#sending[data-sending=sending]")
        # A camera that can be had again at once needs no press either.
        phone.page.evaluate(LOSE_THE_CAMERA.replace("isCameraFree = false", "isCameraFree = true"))
        phone.shows("#sending[data-sending=sending]")
        expect(phone.page.locator(".cover[role=alert]")).to_have_count(0)
        stop_filming(phone)
        consumer.shows("#to-receipt")


def test_a_phone_without_a_camera_gets_no_request_until_it_can_film_again(browser: Browser, server: ConsoleServer):
    review = Review()
    with (
        a_tab(browser, server.url, place=OULU) as consumer,
        a_tab(browser, server.url) as operator,
        a_tab(browser, server.url, PHONE, place=OULU) as phone,
    ):
        sent: list[str] = []
        phone.page.on("request", lambda request: sent.append(request.url) if "/location" in request.url else None)
        phone.page.add_init_script(COUNT_POSITIONS)
        sign_up(operator, "Pier Cams", "SUPPLIER")
        come_online(phone, camera_link(operator))
        phone.page.evaluate(LOSE_THE_CAMERA)
        phone.shows("#no-requests", "No requests come to this phone until its camera works.")
        phone.shows(".badge.paused", "No camera")
        expect(phone.page.locator("main")).not_to_contain_text("the whole workspace")  # no control is beside it
        review.look(phone, "camera-no-camera", (PHONE,))
        sent.clear()
        phone.until("(before) => window.positions >= before + 3", phone.page.evaluate("window.positions"))
        assert sent == [], "a phone that sends positions is sent requests"
        with phone.page.expect_request("**/location", timeout=PATIENCE_MS):
            phone.page.evaluate("window.isCameraFree = true")
        phone.shows(".badge.online")
        expect(phone.page.locator("#no-requests, .cover[role=alert]")).to_have_count(0)
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        add_funds(consumer)
        request_view(consumer, "The market hall")
        phone.shows("#start:not([disabled])")
        phone.page.evaluate(LOSE_THE_CAMERA)
        phone.shows(".banner.warn:has(#decline)", "Another program uses the camera. Close it, then try again.")
        expect(phone.page.locator("#start")).to_be_disabled()
        decline(phone)
        phone.click("#no-requests button:text-is('Go offline')")
        phone.shows(".badge.offline")
        review.done(consumer, operator, phone)


@pytest.mark.nightly(
    "tests/console/faults/test_phones.py::test_a_declined_job_leaves_the_film_page_and_comes_back_in_no_tab"
)
def test_an_operator_that_declines_late_is_told_how_long_others_are_asked_before_it(
    browser: Browser, server: ConsoleServer
):
    review = Review()
    with all_three(browser, server.url, SALO) as (consumer, operator, phone):
        request_view(consumer, "The river")
        phone.shows("#decline-hint", "Declining now counts as a no-show")  # 20 s after the assignment
        decline(phone)
        phone.shows(
            "#passed-over", re.compile(r"Others are asked before you, and you cannot accept, for another 0:[0-5]\d\.")
        )
        operator.shows("#passed-over", "was not filmed")
        review.look(phone, "camera-passed-over", (PHONE,))
        review.done(consumer, operator, phone)


@pytest.mark.nightly("tests/console/test_walk.py::test_a_stranger_gets_to_a_verified_receipt_by_clicks")
def test_the_clocks_of_a_camera_and_of_a_running_view_stop_at_the_longest_time(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url, place=PORVOO) as consumer, a_tab(browser, server.url) as operator:
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        add_funds(consumer)
        sign_up(operator, "Pier Cams", "SUPPLIER")
        with a_tab(browser, server.url, PHONE, place=PORVOO) as phone:
            come_online(phone, camera_link(operator))
            session_id = request_view(consumer, "The old town")
            phone.page.route(f"**/api/v1/sessions/{session_id}", began_long_ago)
            phone.click("#start")
            phone.shows("#filmed", re.compile("^5:00$"))
            consumer.page.route(f"**/api/v1/sessions/{session_id}", began_long_ago)
            consumer.go("wallet")
            consumer.shows(".running .number >> nth=1", re.compile("^5:00$"))
            stop_filming(phone)


def test_a_phone_that_was_away_when_its_job_ended_shows_the_next_one(browser: Browser, server: ConsoleServer):
    with all_three(browser, server.url, HAMINA) as (consumer, _operator, phone):
        phone.allowed = (r"ERR_(INTERNET_DISCONNECTED|ABORTED)", r"TypeError")
        request_view(consumer, "North gate")
        phone.shows(".job", "North gate")
        phone.page.context.set_offline(True)
        consumer.page.locator("button:has-text('Cancel the request')").click()
        consumer.shows("#ask-again")
        phone.page.context.set_offline(False)
        expect(phone.page.locator("#start")).to_have_count(0)
        request_view(consumer, "South gate")
        phone.shows(".job", "South gate")
        decline(phone)


def test_of_two_phones_with_one_key_one_films_and_the_other_can_take_over(browser: Browser, server: ConsoleServer):
    review = Review()
    with (
        a_tab(browser, server.url, place=KOTKA) as consumer,
        a_tab(browser, server.url, place=KOTKA) as operator,
        a_tab(browser, server.url, PHONE, place=KOTKA) as first,
        a_tab(browser, server.url, PHONE, place=KOTKA) as second,
    ):
        sign_up(operator, "Pier Cams", "SUPPLIER")
        link = camera_link(operator)
        come_online(first, link)
        sign_up(consumer, "Harbour Watch", "CONSUMER")
        add_funds(consumer)
        request_view(consumer, "The ferry")
        first.click("#start")
        consumer.picture("playing", within_ms=PATIENCE_MS)
        first.page.reload()
        first.shows("#sending[data-sending=sending]")

        second.page.goto(link)
        second.shows("#film-instead")
        expect(second.page.locator("#sending, #stop")).to_have_count(0)
        review.look(second, "camera-filmed-elsewhere")
        expect(first.page.locator("#other-device")).to_have_count(0)
        for taking, leaving in ((second, first), (first, second)):
            taking.click("#film-instead")
            leaving.shows("#film-instead")
            taking.shows("#sending[data-sending=sending]")
            expect(taking.page.locator("#other-device, #film-instead")).to_have_count(0)
        # A phone that is away while another one takes over hears of it when it is back.
        first.page.context.set_offline(True)
        second.click("#film-instead")
        second.shows("#sending[data-sending=sending]")
        first.page.context.set_offline(False)
        first.shows("#film-instead")
        second.shows("#sending[data-sending=sending]")
        expect(second.page.locator("#other-device, #film-instead")).to_have_count(0)
        consumer.picture("playing", within_ms=PATIENCE_MS)
        consumer.shows(".badge.live")
        # A phone that is gone leaves a view that ends by itself, unless another one goes on.
        second.page.close()
        first.shows("#film-instead.main")
        first.shows(".page-head .badge.paused", "Paused")
        first.shows(".card .banner.warn", "The device that films it sends nothing.")
        first.shows(".card .banner.warn", re.compile(r"ends by itself in [0-2]:[0-5]\d"))
        review.look(first, "camera-paused-elsewhere", (PHONE,))
        first.click("#film-instead")
        first.shows("#sending[data-sending=sending]")
        consumer.shows(".badge.live")
        stop_filming(first)
        consumer.shows("#to-receipt")
        for phone in (first, second):
            phone.allowed += (r"404 \([\w ]+\) \S*/whip/",)
        review.done(consumer, operator)


@pytest.mark.nightly(
    "tests/console/faults/test_phones.py::test_of_two_phones_with_one_key_one_films_and_the_other_can_take_over"
)
def test_a_phone_says_that_another_one_set_it_online_and_that_its_key_was_revoked(
    browser: Browser, server: ConsoleServer
):
    review = Review()
    with (
        a_tab(browser, server.url, place=TORNIO) as operator,
        a_tab(browser, server.url, PHONE, place=TORNIO) as first,
        a_tab(browser, server.url, PHONE, place=TORNIO) as second,
    ):
        for phone in (first, second):
            phone.allowed += (r"409 \([\w ]+\) \S*/location",)  # each is ahead of the other one's heartbeats at times
        sign_up(operator, "Pier Cams", "SUPPLIER")
        link = camera_link(operator)
        come_online(first, link)
        second.page.goto(link)
        second.click("button:has-text('Go offline')")
        first.shows("#changed-elsewhere", "offline")
        review.look(first, "camera-set-offline", (PHONE,))
        expect(second.page.locator("#changed-elsewhere")).to_have_count(0)
        first.click("#go-online")
        second.shows("#changed-elsewhere", "online")
        expect(first.page.locator("#changed-elsewhere")).to_have_count(0)

        second.allowed += (r"401 \(",)
        body = {"statusCode": 401, "code": "REVOKED_API_KEY", "message": "API key revoked"}
        second.page.route("**/location*", lambda route: route.fulfill(status=401, body=json.dumps(body)))
        second.shows(".empty h1", "This link no longer works")
        review.done(operator, first, second)
