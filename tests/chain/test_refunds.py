"""Refunds of several servers from one account: each is paid once, whoever pays it."""

import json
from collections.abc import Sequence
from typing import Any, cast

import pytest
import trio

from sightline.chain.contracts.abi import call_data
from sightline.chain.refunds import Refunds
from sightline.chain.signer import Signer
from sightline.domain.errors import RefusedError
from sightline.domain.units import usdc_text
from sightline.domain.value import replace
from sightline.ports.administration import Refund, RefundState
from sightline.ports.chain import RefundRequest
from sightline.storage.database.bridge import Database
from sightline.storage.postgres.administration import PostgresAdminStore
from tests.chain.world import World, clock, faucet_of, ids

CHARGED = 1_000
PAID = 400


async def signer_of(world: World) -> Signer:
    """The refund account of the embedded chain."""
    keys = json.loads(await trio.Path(world.chain_dir / "keys.json").read_text())
    return Signer(bytes.fromhex(keys["feeReceiver"][2:]))


@pytest.fixture
async def servers(world: World, database: Database) -> list[Refunds]:
    """Two servers with the refund account of the embedded chain, on one database."""
    signer = await signer_of(world)
    await faucet_of(world).fund(signer.address, 1_000_000)
    chain_id = int(await world.rpc.call("eth_chainId"), 16)
    return [
        Refunds(
            world.rpc, PostgresAdminStore(database), signer, chain_id=chain_id, token=world.token, clock=clock,
            fee_cap_wei=500 * 10**9,
        )
        for _ in range(2)
    ]  # fmt: skip


def a_request(world: World, session_id: str, key: str = "dispute") -> RefundRequest:
    return RefundRequest(
        session_id=session_id, key=key, to_address=world.payer.address, amount_micro=PAID, charged_micro=CHARGED,
        actor="Ada", reason="dispute",
    )  # fmt: skip


async def test_two_servers_that_refund_at_once_pay_each_refund_once(
    world: World, database: Database, servers: list[Refunds]
) -> None:
    sessions = [ids.uuid() for _ in range(3)]
    async with trio.open_nursery() as nursery:
        for refunds in servers:
            for session_id in sessions:
                for key in ("first", "second"):
                    nursery.start_soon(refunds.pay, a_request(world, session_id, key))
    stored = [refund for each in sessions for refund in await PostgresAdminStore(database).refunds(each)]
    assert [refund.state for refund in stored] == [RefundState.CONFIRMED] * 6
    assert len({refund.nonce for refund in stored}) == 6
    assert await world.balance(world.payer) == 6 * PAID


class LateStore:
    """The store of a server whose first reading of refunds arrives when it is out of date."""

    def __init__(self, store: PostgresAdminStore) -> None:
        self._store = store
        self.has_read, self.may_answer = trio.Event(), trio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def refunds(self, session_id: str) -> Sequence[Refund]:
        found = await self._store.refunds(session_id)
        if not self.has_read.is_set():
            self.has_read.set()
            await self.may_answer.wait()
        return found


async def test_a_refund_that_another_server_stores_meanwhile_is_the_same_one_also_where_it_is_the_whole_charge(
    world: World, database: Database, servers: list[Refunds]
) -> None:
    store = LateStore(PostgresAdminStore(database))
    late = Refunds(
        world.rpc, cast(Any, store), await signer_of(world), chain_id=1, token=world.token, clock=clock,
        fee_cap_wei=500 * 10**9,
    )  # fmt: skip
    request = replace(a_request(world, ids.uuid()), amount_micro=CHARGED)
    paid: list[Refund] = []

    async def pay_late() -> None:
        paid.append(await late.pay(request))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pay_late)
        await store.has_read.wait()
        first = await servers[0].pay(request)
        store.may_answer.set()
    assert [refund.tx_hash for refund in paid] == [first.tx_hash]
    assert await world.balance(world.payer) == CHARGED


async def test_a_refund_above_the_charge_says_so_whatever_the_account_has(
    world: World, database: Database, servers: list[Refunds]
) -> None:
    request = a_request(world, ids.uuid())
    await servers[0].pay(request)
    without_account = Refunds(
        world.rpc, PostgresAdminStore(database), None, chain_id=1, token=world.token, clock=clock, fee_cap_wei=1
    )
    for refunds, micro in ((servers[0], CHARGED - PAID + 1), (servers[0], 10**12), (without_account, 10**12)):
        with pytest.raises(RefusedError, match=r"at most its charge, 0\.001 USDC, of which 0\.0004 are") as raised:
            await refunds.pay(replace(request, key="more", amount_micro=micro))
        assert raised.value.refusal.detail == "refunds:amount"
    await servers[0].pay(replace(request, key="rest", amount_micro=CHARGED - PAID))
    assert await world.balance(world.payer) == CHARGED


async def test_a_refund_that_the_account_does_not_cover_names_the_whole_command(
    world: World, database: Database, servers: list[Refunds]
) -> None:
    account = (await signer_of(world)).address
    data = "0x" + call_data("balanceOf(address)", [account]).hex()
    held = int(await world.rpc.call("eth_call", {"to": world.token, "data": data}, "latest"), 16)
    request = replace(a_request(world, ids.uuid()), amount_micro=held + 2_000_001, charged_micro=held + 5_000_000)
    lacks = f"has {usdc_text(held)} of {usdc_text(held + 2_000_001)} USDC"
    with pytest.raises(RefusedError, match=rf"{lacks}\. Send USDC to it$"):
        await servers[0].pay(request)
    embedded = Refunds(
        world.rpc, PostgresAdminStore(database), await signer_of(world), chain_id=1, token=world.token, clock=clock,
        fee_cap_wei=500 * 10**9, faucet_line=lambda account, usdc: f"sightline faucet {account} {usdc}",
    )  # fmt: skip
    with pytest.raises(RefusedError, match=f"Send test USDC to it: `sightline faucet {account} 3`$"):
        await embedded.pay(request)


async def test_a_second_refund_under_the_key_of_the_first_is_told_to_choose_another(
    world: World, servers: list[Refunds]
) -> None:
    request = a_request(world, ids.uuid())
    await servers[0].pay(request)
    said = r"exists with 0\.0004 USDC\. For a further refund choose another key$"
    with pytest.raises(RefusedError, match=said):
        await servers[0].pay(replace(request, amount_micro=PAID + 1))


async def test_both_servers_answer_the_same_refund_to_the_same_key(world: World, servers: list[Refunds]) -> None:
    request, hashes = a_request(world, ids.uuid()), set[str]()

    async def pay(refunds: Refunds) -> None:
        hashes.add((await refunds.pay(request)).tx_hash)

    async with trio.open_nursery() as nursery:
        for refunds in servers:
            nursery.start_soon(pay, refunds)
    assert len(hashes) == 1
    assert await world.balance(world.payer) == PAID


async def test_a_refund_that_a_restored_database_does_not_know_is_not_paid_again(
    world: World, database: Database, servers: list[Refunds]
) -> None:
    request = a_request(world, ids.uuid())
    await servers[0].pay(request)
    await database.run(lambda connection: connection.execute("DELETE FROM refund"))
    for refunds in servers:
        with pytest.raises(RefusedError, match="was paid on the chain") as raised:
            await refunds.pay(request)
        assert raised.value.refusal.detail == "refunds:paid"
    assert await world.balance(world.payer) == PAID
    await servers[0].pay(a_request(world, request.session_id, "another"))
    assert await world.balance(world.payer) == 2 * PAID
