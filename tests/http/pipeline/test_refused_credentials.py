"""Who keeps presenting wrong credentials is told to wait; who shares the address with them is not."""

from typing import Any

import httpx

from sightline.http.budgets import RateLimits

THING = "things/0a000000-0000-4000-8000-000000000003"
LIMITS = RateLimits.parse("failed=0.05/3")


def bearing(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def refused(http: httpx.AsyncClient, door: str, times: int, **headers: str) -> list[int]:
    answers = [await http.get(f"/{door}/{THING}", headers=headers or bearing("wrong")) for _ in range(times)]
    return [answer.status_code for answer in answers]


async def test_refused_credentials_beyond_the_budget_are_told_to_wait(running: Any, door: str) -> None:
    async with running(rate_limits=LIMITS) as app:
        assert await refused(app.http, door, 5) == [401, 401, 401, 429, 429]
        answer = await app.http.get(f"/{door}/{THING}", headers=bearing("wrong"))
        assert (answer.json()["code"], answer.json()["detail"]) == ("RATE_LIMITED", "rate:failed")
        assert 1 <= int(answer.headers["retry-after"]) <= 20
        assert answer.headers["ratelimit-policy"] == '"failed";q=3;w=60'
        assert "www-authenticate" not in answer.headers


async def test_a_good_credential_is_not_refused_for_what_others_at_its_address_do(running: Any, door: str) -> None:
    async with running(rate_limits=LIMITS) as app:
        assert (await refused(app.http, door, 4))[-1] == 429
        for _ in range(10):
            answer = await app.http.get(f"/{door}/{THING}", headers=bearing("reader"))
            assert answer.status_code == 200
        assert (await app.http.get(f"/{door}/public")).status_code == 200


async def test_each_address_has_a_budget_of_its_own(running: Any, door: str) -> None:
    async with running(rate_limits=LIMITS) as app:
        assert (await refused(app.http, door, 4))[-1] == 429
        transport = httpx.AsyncHTTPTransport(local_address="127.0.0.2")
        async with httpx.AsyncClient(base_url=app.bound.url, transport=transport) as elsewhere:
            assert await refused(elsewhere, door, 4) == [401, 401, 401, 429]


async def test_a_wrong_cookie_counts_and_a_request_without_credential_does_not(running: Any, door: str) -> None:
    async with running(rate_limits=LIMITS) as app:
        for _ in range(5):
            assert (await app.http.get(f"/{door}/{THING}")).status_code == 401
        assert await refused(app.http, door, 4, cookie="svc_session=forged") == [401, 401, 401, 429]
        assert (await app.http.get(f"/{door}/{THING}")).status_code == 401


async def test_the_limit_is_switched_off_with_the_others(running: Any, door: str) -> None:
    limits = RateLimits.parse("failed=1/1", is_enabled=False)
    async with running(rate_limits=limits) as app:
        assert set(await refused(app.http, door, 5)) == {401}
