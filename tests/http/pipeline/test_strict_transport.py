"""Strict-Transport-Security is said where callers come by https, and nowhere else."""

from pathlib import Path
from typing import Any

import pytest
import trio

from sightline.config import Settings
from sightline.http.server import Bound

YEAR_S = 31_536_000
THING = "things/0a000000-0000-4000-8000-000000000003"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, None),
        ({"public_url": "http://live.example"}, None),
        ({"public_url": "https://live.example"}, YEAR_S),
        ({"public_url": "HTTPS://live.example"}, YEAR_S),
        ({"tls_cert": Path("cert.pem"), "tls_key": Path("key.pem")}, YEAR_S),
        ({"public_url": "https://live.example", "strict_transport_seconds": 600}, 600),
        ({"public_url": "https://live.example", "strict_transport_seconds": 0}, None),
        ({"strict_transport_seconds": 600}, None),
    ],
)
def test_it_is_said_with_tls_of_our_own_or_a_public_url_of_https(settings: dict[str, Any], said: int | None) -> None:
    assert Settings(**settings).strict_transport_s == said


async def refused_by_the_server(bound: Bound) -> bytes:
    """What a request is answered that no application sees."""
    stream = await trio.open_tcp_stream(bound.host, bound.port)
    async with stream:
        await stream.send_all(b"NONSENSE\r\n\r\n")
        heard = b""
        async for part in stream:
            heard += part
    return heard.lower()


async def test_every_answer_says_it(running: Any, door: str) -> None:
    async with running(strict_transport_s=YEAR_S) as app:
        for path, status in ((f"/{door}/public", 200), (f"/{door}/{THING}", 401), ("/nowhere", 404)):
            answer = await app.http.get(path)
            assert (answer.status_code, answer.headers["strict-transport-security"]) == (status, "max-age=31536000")
        assert b"strict-transport-security: max-age=31536000\r\n" in await refused_by_the_server(app.bound)


async def test_no_answer_says_it_over_http(running: Any, door: str) -> None:
    async with running() as app:
        for path in (f"/{door}/public", "/nowhere"):
            assert "strict-transport-security" not in (await app.http.get(path)).headers
        assert b"strict-transport-security" not in await refused_by_the_server(app.bound)
