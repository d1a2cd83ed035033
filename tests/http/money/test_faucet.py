"""Test money over HTTP."""

import re

import pytest
import trio

from sightline.domain.errors import OutcomeUnknownError
from sightline.http.services import ResourceOptions
from sightline.ports.chain import FaucetPayment
from tests.http.world import World, WorldOptions, data_of, error_of, open_world

PATH = "/api/v1/wallet/faucet"
TX = "0x" + "ab" * 32


class CountingFaucet:
    """A faucet that pays nothing and counts what it was asked to pay."""

    def __init__(self) -> None:
        self.paid: list[tuple[str, int]] = []
        self.is_down = False

    async def fund(self, address: str, amount_micro: int) -> FaucetPayment:
        await trio.lowlevel.checkpoint()
        self.paid.append((address, amount_micro))
        if self.is_down:
            raise OutcomeUnknownError("no answer")
        return FaucetPayment(tx_hash=TX, address=address, amount_micro=amount_micro)


def options(faucet: CountingFaucet, daily: int = 50_000_000) -> WorldOptions:
    return WorldOptions(resources=ResourceOptions(faucet_daily_micro=daily), faucet=faucet.fund)


async def test_a_wallet_gets_test_money_up_to_the_maximum_of_a_day() -> None:
    faucet = CountingFaucet()
    async with open_world(options(faucet)) as world:
        party = await world.party("CONSUMER")
        first = data_of(await party.wallet.post(PATH))
        assert first == {
            "walletAddress": party.account.address,
            "amountMicroUsdc": "10000000",
            "txHash": TX,
            "remainingMicroUsdc": "40000000",
        }
        keyed = party.key.having(idempotency_key="once")
        second = data_of(await keyed.post(PATH, {"amountMicroUsdc": "39999999"}))
        assert data_of(await keyed.post(PATH, {"amountMicroUsdc": "39999999"})) == second
        refused = await party.wallet.post(PATH, {"amountMicroUsdc": "2"})
        assert error_of(refused) == (409, "CONFLICT", "faucet:dailyMax")
        assert refused.json()["remainingMicroUsdc"] == "1"
        assert [amount for _, amount in faucet.paid] == [10_000_000, 39_999_999]
        world.clock.advance(86_400)
        assert data_of(await party.key.post(PATH, {"amountMicroUsdc": "1"}))["remainingMicroUsdc"] == "49999999"


async def test_a_lost_answer_of_the_faucet_is_an_unknown_outcome_and_counts() -> None:
    faucet = CountingFaucet()
    async with open_world(options(faucet, 100)) as world:
        party = await world.party("CONSUMER")
        faucet.is_down = True
        assert error_of(await party.wallet.post(PATH, {"amountMicroUsdc": "60"}))[:2] == (504, "OUTCOME_UNKNOWN")
        faucet.is_down = False
        assert error_of(await party.wallet.post(PATH, {"amountMicroUsdc": "41"}))[:2] == (409, "CONFLICT")


async def test_an_external_chain_and_a_maximum_of_zero_offer_no_test_money(world: World) -> None:
    for other in (None, options(CountingFaucet(), 0)):
        async with open_world(other) as opened:
            party = await opened.party("CONSUMER")
            assert error_of(await party.wallet.post(PATH)) == (404, "NOT_FOUND", "faucet:notOffered")


@pytest.mark.parametrize("amount", ["0", "-1", 5, "1.5", None, "x"])
async def test_an_amount_that_is_none_is_refused(amount: object) -> None:
    async with open_world(options(CountingFaucet())) as world:
        party = await world.party("CONSUMER")
        answer = await party.wallet.post(PATH, {"amountMicroUsdc": amount})
        assert error_of(answer) == (400, "INVALID_INPUT", "faucet:amountMicroUsdc")


async def test_the_document_allows_what_the_faucet_pays_and_not_zero(world: World) -> None:
    document = (await world.http.get("/openapi.json")).json()
    pattern = document["components"]["schemas"]["FaucetBody"]["properties"]["amountMicroUsdc"]["pattern"]
    assert re.search(pattern, "0") is None
    assert re.search(pattern, "1")
    assert re.search(pattern, "10000000")
