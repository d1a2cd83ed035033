"""One delivery attempt: the meaning of each response, and the limit on the time that an endpoint can take."""

import pytest
import trio

from sightline.system.clock import SystemClock
from sightline.webhooks.http_client import SendOutcome, WebhookClient, WebhookClientOptions, retry_after_s
from tests.webhooks.receiver import DROP, Answer, open_receiver

T0 = 1_760_000_000_000


def a_client(timeout_s: float = 15) -> WebhookClient:
    return WebhookClient(SystemClock(), WebhookClientOptions(allows_loopback=True, timeout_s=timeout_s))


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Answer(200, body=b"ok"), SendOutcome(status=200)),
        (Answer(204), SendOutcome(status=204)),
        (Answer(200, body=b"x" * 1_000_000), SendOutcome(status=200)),
        (Answer(301, {"location": "http://127.0.0.1/other"}), SendOutcome(301, "redirect_refused")),
        (Answer(410), SendOutcome(410, "bad_status")),
        (Answer(500, {"retry-after": "120"}), SendOutcome(500, "bad_status", 120)),
        (Answer(503, {"retry-after": "soon"}), SendOutcome(503, "bad_status")),
        (DROP, SendOutcome(error="connection_lost")),
    ],
)
async def test_an_answer_becomes_an_outcome(answer: Answer, outcome: SendOutcome) -> None:
    async with open_receiver(lambda _: answer) as receiver:
        client = a_client()
        assert await client.post(receiver.url(), {}, "{}") == outcome
        assert len(receiver.received) == 1, "no redirect is followed, and nothing is sent twice"
        await client.close()


async def test_the_body_arrives_as_it_is_with_its_headers() -> None:
    async with open_receiver() as receiver:
        client = a_client()
        await client.post(receiver.url("/path?x=1"), {"webhook-id": "7"}, '{"a":"ünï"}')
        await client.close()
    (received,) = receiver.received
    assert (received.path, received.body) == ("/path?x=1", '{"a":"ünï"}')
    assert received.headers["content-type"] == "application/json"
    assert received.webhook_id == "7"


async def test_a_client_that_was_closed_sends_again() -> None:
    """A server that lost the role of delivering, and got it back, sends with the same client."""
    async with open_receiver() as receiver:
        client = a_client()
        for _ in range(2):
            assert (await client.post(receiver.url(), {}, "{}")).status == 204
            await client.close()


async def stay_silent(_: trio.SocketStream) -> None:
    await trio.sleep_forever()


async def test_an_endpoint_that_accepts_and_stays_silent_is_a_timeout() -> None:
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, stay_silent, 0)
        port = listeners[0].socket.getsockname()[1]
        outcome = await a_client(timeout_s=0.2).post(f"http://127.0.0.1:{port}/", {}, "{}")
        nursery.cancel_scope.cancel()
    assert outcome == SendOutcome(error="timeout")


async def test_a_slow_name_server_is_a_timeout_too() -> None:
    async def never(host: str, port: int) -> list[str]:
        await trio.sleep_forever()
        return []

    client = WebhookClient(SystemClock(), WebhookClientOptions(resolve=never, timeout_s=0.1))
    assert await client.post("https://hooks.example.com/", {}, "{}") == SendOutcome(error="timeout")


async def test_a_closed_port_and_an_unknown_name_are_named() -> None:
    with trio.socket.socket() as reserved:
        await reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        assert (await a_client().post(f"http://127.0.0.1:{port}/", {}, "{}")).error == "connect_failed"

    async def unknown(host: str, port: int) -> list[str]:
        raise OSError("no such name")

    client = WebhookClient(SystemClock(), WebhookClientOptions(resolve=unknown))
    assert (await client.post("https://hooks.example.com/", {}, "{}")).error == "name_not_resolved"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        (" 120 ", 120),
        ("Thu, 09 Oct 2025 08:54:20 GMT", 60),
        ("Thu, 09 Oct 2025 08:52:00 GMT", 0),
        ("9999999999", None),
        ("-1", None),
        ("١٢", None),
        ("", None),
        ("Thu, 99 Oct 2025", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_date(text: str, seconds: int | None) -> None:
    assert retry_after_s(text, T0) == seconds
