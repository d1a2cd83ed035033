"""A payer without native coin gets an allowance: it signs a permit, and the relayer sends it."""

from dataclasses import dataclass
from typing import Any

import pytest
import trio
from eth_abi.abi import encode

from sightline.chain.contracts.abi import call_data
from sightline.chain.contracts.messages import Permit
from sightline.chain.escrow import ChainEscrow
from sightline.chain.relayer.permits import permit_data
from sightline.chain.service import ChainService
from sightline.domain.errors import RefusedError
from sightline.domain.escrow import ConsentKind
from sightline.domain.refusal import Code
from sightline.domain.units import MicroUsdc
from sightline.domain.value import replace
from sightline.ports.escrow import SignedPermit
from sightline.ports.ledger import SettlementState
from sightline.storage.postgres.money.permits import PostgresPermits
from sightline_client.wallet import LocalWallet
from tests.chain.contracts.ground import test_source
from tests.chain.escrow.stage import HOLD, Stage
from tests.chain.world import Wallet, clock, until

VALUE = MicroUsdc(5_000_000)
GAS_MEASURED = 85_000
"""What the first permit of an owner takes at most with the test USDC, see docs/ops/chain.md."""
IN_BLOCK = (SettlementState.MINED, SettlementState.CONFIRMED)


def escrow_of(service: ChainService) -> ChainEscrow:
    assert service.escrow is not None
    return service.escrow


def now_s() -> int:
    return clock.now_ms() // 1_000


async def signed(
    stage: Stage, service: ChainService, *, payer: Wallet | None = None, key: str | None = None,
    amount: MicroUsdc = VALUE, deadline_s: int | None = None,
) -> SignedPermit:  # fmt: skip
    """Sign what the service offers."""
    payer = payer or stage.world.payer
    terms = await escrow_of(service).permit_terms(payer.address, amount, deadline_s or stage.far_s)
    signature = LocalWallet.from_key(key or payer.key).sign_typed_data(terms.typed_data)
    return SignedPermit(
        owner=terms.owner.lower(), spender=terms.spender.lower(), amount=amount, nonce=terms.nonce,
        deadline_s=terms.deadline_s, signature=signature,
    )  # fmt: skip


async def relay(stage: Stage, service: ChainService, permit: SignedPermit, payer: Wallet | None = None) -> Any:
    return await escrow_of(service).relay_permit(permit, (payer or stage.world.payer).address)


async def allowance(stage: Stage, payer: Wallet | None = None) -> int:
    data = call_data("allowance(address,address)", [(payer or stage.world.payer).address, stage.world.settlement])
    return int(
        await stage.world.rpc.call("eth_call", {"to": stage.world.token, "data": "0x" + data.hex()}, "latest"), 16
    )


async def coin(stage: Stage, payer: Wallet) -> int:
    return int(await stage.world.rpc.call("eth_getBalance", payer.address, "latest"), 16)


async def refusal(stage: Stage, service: ChainService, permit: SignedPermit) -> tuple[Code, str, str]:
    with pytest.raises(RefusedError) as caught:
        await relay(stage, service, permit)
    refused = caught.value.refusal
    return refused.code, refused.detail or "", refused.message or ""


async def test_a_payer_without_coin_gets_an_allowance_and_pays_from_it(stage: Stage) -> None:
    before = await stage.held()
    async with stage.running() as service:
        assert (await coin(stage, stage.world.payer), await allowance(stage)) == (0, 0)
        permit = await signed(stage, service)
        relayed = await relay(stage, service, permit)
        assert (relayed.state in IN_BLOCK, await allowance(stage)) == (True, VALUE)
        assert (await relay(stage, service, permit)).tx_hash == relayed.tx_hash
        receipt = await stage.world.rpc.call("eth_getTransactionReceipt", relayed.tx_hash)
        assert int(receipt["gasUsed"], 16) <= GAS_MEASURED
        session = await stage.assigned(service, kind=ConsentKind.CONSENT)
        await escrow_of(service).open_hold(session)
        assert (await stage.held(), await allowance(stage)) == (before + HOLD, VALUE - HOLD)
        await stage.ended(session, 20)
        service.notify()
        await stage.until_done(session.id)
        assert await coin(stage, stage.world.payer) == 0


