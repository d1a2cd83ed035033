"""Who outlives whom: clients leave, servers stop, streams end."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import trio

from sightline.http.budgets import Budget, RateClass, RateLimits
from sightline.http.pipeline.errors import ApiError
from sightline.http.pipeline.rate_limit import RateLimiter

ID = "3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44"


async def test_a_change_goes_on_when_its_client_has_left(running: Any, door: str) -> None:
    async with running() as app:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(app.http.post, f"/{door}/slow")
            await app.stage.entered.wait()
            nursery.cancel_scope.cancel()
        for _ in range(5):
            await app.http.get(f"/{door}/public")
        app.stage.go.set()
        await app.stage.finished.wait()


async def test_a_change_in_flight_is_finished_before_the_server_stops(running: Any, door: str) -> None:
    async with running() as app:
        answers: list[httpx.Response] = []

        async def post() -> None:
            answers.append(await app.http.post(f"/{door}/slow"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(post)
            await app.stage.entered.wait()
            app.shutdown.set()
            app.stage.go.set()
        assert answers[0].status_code == 200


class Reader:
    """A client of a stream that can stop in the middle, which httpx's generators cannot."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.heard = b""

    async def until(self, wanted: bytes) -> None:
        while wanted not in self.heard:
            data = await self.stream.receive_some()
            assert data, f"ended before {wanted!r}: {self.heard!r}"
            self.heard += data


@asynccontextmanager
async def reading(app: Any, path: str) -> AsyncIterator[Reader]:
    stream = await trio.open_tcp_stream(app.bound.host, app.bound.port)
    try:
        await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: t\r\n\r\n".encode())
        yield Reader(stream)
    finally:
        await trio.aclose_forcefully(stream)


async def test_a_stream_flows_and_ends_with_its_client(running: Any, door: str) -> None:
    async with running() as app:
        async with reading(app, f"/{door}/stream") as reader:
            await reader.until(b"data: 1\n\n")
            assert b"content-type: text/event-stream\r\n" in reader.heard
            app.stage.go.set()
            await reader.until(b"data: 2\n\n")
        await app.stage.cancelled.wait()
        await app.stage.observed.wait()
        assert app.stage.calls == [(f"/{door}/stream", "GET", 200)]


async def test_the_head_of_a_stream_ends(running: Any, door: str) -> None:
    async with running() as app:
        answer = await app.http.head(f"/{door}/stream")
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream")
        assert len(app.stage.calls) == 1


async def test_a_stream_ends_with_the_server(running: Any, door: str) -> None:
    async with running() as app, reading(app, f"/{door}/stream") as reader:
        await reader.until(b"data: 1\n\n")
        app.shutdown.set()
        await app.stage.cancelled.wait()


async def test_a_budget_is_spent_refused_and_told(running: Any, door: str) -> None:
    limits = RateLimits(budgets={RateClass.LIST: Budget(0.1, 2)})
    async with running(rate_limits=limits) as app:
        first, second, third = [await app.http.get(f"/{door}/limited") for _ in range(3)]
        assert [each.status_code for each in (first, second, third)] == [200, 200, 429]
        assert first.headers["ratelimit-policy"] == '"list";q=2;w=20'
        assert first.headers["ratelimit"] == '"list";r=1;t=10'
        assert third.headers["ratelimit"].startswith('"list";r=0;t=')
        assert third.json()["code"] == "RATE_LIMITED"
        assert third.json()["message"] == "Too many requests"
        assert int(third.headers["retry-after"]) in (9, 10)
        assert (await app.http.get(f"/{door}/public")).status_code == 200


async def test_budgets_can_be_switched_off(running: Any, door: str) -> None:
    limits = RateLimits(is_enabled=False, budgets={RateClass.LIST: Budget(0.1, 1)})
    async with running(rate_limits=limits) as app:
        for _ in range(3):
            answer = await app.http.get(f"/{door}/limited")
            assert answer.status_code == 200
            assert "ratelimit" not in answer.headers


@pytest.mark.parametrize("per_s", [0.3, 4, 50])
def test_in_the_long_run_a_bucket_lets_through_its_rate_and_its_burst(per_s: float) -> None:
    limiter = RateLimiter(RateLimits(budgets={RateClass.LIST: Budget(per_s, 7)}))
    allowed = 0
    steps = 4000
    for step in range(steps):
        try:
            limiter.take(RateClass.LIST, "k", 1000 + step * 0.01)
            allowed += 1
        except ApiError:
            continue
    assert allowed == pytest.approx(7 + per_s * steps * 0.01, abs=1.01)


def test_buckets_of_different_keys_are_apart() -> None:
    limiter = RateLimiter(RateLimits(budgets={RateClass.LIST: Budget(1, 1)}))
    for number in range(60_000):
        limiter.take(RateClass.LIST, str(number), number / 1000)
    limiter.take(RateClass.LIST, "0", 60)
