"""The watcher writes the journal: each final event, refund and fee once, whatever it had read before it began."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from sightline.chain.contracts.abi import LIMITS_SET_TOPIC, SETTLED_TOPIC, address_topic
from sightline.chain.contracts.escrow import (
    CREDITED_TOPIC,
    EVIDENCE_TOPIC,
    EXTENDED_TOPIC,
    OPENED_TOPIC,
    RECLAIMED_TOPIC,
    STRAY_RETURNED_TOPIC,
    WITHDRAWN_TOPIC,
)
from sightline.chain.reconcile.facts import fee_facts
from sightline.chain.rpc.client import JsonRpc
from sightline.chain.rpc.reader import RpcReader
from sightline.chain.watcher.books import entries_in
from sightline.chain.watcher.events import Watched, log_of
from sightline.chain.watcher.watcher import Watcher, WatcherOptions
from sightline.domain.books.journal import EntryKind, JournalEntry, held_by
from sightline.domain.errors import ChainUnavailableError
from sightline.domain.value import replace
from sightline.ports.ledger import BlockApplication, FundsPolicy, OwnTransaction
from sightline.system.keccak import session_id_hash
from simulation.memory.ledger import MemoryLedger
from tests.chain.relayer.desk import FixedIds, TrioClock
from tests.chain.watcher.scripted_node import (
    GAS_PRICE_WEI,
    GAS_USED,
    RELAYER,
    SETTLEMENT,
    TOKEN,
    ScriptedNode,
    open_scripted,
    settled,
    transfer,
    word,
)
from tests.contract.ledger.ledgers import SESSION, a_payload, an_attempt

ALICE, BOB, CAROL = "0x" + "a1" * 20, "0x" + "b2" * 20, "0x" + "c3" * 20
WATCHED = Watched(token=TOKEN, settlement=SETTLEMENT, wallets=frozenset())


@dataclass
class Office:
    """A node and the ledger that watchers write."""

    node: ScriptedNode
    rpc: JsonRpc
    ledger: MemoryLedger = field(default_factory=lambda: MemoryLedger(TrioClock().now_ms))

    def watcher(self, **changed: Any) -> Watcher:
        return Watcher(
            self.rpc, RpcReader(self.rpc, token=TOKEN, settlement=SETTLEMENT), self.ledger, self.node.identity,
            WatcherOptions(**{"depth": 2} | changed), relayer=RELAYER, clock=TrioClock(),
            ids=FixedIds(255),  # type: ignore[arg-type]  # of Ids the watcher needs random bytes
        )  # fmt: skip

    async def catch_up(self, **changed: Any) -> list[JournalEntry]:
        watcher = self.watcher(**changed)
        while await watcher.watch_once():
            pass
        return [stored.entry for stored in await self.ledger.journal.entries(limit=1_000)]

    def pay(self, amount: int = 60, tx: str = "tx", session_id: str = SESSION) -> str:
        block = self.node.mine(*settled(session_id, ALICE, BOB, amount, tx))
        return str(block.logs[0]["transactionHash"])

    def bury(self) -> None:
        self.node.mine()
        self.node.mine()


@pytest.fixture
async def office() -> AsyncIterator[Office]:
    node = ScriptedNode()
    node.mine()
    async with open_scripted(node) as rpc:
        yield Office(node, rpc)


async def test_a_settlement_is_in_the_journal_when_it_is_deep_enough_with_its_session_and_block(office: Office) -> None:
    await office.ledger.take_hold(SESSION, ALICE, 100, FundsPolicy.ADVISORY, now_ms=0)
    await office.catch_up()
    tx_hash = office.pay()
    assert await office.catch_up() == []
    office.bury()
    [entry] = await office.catch_up()
    assert (entry.kind, entry.session_id, entry.tx_hash, entry.log_index) == (EntryKind.SETTLED, SESSION, tx_hash, 1)
    block = office.node.blocks[2]
    assert (entry.block_number, entry.block_hash, entry.block_at_ms) == (2, block.block_hash, 1_024_000)
    assert {line.account: line.amount for line in entry.lines} == {f"payer:{ALICE}": 60, f"payee:{BOB}": -60}


async def test_blocks_from_before_the_journal_are_read_once_in_ranges_that_the_endpoint_takes(office: Office) -> None:
    """So it is after an upgrade, and for a new database beside a contract that is in use."""
    for number in range(5):
        office.pay(amount=10 + number, tx=f"tx {number}", session_id=SESSION[:-1] + str(number))
    office.bury()
    office.node.span_max = 2
    first = await office.catch_up(log_span_max=4)
    assert [entry.lines[0].amount for entry in first] == [10, 11, 12, 13, 14]
    assert await office.catch_up() == first


async def test_many_old_logs_are_written_in_several_transactions_without_a_gap(office: Office) -> None:
    for number in range(7):
        office.pay(amount=10 + number, tx=f"tx {number}", session_id=SESSION[:-1] + str(number))
    office.bury()
    watcher, through = office.watcher(old_logs_max=2), list[int | None]()
    while await watcher.watch_once():
        if (now := await office.ledger.books_read_through()) is not None:
            through.append(now)
    written = [stored.entry for stored in await office.ledger.journal.entries(limit=100)]
    assert [entry.lines[0].amount for entry in written] == list(range(10, 17))
    assert len(set(through)) == 3


async def test_blocks_that_another_version_has_applied_are_read_once_more(office: Office) -> None:
    await office.catch_up()
    office.pay(tx="unread")
    ledger, kept = office.ledger, office.ledger.apply_blocks

    async def without_books(application: BlockApplication, *, now_ms: int) -> None:
        await kept(replace(application, books=None), now_ms=now_ms)

    ledger.apply_blocks = without_books  # type: ignore[method-assign]  # as a server of an earlier version applies it
    await office.catch_up(depth=0)
    ledger.apply_blocks = kept  # type: ignore[method-assign]
    office.pay(tx="read", session_id=SESSION[:-1] + "9")
    office.bury()
    assert len(await office.catch_up()) == 2


async def test_an_event_that_moves_to_another_block_counts_once(office: Office) -> None:
    await office.catch_up()
    office.pay()
    office.node.mine()
    await office.catch_up()
    office.node.fork(2)
    office.node.mine(salt="another branch")
    office.pay()
    office.bury()
    [entry] = await office.catch_up()
    assert entry.block_number == 3


async def test_an_event_that_leaves_a_final_block_is_taken_back_and_written_anew(office: Office) -> None:
    await office.catch_up(depth=0)
    office.pay()
    await office.catch_up(depth=0)
    office.node.fork(1)
    office.node.mine(salt="another branch")
    office.pay()
    entries = await office.catch_up(depth=0)
    assert [entry.lines[0].amount for entry in entries] == [60, -60, 60]
    assert [entry.block_number for entry in entries] == [2, 2, 3]


async def test_the_gas_of_our_transactions_is_in_the_journal_and_that_of_others_is_not(office: Office) -> None:
    await office.catch_up()
    await office.ledger.compose(a_payload(SESSION), now_ms=0)
    ours = office.pay()
    await office.ledger.store_signed(RELAYER, [an_attempt(tx_hash=ours)], now_ms=0)
    office.pay(tx="of another service", session_id=SESSION[:-1] + "9")
    office.bury()
    gas, *_ = [entry for entry in await office.catch_up() if entry.kind is EntryKind.GAS]
    assert (gas.tx_hash, gas.session_id, gas.log_index) == (ours, SESSION, -1)
    assert [(line.account, line.amount) for line in gas.lines] == [
        ("gas", GAS_USED * GAS_PRICE_WEI), (f"gas-key:{RELAYER}", -GAS_USED * GAS_PRICE_WEI),
    ]  # fmt: skip
    assert len([entry for entry in await office.catch_up() if entry.kind is EntryKind.GAS]) == 1


async def test_no_block_is_applied_without_the_receipts_of_our_transactions(office: Office) -> None:
    await office.catch_up()
    await office.ledger.compose(a_payload(SESSION), now_ms=0)
    ours = office.pay()
    await office.ledger.store_signed(RELAYER, [an_attempt(tx_hash=ours)], now_ms=0)
    office.node.lost_receipts.add(ours)
    with pytest.raises(ChainUnavailableError, match="receipt"):
        await office.catch_up()
    office.node.lost_receipts.clear()
    office.bury()
    assert [entry.kind for entry in await office.catch_up()] == [EntryKind.GAS, EntryKind.SETTLED]


@pytest.mark.parametrize(
    ("fees", "beside_wei"),
    [
        ({}, 0),
        ({"l1Fee": "0x64"}, 100),
        ({"l1Fee": "0x64", "operatorFeeScalar": "0x3", "operatorFeeConstant": "0x7"}, 107 + 300 * GAS_USED),
        ({"l1Fee": None, "operatorFeeConstant": "0x7"}, 7),
    ],
)
async def test_the_fees_of_op_chains_beside_the_gas_are_in_its_entry_and_in_what_the_books_are_compared_with(
    office: Office, fees: dict[str, Any], beside_wei: int
) -> None:
    office.node.receipt_fees = fees
    await office.catch_up()
    await office.ledger.compose(a_payload(SESSION), now_ms=0)
    ours = office.pay()
    await office.ledger.store_signed(RELAYER, [an_attempt(tx_hash=ours)], now_ms=0)
    gas, *_ = [entry for entry in await office.catch_up(depth=0) if entry.kind is EntryKind.GAS]
    receipt = office.node._eth_getTransactionReceipt(ours)
    assert receipt is not None
    assert gas.lines[0].amount == GAS_USED * GAS_PRICE_WEI + beside_wei
    assert fee_facts(ours, receipt, SESSION).accounts == {line.account: line.amount for line in gas.lines}


async def test_the_gas_of_our_old_transactions_is_found_although_no_log_of_the_contract_names_them(
    office: Office,
) -> None:
    """Refunds, and transactions that failed, in blocks that were applied before the journal existed."""
    await office.ledger.compose(a_payload(SESSION), now_ms=0)
    event = transfer(CAROL, ALICE, 25, "without a log of the contract")
    office.node.mine(event)
    await office.ledger.store_signed(RELAYER, [an_attempt(tx_hash=event["transactionHash"])], now_ms=0)
    office.bury()
    [gas] = await office.catch_up()
    assert (gas.kind, gas.tx_hash, gas.block_number) == (EntryKind.GAS, event["transactionHash"], 2)


async def test_old_transactions_of_ours_move_the_journal_no_further_than_it_was(office: Office) -> None:
    """A crash after them must not leave out the events of their blocks."""
    await office.ledger.compose(a_payload(SESSION), now_ms=0)
    ours = office.pay()
    await office.ledger.store_signed(RELAYER, [an_attempt(tx_hash=ours)], now_ms=0)
    office.bury()
    ledger, kept = office.ledger, office.ledger.apply_blocks
    through: list[int] = []

    async def seen(application: BlockApplication, *, now_ms: int) -> None:
        if application.books is not None:
            through.append(application.books.through)
        await kept(application, now_ms=now_ms)

    ledger.apply_blocks = seen  # type: ignore[method-assign]
    await office.catch_up()
    assert through == [-1, 4]


# What a log means, where no other test has it.


def entries_of(
    *logs: dict[str, Any], own: dict[str, OwnTransaction] | None = None, watched: Watched = WATCHED
) -> tuple[JournalEntry, ...]:
    node = ScriptedNode()
    block = node.mine(*logs)
    return entries_in([log_of(each) for each in block.logs], watched, {1: 1_000}, own or {}, {})


def of_escrow(kind: str, *addresses: str, numbers: tuple[int, ...]) -> dict[str, Any]:
    """An event of SessionEscrow about one session."""
    topics = [kind, session_id_hash(SESSION), *map(address_topic, addresses)]
    data = "0x" + "".join(word(number)[2:] for number in numbers)
    return transfer(ALICE, SETTLEMENT, 0, "tx") | {"address": SETTLEMENT, "topics": topics, "data": data}


def lines_of(*logs: dict[str, Any]) -> list[tuple[EntryKind, list[tuple[str, int]]]]:
    entries = entries_of(*logs, watched=replace(WATCHED, is_escrow=True))
    return [(entry.kind, [(line.account, line.amount) for line in entry.lines]) for entry in entries]


@pytest.mark.parametrize(("topic", "kind"), [(OPENED_TOPIC, EntryKind.OPENED), (EXTENDED_TOPIC, EntryKind.EXTENDED)])
def test_a_hold_is_what_the_contract_takes_by_the_transfer_of_the_same_amount(topic: str, kind: EntryKind) -> None:
    event, held = of_escrow(topic, ALICE, BOB, numbers=(100, 1, 2, 3)), held_by(ALICE)
    taken, stray = [("escrow", 100), (held, -100)], EntryKind.STRAY
    assert lines_of(event, transfer(ALICE, SETTLEMENT, 100, "tx")) == [(kind, taken)]
    for amount in (99, 101):
        moved = [("escrow", amount), ("stray", -amount)]
        assert lines_of(event, transfer(ALICE, SETTLEMENT, amount, "tx")) == [(stray, moved)]
    twice = lines_of(event, *[transfer(ALICE, SETTLEMENT, 100, "tx")] * 2)
    assert twice == [(kind, taken), (stray, [("escrow", 100), ("stray", -100)])]
    assert lines_of(event, transfer(ALICE, BOB, 100, "tx")) == []
    assert lines_of(transfer(ALICE, SETTLEMENT, 0, "tx")) == []


def test_each_event_of_the_escrow_that_moves_money_has_its_own_entry() -> None:
    paid = of_escrow(SETTLED_TOPIC, ALICE, BOB, numbers=(40, 5, 1, 45, 1_000))
    evidence = of_escrow(EVIDENCE_TOPIC, numbers=(7, 55))
    (settlement, _), returned = lines_of(paid, evidence)
    assert settlement is EntryKind.SETTLED
    assert returned == (EntryKind.RETURNED, [(held_by(ALICE), 55), ("escrow", -55)])
    reclaimed = lines_of(of_escrow(RECLAIMED_TOPIC, ALICE, numbers=(100,)))
    assert reclaimed == [(EntryKind.RECLAIMED, [(held_by(ALICE), 100), ("escrow", -100)])]
    back = of_escrow(STRAY_RETURNED_TOPIC, numbers=(3,))
    assert lines_of(back) == [(EntryKind.STRAY_RETURNED, [("stray", 3), ("escrow", -3)])]
    assert lines_of(credited(BOB, 60)) == [(EntryKind.CREDITED, [("escrow", 60), (f"credit:{BOB}", -60)])]


def credited(receiver: str, amount: int) -> dict[str, Any]:
    topics = [CREDITED_TOPIC, address_topic(receiver), session_id_hash(SESSION)]
    return transfer(ALICE, receiver, amount, "tx") | {"address": SETTLEMENT, "topics": topics}


def test_a_part_that_the_settlement_contract_keeps_for_its_receiver_is_a_credit_and_not_stray() -> None:
    event = settled(SESSION, ALICE, BOB, 60, "tx")[1]
    kept, done = entries_of(transfer(ALICE, SETTLEMENT, 60, "tx"), credited(BOB, 60), event)
    assert [(line.account, line.amount) for line in kept.lines] == [("escrow", 60), (f"credit:{BOB}", -60)]
    assert (kept.kind, done.kind) == (EntryKind.CREDITED, EntryKind.SETTLED)


@pytest.mark.parametrize("amount", [59, 61])
def test_a_transfer_of_another_amount_than_the_credit_is_stray(amount: int) -> None:
    stray, made = entries_of(transfer(ALICE, SETTLEMENT, amount, "tx"), credited(BOB, 60))
    assert (made.kind, stray.kind) == (EntryKind.CREDITED, EntryKind.STRAY)
    assert [line.amount for line in stray.lines] == [amount, -amount]


def test_a_withdrawal_from_the_settlement_contract_takes_the_credit() -> None:
    event = transfer(SETTLEMENT, BOB, 60, "tx")
    topics = [WITHDRAWN_TOPIC, address_topic(BOB)]
    [entry] = entries_of(event, event | {"address": SETTLEMENT, "topics": topics, "data": word(60)})
    assert [(line.account, line.amount) for line in entry.lines] == [(f"credit:{BOB}", 60), ("escrow", -60)]


@pytest.mark.parametrize("kind", ["0x" + "00" * 32, "0x" + "ff" * 32, LIMITS_SET_TOPIC])
def test_an_event_of_the_contract_that_moves_nothing_has_no_entry(kind: str) -> None:
    event = transfer(SETTLEMENT, BOB, 60, "tx")
    assert entries_of(event | {"address": SETTLEMENT, "topics": [kind, address_topic(BOB)], "data": word(60)}) == ()
    assert entries_of(event | {"address": SETTLEMENT, "topics": [kind, *[address_topic(BOB)] * 3]}) == ()


@pytest.mark.parametrize("others", [2, 4])
def test_an_event_with_other_topics_than_those_of_a_settlement_is_none(others: int) -> None:
    transferred, event = settled(SESSION, ALICE, BOB, 60, "tx")
    topics = [event["topics"][0], *[address_topic(BOB)] * others]
    assert entries_of(transferred, event | {"topics": topics}) == ()


@pytest.mark.parametrize("contract", ["0x" + "00" * 20, TOKEN, "0x" + "ff" * 20])
def test_the_events_of_another_contract_are_not_in_the_books(contract: str) -> None:
    for kind in (RECLAIMED_TOPIC, WITHDRAWN_TOPIC, CREDITED_TOPIC):
        event = of_escrow(kind, ALICE, BOB, numbers=(100,))
        assert len(entries_of(event)) == 1
        assert entries_of(event | {"address": contract}) == ()


@pytest.mark.parametrize("token", ["0x" + "00" * 20, "0x" + "ff" * 20])
def test_what_the_contract_gets_of_another_token_is_not_in_the_books(token: str) -> None:
    event = transfer(ALICE, SETTLEMENT, 60, "tx")
    assert [entry.kind for entry in entries_of(event)] == [EntryKind.STRAY]
    assert entries_of(event | {"address": token}) == ()


def test_a_transfer_in_the_transaction_of_a_refund_is_the_refund_of_its_session() -> None:
    event = transfer(CAROL, ALICE, 25, "refund")
    own = OwnTransaction(tx_hash=event["transactionHash"], session_id=SESSION, is_refund=True)
    [entry] = entries_of(event, own={own.tx_hash: own})
    assert (entry.kind, entry.session_id) == (EntryKind.REFUND, SESSION)
    assert [(line.account, line.amount) for line in entry.lines] == [
        (f"refunds:{ALICE}", 25), (f"refund-account:{CAROL}", -25),
    ]  # fmt: skip
    assert entries_of(event) == (), "a transfer between others is no business of ours"