@dataclass
class ContractWallet(Wallet):
    """A wallet whose code answers ERC-1271 for `key`."""

    at: str = ""

    @property
    def address(self) -> str:
        return self.at


async def test_a_contract_wallet_gives_its_allowance_by_its_owner_s_signature_and_pays_from_it(stage: Stage) -> None:
    world, owner = stage.world, stage.world.payer
    code = test_source("Wallet") + encode(["address"], [owner.address])
    created = await world.rpc.call(
        "eth_getTransactionReceipt", await world.send(world.treasury_key, "", code, gas=2_000_000)
    )
    wallet = ContractWallet(key=owner.key, at=created["contractAddress"])
    await world.fund(wallet)
    async with stage.running() as service:
        stranger = await signed(stage, service, payer=wallet, key=Wallet().key)
        with pytest.raises(RefusedError, match="the token refuses it: TestUSDC: invalid signature"):
            await relay(stage, service, stranger, wallet)
        await relay(stage, service, await signed(stage, service, payer=wallet), wallet)
        assert await allowance(stage, wallet) == VALUE
        session = await stage.assigned(service, payer=wallet, kind=ConsentKind.CONSENT)
        await escrow_of(service).open_hold(session)
        assert await allowance(stage, wallet) == VALUE - HOLD
        await stage.ended(session, 20)
        service.notify()
        await stage.until_done(session.id)


async def test_permits_of_several_payers_are_sent_in_one_round(stage: Stage) -> None:
    payers = [Wallet(), Wallet(), Wallet()]
    async with stage.opened() as service:
        permits = [
            await signed(stage, service, payer=payer, amount=MicroUsdc(at)) for at, payer in enumerate(payers, 1)
        ]
        for permit, payer in zip(permits, payers, strict=True):
            with trio.move_on_after(0.3):
                await relay(stage, service, permit, payer)
    async with stage.running() as service:
        for permit, payer in zip(permits, payers, strict=True):
            await relay(stage, service, permit, payer)
    assert [await allowance(stage, payer) for payer in payers] == [1, 2, 3]


async def test_an_allowance_of_nothing_takes_the_allowance_back(stage: Stage) -> None:
    async with stage.running() as service:
        await relay(stage, service, await signed(stage, service))
        await relay(stage, service, await signed(stage, service, amount=MicroUsdc(0)))
        assert await allowance(stage) == 0


async def test_a_permit_that_is_not_valid_is_refused_with_what_is_wrong(stage: Stage) -> None:
    other = Wallet()
    async with stage.running() as service:
        good = await signed(stage, service)
        strangers = await signed(stage, service, payer=other)
        terms = await escrow_of(service).permit_terms(stage.world.payer.address, VALUE, stage.far_s)
        ahead = terms.typed_data | {"message": terms.typed_data["message"] | {"nonce": "5"}}
        early = replace(good, nonce=5, signature=LocalWallet.from_key(stage.world.payer.key).sign_typed_data(ahead))
        for wrong, words in (
            (replace(good, spender="0x" + "ab" * 20), "its spender must be the contract"),
            (strangers, "its owner is not the workspace's wallet"),
            (replace(good, deadline_s=now_s() + 5), "its deadline must be at least 30 seconds from now"),
            (await signed(stage, service, deadline_s=now_s() - 1), "its deadline must be at least"),
            (await signed(stage, service, key=other.key), "the signature is not that of its owner"),
            (replace(good, amount=MicroUsdc(VALUE + 1)), "the signature is not that of its owner"),
            (early, "its nonce must be 0"),
            (replace(good, signature="0x12"), "the signature is not that of its owner"),
        ):
            code, label, message = await refusal(stage, service, wrong)
            assert (code, label, words in message) == (Code.INVALID_INPUT, "wallet:permit", True), message
        assert await allowance(stage) == 0


async def test_a_permit_whose_nonce_was_used_is_a_conflict(stage: Stage) -> None:
    async with stage.running() as service:
        first, second = await signed(stage, service), await signed(stage, service, amount=MicroUsdc(7))
        assert first.nonce == second.nonce
        await relay(stage, service, first)
        code, label, message = await refusal(stage, service, second)
        assert (code, label) == (Code.CONFLICT, "wallet:permitNonce")
        assert "the next one is 1" in message
        assert await allowance(stage) == VALUE


