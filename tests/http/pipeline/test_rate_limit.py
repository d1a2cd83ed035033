"""Rate limits: the budgets of workspaces and addresses, the cost of a batch, and the setting."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from sightline.http.budgets import Budget, RateClass, RateLimits
from sightline.http.pipeline.errors import ApiError
from sightline.http.pipeline.rate_limit import RateLimiter, address_key
from tests.http.world import BERLIN, Client, World, WorldOptions, data_of, error_of, open_world

UNKNOWN = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
async def limited(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A server with these budgets."""
    async with open_world(WorldOptions(rate_limits=RateLimits.parse(request.param))) as world:
        yield world


def statuses(answers: list[httpx.Response]) -> list[int]:
    return [answer.status_code for answer in answers]


@pytest.mark.parametrize("limited", ["default=0.01/6,list=100/100"], indirect=True)
async def test_keys_and_wallets_of_one_workspace_share_its_budget(limited: World) -> None:
    party, other = await limited.party("CONSUMER"), await limited.party("CONSUMER")
    # Minting the key took one token.
    second_key = await party.mint("sessions:read")
    answers = [await client.get(party.path) for client in (party.key, second_key, party.wallet, party.key, second_key)]
    assert statuses(answers) == [200, 200, 200, 200, 429]
    assert (await other.key.get(other.path)).status_code == 200


@pytest.mark.parametrize("limited", ["frames=0.01/3"], indirect=True)
async def test_frames_of_unknown_sessions_are_limited(limited: World) -> None:
    party = await limited.party("CONSUMER")
    answers = [await party.key.get(f"/api/v1/sessions/{UNKNOWN[:-2]}{number:02}/frame") for number in range(4)]
    assert statuses(answers) == [404, 404, 404, 429]
    assert error_of(answers[-1]) == (429, "RATE_LIMITED", "rate:frames")


@pytest.mark.parametrize("limited", ["location=0.01/4"], indirect=True)
async def test_a_batch_costs_a_token_for_each_ten_heartbeats(limited: World) -> None:
    operator = await limited.party("SUPPLIER")

    def batch(first: int, count: int) -> dict[str, Any]:
        return {"items": [BERLIN | {"sequence": first + number} for number in range(count)]}

    answer = await operator.key.post(f"{operator.path}/locations", batch(1, 21))
    data_of(answer)
    assert answer.headers["ratelimit"].startswith('"location";r=1;')
    data_of(await operator.key.post(f"{operator.path}/location", BERLIN | {"sequence": 22}))
    assert (await operator.key.post(f"{operator.path}/locations", batch(23, 1))).status_code == 429


@pytest.mark.parametrize("limited", ["clip=0.01/3"], indirect=True)
async def test_clips_of_a_session_are_limited(limited: World) -> None:
    consumer, operator = await limited.party("CONSUMER"), await limited.party("SUPPLIER")
    session = await limited.live(consumer, operator)
    answers = [await consumer.key.get(f"/api/v1/sessions/{session['id']}/clip") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [404, 404, 404, 429]
    assert error_of(answers[-1]) == (429, "RATE_LIMITED", "rate:clip")


@pytest.mark.parametrize("limited", ["default=0.01/9,frames=0.01/4,frame=0.01/2,list=9/9"], indirect=True)
async def test_guests_of_a_share_link_use_up_nothing_of_the_workspace(limited: World) -> None:
    consumer, operator = await limited.party("CONSUMER"), await limited.party("SUPPLIER")
    session = await limited.live(consumer, operator)
    path = f"/api/v1/sessions/{session['id']}"
    key = data_of(await consumer.key.post(f"{path}/shares", {}))["key"]
    guest = Client(limited, {"authorization": f"Bearer {key}"})
    assert statuses([await guest.get(f"{path}/frame") for _ in range(3)]) == [404, 404, 429]
    assert statuses([await consumer.key.get(f"{path}/frame") for _ in range(3)]) == [404, 404, 429]
    answers = [await guest.get(f"{path}/shared") for _ in range(10)]
    assert statuses(answers) == [200] * 9 + [429]
    assert (await consumer.key.get(path)).status_code == 200


@pytest.mark.parametrize("limited", ["frame=0.5/1"], indirect=True)
async def test_a_frame_call_that_may_wait_waits_for_its_token(limited: World) -> None:
    party = await limited.party("CONSUMER")
    session = await limited.request(party)
    path = f"/api/v1/sessions/{session['id']}/frame"
    # The session is not LIVE: 409 says that the call went past the limit.
    assert statuses([await party.key.get(path), await party.key.get(path)]) == [409, 429]
    assert (await party.key.get(f"{path}?waitMs=5000")).status_code == 409


@pytest.mark.parametrize("limited", ["chain=0.01/1000"], indirect=True)
async def test_an_address_that_used_up_the_chains_cpu_time_waits_until_it_is_paid_off(limited: World) -> None:
    limited.rpc_cpu_ms = 1_200
    body = {"jsonrpc": "2.0", "id": 1, "method": "eth_call"}
    answers = [await limited.http.post("/rpc", json=body) for _ in range(2)]
    assert statuses(answers) == [200, 429]
    assert error_of(answers[1]) == (429, "RATE_LIMITED", "rate:chain")
    # The bucket goes on filling between the two calls, a ms of CPU time in 100 s.
    assert 20_100 <= int(answers[1].headers["retry-after"]) <= 20_200


def test_a_batch_larger_than_the_burst_passes_a_full_bucket_and_is_paid_off() -> None:
    limiter = RateLimiter(RateLimits(budgets={RateClass.LOCATION: Budget(1, 10)}))
    limiter.take(RateClass.LOCATION, "w", 100.0, cost=20)
    for now_s in (100.0, 110.0):
        with pytest.raises(ApiError):
            limiter.take(RateClass.LOCATION, "w", now_s)
    limiter.take(RateClass.LOCATION, "w", 111.0)


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("no:address", "no:address"),
    ],
)
def test_ipv6_addresses_are_counted_by_their_network(address: str, key: str) -> None:
    assert address_key(address) == key


def test_every_class_but_none_has_a_budget() -> None:
    assert set(RateLimits().budgets) == set(RateClass) - {RateClass.NONE}


def test_changed_budgets_are_read_on_top_of_the_defaults() -> None:
    limits = RateLimits.parse(" frame=20/40, auth=0.5/3 ")
    assert (limits.budgets[RateClass.FRAME], limits.budgets[RateClass.AUTH]) == (Budget(20, 40), Budget(0.5, 3))
    assert limits.budgets[RateClass.LIST] == RateLimits().budgets[RateClass.LIST]


@pytest.mark.parametrize(
    "text", ["frame", "frame=", "frame=1", "frame=0/1", "frame=1/0", "frame=nan/1", "frame=inf/1", "no=1/1", "none=1/1"]
)
def test_a_malformed_budget_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match=text.partition("=")[0]):
        RateLimits.parse(text)


def test_a_class_listed_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="listed twice"):
        RateLimits.parse("frame=1/1,frame=2/2")
