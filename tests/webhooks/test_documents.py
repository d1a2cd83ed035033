"""Documents of strangers: read from public addresses only, small, without redirects, and within a time limit."""

import pytest
import trio

from sightline.webhooks.documents import PublicDocuments
from sightline.webhooks.http_client import WebhookClientOptions
from tests.webhooks.receiver import DROP, Answer, open_receiver


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (Answer(200, body=b"{}"), b"{}"),
        (Answer(200, body=b"x" * 100), b"x" * 100),
        (Answer(200, body=b"x" * 101), None),
        (Answer(404, body=b"{}"), None),
        (Answer(302, {"location": "http://127.0.0.1/other"}), None),
        (DROP, None),
    ],
)
async def test_a_document_is_read_if_it_is_small_and_at_its_url(answer: Answer, found: bytes | None) -> None:
    async with open_receiver(lambda _: answer) as receiver:
        documents = PublicDocuments(WebhookClientOptions(allows_loopback=True), bytes_max=100)
        assert await documents.get(receiver.url("/client.json")) == found
        assert len(receiver.received) == 1, "no redirect is followed"


async def test_a_document_in_the_servers_own_network_is_not_asked_for() -> None:
    async with open_receiver(lambda _: Answer(200, body=b"{}")) as receiver:
        inside = PublicDocuments(WebhookClientOptions(), bytes_max=100)
        assert await inside.get(receiver.url("/client.json")) is None

        async def rebinding(_host: str, _port: int) -> list[str]:
            await trio.lowlevel.checkpoint()
            return ["93.184.216.34", "127.0.0.1"]

        named = PublicDocuments(WebhookClientOptions(resolve=rebinding), bytes_max=100)
        assert await named.get("http://client.example/client.json") is None
        assert receiver.received == []


async def test_a_server_that_does_not_answer_gives_no_document(autojump_clock: trio.testing.MockClock) -> None:
    async def never(_host: str, _port: int) -> list[str]:
        await trio.sleep_forever()
        return []

    silent = PublicDocuments(WebhookClientOptions(resolve=never), bytes_max=100)
    assert await silent.get("https://client.example/client.json") is None