async def test_two_permits_with_one_nonce_are_not_both_sent(stage: Stage) -> None:
    async with stage.opened() as service, trio.open_nursery() as nursery:
        nursery.start_soon(relay, stage, service, await signed(stage, service))
        permits = PostgresPermits(stage.database)

        async def is_asked_for() -> bool:
            return bool(await stage.database.read(lambda c: c.fetchval("SELECT count(*) FROM allowance_permit")))

        await until("the permit is asked for", is_asked_for)
        code, _, message = await refusal(stage, service, await signed(stage, service, amount=MicroUsdc(7)))
        assert (code, message) == (Code.CONFLICT, "Another permit with this nonce is on its way")
        assert await permits.in_flight(limit=10) == []
        nursery.cancel_scope.cancel()


async def test_a_permit_that_somebody_else_sends_first_is_given_up(stage: Stage) -> None:
    world = stage.world
    async with stage.opened() as service:
        permit = await signed(stage, service)
        with trio.move_on_after(0.5):
            await relay(stage, service, permit)
        message = Permit(
            owner=permit.owner, spender=permit.spender, value=VALUE, nonce=permit.nonce, deadline_s=permit.deadline_s
        )
        data = permit_data(message, bytes.fromhex(permit.signature[2:]))
        await world.send(world.treasury_key, world.token, data)
    async with stage.running() as service:
        service.notify()
        _, _, words = await refusal(stage, service, permit)
        assert "has used" in words
        assert await allowance(stage) == VALUE


async def test_a_permit_waits_while_the_token_is_paused_and_is_sent_afterwards(stage: Stage) -> None:
    world = stage.world
    async with stage.opened() as service:
        permit = await signed(stage, service)
        with trio.move_on_after(0.5):
            await relay(stage, service, permit)
    await world.send(world.treasury_key, world.token, call_data("setPaused(bool)", [True]))
    try:
        async with stage.running() as service:
            permits = PostgresPermits(stage.database)

            async def is_refused() -> bool:
                rows = await stage.database.read(lambda c: c.fetch("SELECT session_id::text FROM allowance_permit"))
                records = [await permits.permit(row["session_id"]) for row in rows]
                return [record.state for record in records if record is not None] == [SettlementState.FAILED]

            await until("the token refuses it", is_refused)
            assert await allowance(stage) == 0
            await world.send(world.treasury_key, world.token, call_data("setPaused(bool)", [False]))
            assert (await relay(stage, service, permit)).state in IN_BLOCK
            assert await allowance(stage) == VALUE
    finally:
        await world.send(world.treasury_key, world.token, call_data("setPaused(bool)", [False]))


async def test_the_gas_of_a_payers_permits_and_unpaid_sessions_has_one_budget(stage: Stage) -> None:
    async with stage.running(unpaid_opens_max=2) as service:
        session = await stage.assigned(service)
        await escrow_of(service).open_hold(session)
        await stage.ended(session, 0)
        service.notify()
        await stage.until_done(session.id)
        await relay(stage, service, await signed(stage, service))
        code, label, message = await refusal(stage, service, await signed(stage, service, amount=MicroUsdc(1)))
        assert (code, label) == (Code.RATE_LIMITED, "session:gasBudget")
        assert "2 transactions of this payer" in message


async def test_the_gas_of_a_permit_is_in_the_journal(stage: Stage) -> None:
    async with stage.running() as service:
        relayed = await relay(stage, service, await signed(stage, service))

        async def is_booked() -> bool:
            query = "SELECT count(*) FROM journal_entry WHERE tx_hash = $1 AND kind = 'GAS'"
            return bool(await stage.database.read(lambda c: c.fetchval(query, relayed.tx_hash)))

        await until("the gas is in the journal", is_booked)


def test_a_key_signs_by_v_r_s_and_an_account_with_code_by_bytes() -> None:
    message = Permit(owner="0x" + "a1" * 20, spender="0x" + "b2" * 20, value=7, nonce=0, deadline_s=9)
    of_key = permit_data(message, b"\x11" * 32 + b"\x22" * 32 + b"\x01")
    assert of_key[:4] == bytes.fromhex("d505accf")
    assert of_key[4 + 4 * 32 :] == (28).to_bytes(32) + b"\x11" * 32 + b"\x22" * 32
    assert permit_data(message, b"\x11" * 66)[:4] == bytes.fromhex("9fd5a6cf")
