"""Single rounds of the relayer against an in-process node: depth, reorganisations, replacements, lanes, proofs."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import trio

from sightline.chain.relayer.options import RelayerOptions
from sightline.chain.relayer.relayer import Relayer
from sightline.chain.rpc.client import JsonRpc
from sightline.chain.signer import Signer
from sightline.domain.session.model import Ended, Session, SessionState
from sightline.domain.settlement import SettlementPayload
from sightline.domain.units import MicroUsdc
from sightline.ports.chain import ChainChangedError, SettlementUpdate
from sightline.ports.ledger import (
    BlockApplication,
    BlockRef,
    FundsPolicy,
    SettledAmounts,
    SettlementLane,
    SettlementRecord,
    SettlementState,
    WalletReading,
)
from sightline.storage.memory.ledger import MemoryLedger
from sightline.system.ids import SystemIds
from sightline.system.keccak import session_id_hash
from tests.chain.settling_node import Settled, SettlingNode, open_node
from tests.contract.builders import a_session, an_operator, in_phase

ids = SystemIds()
PAYER, PAYEE = "0x" + "a1" * 20, "0x" + "b2" * 20
SECONDS, RATE = 60, 1_000
NO_ALLOWANCE = "execution reverted: TestUSDC: amount exceeds allowance"


class TrioClock:
    """A wall clock that follows trio's clock, which is virtual in these tests."""

    def now_ms(self) -> int:
        return round(trio.current_time() * 1_000)


@dataclass
class Desk:
    """A relayer with a ledger in memory; the test runs single rounds or the loop."""

    node: SettlingNode
    rpc: JsonRpc
    ledger: MemoryLedger
    sessions: dict[str, Session] = field(default_factory=dict)
    told: list[SettlementUpdate] = field(default_factory=list)
    signer: Signer = field(default_factory=lambda: Signer(ids.token_bytes(32)))

    def relayer(self, **options: Any) -> Relayer:
        chosen = RelayerOptions(**({"depth": 2, "replace_ms": 1_000, "resend_ms": 500} | options))
        return Relayer(self.rpc, self.ledger, self.signer, self.node.identity, chosen, clock=TrioClock(), ids=ids)

    async def hear(self, update: SettlementUpdate) -> None:
        self.told.append(update)

    async def ended(self, *, payer: str = PAYER, seconds: int = SECONDS, **changed: Any) -> str:
        """End a session; `changed` makes the settlement differ from the recorded session."""
        session_id, now_ms = ids.uuid(), TrioClock().now_ms()
        total = RATE * seconds
        fee = total * 1_500 // 10_000
        session = a_session(id=session_id, payer_address=payer, rate=MicroUsdc(RATE))
        session = in_phase(session, SessionState.ENDED, replace(an_operator(), wallet_address=PAYEE))
        assert isinstance(session.phase, Ended)
        phase = replace(session.phase, clean_seconds=seconds, charged=MicroUsdc(total))
        self.sessions[session_id] = replace(session, phase=phase)
        self.ledger.session_of = self.sessions.get
        await self.ledger.take_hold(session_id, payer, 2 * total, FundsPolicy.ADVISORY, now_ms=now_ms)
        await self.ledger.charge_hold(session_id, total)
        payload = SettlementPayload(
            session_id=session_id, from_address=payer, to_address=PAYEE, to_amount=MicroUsdc(total - fee),
            fee_amount=MicroUsdc(fee), rate=MicroUsdc(RATE), chargeable_seconds=seconds,
            consumer_workspace_id=session.terms.consumer_workspace_id,
            operator_workspace_id=phase.operator.workspace_id, platform_fee_bps=1_500,
        )  # fmt: skip
        await self.ledger.compose(replace(payload, **changed), now_ms=now_ms)
        return session_id

    async def record(self, session_id: str) -> SettlementRecord:
        record = await self.ledger.settlement(session_id)
        assert record is not None
        return record

    async def state(self, session_id: str) -> SettlementState:
        return (await self.record(session_id)).state

    async def set_funds(self, payer: str, micro: int) -> None:
        """Set the watcher's last reading of a wallet."""
        previous = await self.ledger.chain_head()
        number = 1 if previous is None else previous.number + 1
        head = BlockRef(number=number, block_hash=f"0x{number}", parent_hash=f"0x{number - 1}")
        reading = WalletReading(address=payer, balance_micro=micro, allowance_micro=micro, block_number=number)
        application = BlockApplication(
            headers=(), events=(), readings=(reading,), settled=(), head=head, confirmed_block=number,
            previous=previous,
        )  # fmt: skip
        await self.ledger.apply_blocks(application, now_ms=TrioClock().now_ms())


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    node = SettlingNode()
    async with open_node(node) as rpc:
        yield Desk(node, rpc, MemoryLedger(TrioClock().now_ms))


