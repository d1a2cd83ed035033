"""Web Push in Chromium: the switch of the console, the notification of its service worker, and what a press opens.

Chromium in a test has no push service, so `PushManager.subscribe` answers with the keys of a browser of the test, and
the push service is a server of the test. What it gets is decrypted and delivered to the worker, as the browser would.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from threading import Thread
from typing import Any

import pytest
from playwright.sync_api import Browser, Route

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
from tests.webhooks.push_browser import PushBrowser

BREMEN = (53.079296, 8.801694)
SUBSCRIBE = """PushManager.prototype.subscribe = async function ({ applicationServerKey, userVisibleOnly }) {
  if (!userVisibleOnly || applicationServerKey.length !== 65) throw new TypeError("not as Chromium asks for it");
  return { toJSON: () => (SUBSCRIPTION) };
};"""
SHOWN = """async () => {
  const worker = await navigator.serviceWorker.ready;
  return (await worker.getNotifications()).map(({ title, body, tag }) => ({ title, body, tag }));
}"""
IS_SHOWN = "async (tag) => (await (await navigator.serviceWorker.ready).getNotifications({ tag })).length === 1"
PRESS = """async (tag) => {
  const [notification] = await self.registration.getNotifications({ tag });
  self.dispatchEvent(new NotificationEvent("notificationclick", { notification }));
}"""


@contextmanager
def a_push_service() -> Iterator[tuple[str, "Queue[bytes]"]]:
    """Its URL, and the messages that it gets."""
    got: Queue[bytes] = Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.put(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(201)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as service:
        thread = Thread(target=service.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{service.server_address[1]}/push", got
        finally:
            service.shutdown()
            thread.join()


def with_push(tab: Tab, endpoint: str) -> PushBrowser:
    """Give a tab a push service and the permission to show notifications."""
    browser = PushBrowser()
    subscription = json.dumps({"endpoint": endpoint, "keys": browser.keys})
    tab.page.add_init_script(SUBSCRIBE.replace("SUBSCRIPTION", subscription))
    tab.page.context.grant_permissions(["geolocation", "camera", "microphone", "notifications"])
    return browser


def deliver(tab: Tab, message: bytes) -> None:
    """Hand a decrypted message to the service worker of the tab, and wait until it is shown."""
    session = tab.page.context.new_cdp_session(tab.page)
    found: list[str] = []
    session.on(
        "ServiceWorker.workerRegistrationUpdated",
        lambda event: found.extend(each["registrationId"] for each in event["registrations"]),
    )
    session.send("ServiceWorker.enable")
    tab.page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    # Events of the browser are handed out while Playwright waits; nothing else tells that one has come.
    for _ in range(PATIENCE_MS // 50):
        if found:
            break
        tab.page.wait_for_timeout(50)
    assert found, "the browser names no service worker"
    said = {"origin": tab.url, "registrationId": found[-1], "data": message.decode()}
    session.send("ServiceWorker.deliverPushMessage", said)
    # Chromium answers before the worker has the message, and drops it if the client leaves at once.
    tab.until(IS_SHOWN, json.loads(message)["sessionId"])
    session.detach()


def press(tab: Tab, tag: str) -> None:
    """Press the notification, as far as a test can: without the user's gesture, which only opening a window needs."""
    (worker,) = tab.page.context.service_workers
    worker.evaluate(PRESS, tag)


def test_a_job_is_shown_by_the_worker_of_a_phone_and_a_press_opens_it_on_the_camera(
    browser: Browser, server: ConsoleServer
):
    with (
        a_push_service() as (endpoint, got),
        a_tab(browser, server.url, place=BREMEN) as consumer,
        a_tab(browser, server.url, place=BREMEN) as operator,
        a_tab(browser, server.url, PHONE, place=BREMEN) as phone,
    ):
        keys = with_push(phone, endpoint)
        sign_up(consumer, "Market Eyes", "CONSUMER")
        add_funds(consumer)
        sign_up(operator, "Market Cams", "SUPPLIER")
        come_online(phone, camera_link(operator))
        phone.click("#camera-menu summary")
        phone.click("#job-alerts")
        phone.shows("#job-alerts", "on")
        phone.go("start")
        session_id = request_view(consumer, "Is the market open?")

        message = keys.decrypt(got.get(timeout=PATIENCE_MS / 1_000))
        told: dict[str, Any] = json.loads(message)
        assert (told["sessionId"], told["lat"], told["lng"]) == (session_id, 53.08, 8.8)
        deliver(phone, message)
        (notification,) = phone.page.evaluate(SHOWN)
        assert "53.08, 8.8" in notification["body"]
        assert "market open" not in json.dumps(notification)

        press(phone, session_id)
        phone.page.wait_for_url("**/#/camera", timeout=PATIENCE_MS)
        phone.shows("#start")
        assert phone.page.evaluate(SHOWN) == []
        assert phone.problems == []


@pytest.mark.nightly(
    "tests/console/files/test_push.py::test_a_job_is_shown_by_the_worker_of_a_phone_and_a_press_opens_it_on_the_camera"
)
def test_a_press_opens_the_job_at_the_desk_and_alerts_end_by_the_switch_also_during_a_renewal(
    browser: Browser, server: ConsoleServer
):
    with a_push_service() as (endpoint, _), a_tab(browser, server.url, place=BREMEN) as operator:
        with_push(operator, endpoint)
        sign_up(operator, "Desk Cams", "SUPPLIER")
        operator.go("operate")
        operator.click("#job-alerts")
        operator.shows("#job-alerts", "on")
        operator.page.reload()
        operator.shows("#job-alerts", "on")
        job = "00000000-0000-4000-8000-000000000000"
        message = {"sessionId": job, "lat": 53.08, "lng": 8.8, "maxDurationSeconds": 61}
        deliver(operator, json.dumps(message).encode())
        assert operator.page.evaluate(SHOWN) == [
            {"title": "A job waits", "body": "Near 53.08, 8.8, up to 2 min", "tag": job}
        ]
        operator.allowed = (r"404 \([\w ]+\) \S*/sessions/",)
        press(operator, job)
        operator.page.wait_for_url(f"**/#/watch/{job}", timeout=PATIENCE_MS)
        held: list[Route] = []
        operator.page.route(
            "**/api/v1/push-subscriptions",
            lambda route: held.append(route) if route.request.method == "POST" else route.continue_(),
        )
        with operator.page.expect_request(lambda request: request.method == "POST"):
            operator.go("operate")
        operator.click("#job-alerts")
        operator.until("() => document.querySelector('#job-alerts').getAttribute('aria-busy') === 'true'")
        held.pop().continue_()
        operator.shows("#job-alerts", "off")
        left = operator.page.evaluate("fetch('/api/v1/push-subscriptions').then((answer) => answer.json())")
        assert left["data"]["items"] == []
        assert operator.problems == []