# Depth and reorganisations.


async def test_a_settlement_is_confirmed_at_its_depth_and_not_one_block_before(desk: Desk) -> None:
    relayer, session_id = desk.relayer(depth=2), await desk.ended()
    await relayer.work_once(desk.hear)
    states = []
    for _ in range(3):
        desk.node.mine()
        await relayer.work_once(desk.hear)
        states.append(await desk.state(session_id))
    assert states == [SettlementState.MINED, SettlementState.MINED, SettlementState.CONFIRMED]
    assert [update.session_id for update in desk.told] == [session_id]


@pytest.mark.parametrize("blocks_on_top", [1, 3])
async def test_a_transaction_that_fails_on_the_other_branch_is_not_confirmed(desk: Desk, blocks_on_top: int) -> None:
    relayer, session_id = desk.relayer(depth=2), await desk.ended()
    await relayer.work_once(desk.hear)
    for _ in range(blocks_on_top):
        desk.node.mine()
        await relayer.work_once(desk.hear)
    desk.node.fork(blocks_on_top)
    desk.node.fails = lambda _: True
    desk.node.refuses = lambda _: NO_ALLOWANCE
    desk.node.mine(salt="other")
    relayer.recheck(0)
    await relayer.work_once(desk.hear)
    assert await desk.state(session_id) is SettlementState.SENT
    for _ in range(2):
        desk.node.mine()
        await relayer.work_once(desk.hear)
    record = await desk.record(session_id)
    assert (record.state, record.lane) == (SettlementState.REVERTED, SettlementLane.RETRY)
    assert record.reason == NO_ALLOWANCE


async def test_a_transaction_that_is_mined_again_less_deep_is_confirmed_only_at_depth(desk: Desk) -> None:
    relayer, session_id = desk.relayer(depth=2), await desk.ended()
    await relayer.work_once(desk.hear)
    for _ in range(3):
        desk.node.mine()
        await relayer.work_once(desk.hear)
    before = await desk.record(session_id)
    assert before.state is SettlementState.CONFIRMED
    desk.node.fork(3)
    states = []
    for _ in range(3):
        desk.node.mine(salt="other")
        relayer.recheck(0)
        await relayer.work_once(desk.hear)
        states.append(await desk.state(session_id))
    assert states == [SettlementState.MINED, SettlementState.MINED, SettlementState.CONFIRMED]
    after = await desk.record(session_id)
    assert (after.tx_hash, after.confirmed_at_ms) == (before.tx_hash, before.confirmed_at_ms)
    assert after.block_hash != before.block_hash


async def test_the_first_block_above_the_common_ancestor_is_rechecked(desk: Desk) -> None:
    relayer, session_id = desk.relayer(depth=0), await desk.ended()
    await relayer.work_once(desk.hear)
    mined = desk.node.mine()
    await relayer.work_once(desk.hear)
    assert await desk.state(session_id) is SettlementState.CONFIRMED
    desk.node.fork(1)
    desk.node.pool.clear()
    desk.node.mine(salt="other")
    relayer.recheck(mined.number - 1)
    await relayer.work_once(desk.hear)
    assert await desk.state(session_id) is SettlementState.SENT
    assert len(desk.node.pool) == 1


async def test_a_block_that_the_watcher_applied_puts_other_blocks_of_its_number_in_doubt(desk: Desk) -> None:
    relayer, session_id = desk.relayer(depth=0), await desk.ended()
    await relayer.work_once(desk.hear)
    desk.node.mine()
    await relayer.work_once(desk.hear)
    desk.node.fork(1)
    desk.node.pool.clear()
    other = desk.node.mine(salt="other")
    relayer.compare([BlockRef(number=other.number, block_hash=other.block_hash, parent_hash=other.parent_hash)])
    await relayer.work_once(desk.hear)
    assert await desk.state(session_id) is SettlementState.SENT


async def test_a_receipt_of_a_block_that_is_not_canonical_does_not_count(desk: Desk) -> None:
    relayer, session_id = desk.relayer(depth=0), await desk.ended()
    await relayer.work_once(desk.hear)
    (transaction,) = desk.node.sent
    desk.node.receipts_from[transaction.tx_hash] = "0x" + "99" * 32
    desk.node.mine()
    await relayer.work_once(desk.hear)
    assert await desk.state(session_id) is not SettlementState.CONFIRMED
    assert desk.told == []
    desk.node.receipts_from.clear()
    await relayer.work_once(desk.hear)
    assert await desk.state(session_id) is SettlementState.CONFIRMED


async def test_a_chain_with_another_first_block_is_not_signed_for(desk: Desk) -> None:
    relayer, session_id = desk.relayer(), await desk.ended()
    desk.node.blocks[0].block_hash = "0x" + "99" * 32
    with pytest.raises(ChainChangedError):
        await relayer.work_once(desk.hear)
    assert (await desk.record(session_id)).attempts == ()


async def test_what_the_watcher_told_while_the_lease_was_elsewhere_is_bounded(desk: Desk) -> None:
    relayer = desk.relayer()
    await desk.ledger.take_lease(desk.signer.address, "other", lease_ms=60_000)
    for number in range(5_000):
        relayer.compare([BlockRef(number=number, block_hash=f"0x{number}", parent_hash=f"0x{number - 1}")])
    await relayer.work_once(desk.hear)
    assert len(relayer._confirmation._applied) == 1_024


# Replacements.


async def test_a_replacement_has_the_same_nonce_and_higher_fees(desk: Desk, autojump_clock: Any) -> None:
    relayer, session_id = desk.relayer(depth=0, replace_ms=1_000), await desk.ended()
    await relayer.work_once(desk.hear)
    await trio.sleep(1.5)
    await relayer.work_once(desk.hear)
    first, second = (await desk.record(session_id)).attempts
    assert first.nonce == second.nonce == 0
    assert second.max_fee_wei >= first.max_fee_wei * 9 // 8
    assert second.tip_wei >= first.tip_wei * 9 // 8
    assert await desk.ledger.next_nonce(desk.signer.address) == 1


async def test_a_replacement_never_passes_the_fee_cap(desk: Desk, autojump_clock: Any) -> None:
    relayer, session_id = desk.relayer(depth=0, replace_ms=1_000, fee_cap_wei=3_100_000_000), await desk.ended()
    await relayer.work_once(desk.hear)
    for _ in range(3):
        await trio.sleep(6)
        await relayer.work_once(desk.hear)
    record = await desk.record(session_id)
    assert record.reason == "a replacement would pass the fee cap"
    assert len(record.attempts) == 1
    assert record.attempts[0].max_fee_wei <= 3_100_000_000


# Checks before signing.


async def test_a_row_without_session_or_hold_is_not_signed(desk: Desk) -> None:
    relayer, session_id = desk.relayer(), await desk.ended()
    desk.sessions.clear()
    await relayer.work_once(desk.hear)
    record = await desk.record(session_id)
    assert (record.state, record.attempts) == (SettlementState.FAILED, ())
    assert record.reason == "not proved: no ended session with its charge held"
    assert desk.node.sent == []


@pytest.mark.parametrize(
    "changed",
    [
        {"from_address": "0x" + "ee" * 20},
        {"to_address": "0x" + "ee" * 20},
        {"to_amount": MicroUsdc(10**9)},
        {"fee_amount": MicroUsdc(0)},
        {"rate": MicroUsdc(RATE + 1)},
        {"chargeable_seconds": SECONDS + 1},
        {"platform_fee_bps": 0},
        {"consumer_workspace_id": "x"},
        {"operator_workspace_id": "x"},
    ],
)
async def test_a_settlement_that_differs_from_the_recorded_session_is_not_signed(
    desk: Desk, changed: dict[str, Any]
) -> None:
    relayer, session_id = desk.relayer(), await desk.ended(**changed)
    await relayer.work_once(desk.hear)
    assert desk.node.sent == []
    assert ((await desk.record(session_id)).reason or "").startswith("not proved: ")


async def test_a_hold_of_another_amount_proves_nothing(desk: Desk) -> None:
    relayer, session_id = desk.relayer(), await desk.ended()
    desk.ledger._holds[session_id].amount -= 1
    await relayer.work_once(desk.hear)
    assert desk.node.sent == []


# Adoption of transactions that the database does not know.


async def settle_elsewhere(desk: Desk, session_id: str, to_amount: int) -> str:
    """Settle a session by a transaction that the database does not know."""
    record = await desk.record(session_id)
    stranger = Desk(desk.node, desk.rpc, MemoryLedger(), signer=desk.signer)
    other = await stranger.ended()
    row = stranger.ledger._settlements.pop(other)
    payload = replace(record.payload, to_amount=MicroUsdc(to_amount))
    stranger.ledger._settlements[session_id] = replace(
        row, session_id=session_id, session_id_hash=session_id_hash(session_id), payload=payload
    )
    relayer = stranger.relayer()
    attempt = relayer._signing._sender.sign(
        stranger.ledger._settlements[session_id], 0, _some_fees(), TrioClock().now_ms()
    )
    await desk.rpc.send_once([("eth_sendRawTransaction", ["0x" + attempt.raw.hex()])])
    return attempt.tx_hash


def _some_fees() -> Any:
    from sightline.chain.fees import Fees

    return Fees(max_fee_wei=10**10, tip_wei=10**9)


async def test_an_adopted_settlement_waits_for_its_depth_like_any_other(desk: Desk) -> None:
    relayer, session_id = desk.relayer(depth=2), await desk.ended()
    tx_hash = await settle_elsewhere(desk, session_id, 51_000)
    states = []
    for _ in range(3):
        desk.node.mine()
        await relayer.work_once(desk.hear)
        states.append(await desk.state(session_id))
    assert states == [SettlementState.MINED, SettlementState.MINED, SettlementState.CONFIRMED]
    assert (await desk.record(session_id)).tx_hash == tx_hash


async def test_an_adopted_settlement_of_other_amounts_is_a_mismatch_and_not_confirmed(desk: Desk) -> None:
    relayer, session_id = desk.relayer(depth=0), await desk.ended()
    await settle_elsewhere(desk, session_id, 151_000)
    desk.node.mine()
    await relayer.work_once(desk.hear)
    record = await desk.record(session_id)
    assert record.state is SettlementState.MISMATCHED
    assert record.on_chain == SettledAmounts(to_amount=151_000, fee_amount=9_000)
    assert record.payload.to_amount == 51_000
    assert desk.told == []


# Lanes.


async def test_free_sessions_are_settled_in_one_transaction_at_most_once_in_ten_minutes(
    desk: Desk, autojump_clock: Any
) -> None:
    desk.node.automine = True
    relayer = desk.relayer(depth=0)
    await trio.sleep(10_000)
    free = [await desk.ended(seconds=0) for _ in range(12)]
    await relayer.work_once(desk.hear)
    assert [len(transaction.calls) for transaction in desk.node.sent] == [12]
    later = [await desk.ended(seconds=0) for _ in range(3)]
    for _ in range(59):
        await trio.sleep(10)
        await relayer.work_once(desk.hear)
    assert len(desk.node.sent) == 1
    await trio.sleep(10)
    await relayer.work_once(desk.hear)
    assert [len(transaction.calls) for transaction in desk.node.sent] == [12, 3]
    assert {update.session_id for update in desk.told} == {*free, *later}
    assert {await desk.state(session_id) for session_id in free + later} == {SettlementState.CONFIRMED}


async def test_a_batch_that_does_not_mine_is_replaced_once_with_its_nonce(desk: Desk, autojump_clock: Any) -> None:
    relayer = desk.relayer(depth=0, replace_ms=1_000)
    await trio.sleep(10_000)
    free = [await desk.ended(seconds=0) for _ in range(5)]
    await relayer.work_once(desk.hear)
    await trio.sleep(1.5)
    await relayer.work_once(desk.hear)
    assert [(item.nonce, len(item.calls)) for item in desk.node.sent] == [(0, 5), (0, 5)]
    desk.node.mine()
    await relayer.work_once(desk.hear)
    assert {await desk.state(session_id) for session_id in free} == {SettlementState.CONFIRMED}


async def test_of_many_charges_on_a_small_wallet_only_the_covered_ones_are_signed(desk: Desk) -> None:
    desk.node.automine = True
    relayer = desk.relayer(depth=0)
    await desk.set_funds(PAYER, 2 * RATE * SECONDS)
    for _ in range(30):
        await desk.ended()
    await relayer.work_once(desk.hear)
    assert len(desk.node.sent) == 2
    assert len(await desk.ledger.settlements_due(SettlementLane.RETRY, now_ms=10**12, limit=100)) == 28


async def test_an_unpayable_settlement_backs_off_to_a_day_and_a_changed_wallet_wakes_it(
    desk: Desk, autojump_clock: Any
) -> None:
    desk.node.automine = True
    desk.node.refuses = lambda _: NO_ALLOWANCE
    relayer, session_id = desk.relayer(depth=0, idle_ms=60_000), await desk.ended()
    async with trio.open_nursery() as nursery:
        await nursery.start(relayer.run, desk.hear)
        await trio.sleep(3 * 86_400)
        record = await desk.record(session_id)
        assert 12 < record.tries < 30
        assert record.retry_at_ms - record.updated_at_ms >= 43_200_000
        desk.node.refuses = lambda _: None
        await desk.set_funds(PAYER, 10**9)
        relayer.notify()
        await trio.sleep(5)
        assert await desk.state(session_id) is SettlementState.CONFIRMED
        nursery.cancel_scope.cancel()


async def test_a_paused_contract_is_tried_again_within_minutes(desk: Desk, autojump_clock: Any) -> None:
    desk.node.automine = True
    desk.node.refuses = lambda _: "execution reverted: SessionSettlement: paused"
    relayer, session_id = desk.relayer(depth=0, idle_ms=60_000), await desk.ended()
    async with trio.open_nursery() as nursery:
        await nursery.start(relayer.run, desk.hear)
        await trio.sleep(3 * 86_400)
        desk.node.refuses = lambda _: None
        await trio.sleep(400)
        assert await desk.state(session_id) is SettlementState.CONFIRMED
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("is_known", [True, False])
async def test_unpayable_settlements_do_not_delay_payable_ones(desk: Desk, autojump_clock: Any, is_known: bool) -> None:
    """With 100,000 unpayable settlements and one payable a second, the payable ones settle within two rounds."""
    poor = [f"0x{number:040x}" for number in range(1, 101)]

    def refuses(call: Settled) -> str | None:
        return NO_ALLOWANCE if call.payer.lower() in poor else None

    desk.node.automine, desk.node.refuses = True, refuses
    count = 100_000 if is_known else 500
    for address in poor if is_known else []:
        await desk.set_funds(address, 0)
    template = (await desk.record(await desk.ended(payer=poor[0]))).payload
    for number in range(count):
        payload = replace(template, session_id=f"{number:032x}", from_address=poor[number % len(poor)])
        desk.ledger.compose_now(payload, now_ms=TrioClock().now_ms())
    waits: list[int] = []
    async with trio.open_nursery() as nursery:
        relayer = desk.relayer(depth=0, poll_ms=200)
        await nursery.start(relayer.run, desk.hear)
        for _ in range(15):
            composed_ms = TrioClock().now_ms()
            session_id = await desk.ended()
            relayer.notify()
            await trio.sleep(1)
            if is_known:
                record = await desk.record(session_id)
                assert record.state is SettlementState.CONFIRMED
                waits.append((record.confirmed_at_ms or 0) - composed_ms)
        if not is_known:
            # Wallets that were never read are examined once each; then they wait in the RETRY lane.
            assert await desk.state(session_id) is SettlementState.CONFIRMED
            assert len(desk.told) == 15
        nursery.cancel_scope.cancel()
    assert all(wait <= 400 for wait in waits)
