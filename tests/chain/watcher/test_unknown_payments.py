"""Payments on the chain without a settlement in the database: those of our relayers are recorded, each once."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from sightline.chain.rpc.client import JsonRpc
from sightline.chain.rpc.reader import RpcReader
from sightline.chain.watcher.watcher import Watcher, WatcherOptions
from sightline.domain.errors import ChainUnavailableError
from sightline.domain.settlement import UnknownPayments
from sightline.ports.ledger import Attempt
from sightline.system.keccak import session_id_hash
from simulation.memory.ledger import MemoryLedger
from tests.chain.relayer.desk import FixedIds, TrioClock
from tests.chain.watcher.scripted_node import (
    RELAYER,
    SETTLEMENT,
    TOKEN,
    Block,
    ScriptedNode,
    open_scripted,
    settled,
    word,
)
from tests.contract.ledger.ledgers import OTHER_SESSION, SESSION, a_payload

ALICE, BOB = "0x" + "a1" * 20, "0x" + "b2" * 20
OTHER_RELAYER = "0x" + "ee" * 20


@dataclass
class Post:
    """A node and the ledger of a watcher at a depth of 2."""

    node: ScriptedNode
    rpc: JsonRpc
    ledger: MemoryLedger = field(default_factory=lambda: MemoryLedger(TrioClock().now_ms))

    async def catch_up(self) -> UnknownPayments:
        """Read every block; returns the unknown payments."""
        watcher = self.watcher()
        while await watcher.watch_once():
            pass
        return await self.ledger.payments.unknown()

    def watcher(self, *, blocks_max: int = 64) -> Watcher:
        return Watcher(
            self.rpc, RpcReader(self.rpc, token=TOKEN, settlement=SETTLEMENT), self.ledger, self.node.identity,
            WatcherOptions(depth=2, blocks_max=blocks_max), relayer=RELAYER.upper().replace("0X", "0x"),
            clock=TrioClock(), ids=FixedIds(255),  # type: ignore[arg-type]  # of Ids the watcher needs random bytes
        )  # fmt: skip

    def pay(self, session_id: str, amount: int, sender: str = RELAYER) -> Block:
        block = self.node.mine(*settled(session_id, ALICE, BOB, amount, f"tx of {session_id}"))
        self.node.senders[block.logs[0]["transactionHash"]] = sender
        return block

    def bury(self) -> None:
        self.node.mine()
        self.node.mine()


@pytest.fixture
async def post() -> AsyncIterator[Post]:
    node = ScriptedNode()
    node.mine()
    async with open_scripted(node) as rpc:
        post = Post(node, rpc)
        await post.catch_up()
        yield post


async def test_a_payment_without_a_settlement_is_recorded_with_all_that_the_event_says(post: Post) -> None:
    block = post.pay(SESSION, 60)
    post.bury()
    assert await post.catch_up() == UnknownPayments(count=1, amount_micro=60)
    [found] = await post.ledger.payments.unknown_payments(limit=10)
    assert (found.session_id_hash, found.payer, found.payee, found.to_amount) == (
        session_id_hash(SESSION), ALICE, BOB, 60,
    )  # fmt: skip
    assert (found.block_number, found.block_hash, found.log_index) == (block.number, block.block_hash, 1)


async def test_a_payment_with_a_settlement_is_not_unknown(post: Post) -> None:
    await post.ledger.compose(a_payload(SESSION), now_ms=0)
    post.pay(SESSION, 60)
    post.pay(OTHER_SESSION, 7)
    post.bury()
    assert await post.catch_up() == UnknownPayments(count=1, amount_micro=7)


async def test_a_session_without_a_charge_counts_too(post: Post) -> None:
    post.pay(SESSION, 0)
    post.bury()
    assert await post.catch_up() == UnknownPayments(count=1, amount_micro=0)


async def test_a_payment_counts_when_its_block_is_final(post: Post) -> None:
    post.pay(SESSION, 60)
    post.node.mine()
    assert await post.catch_up() == UnknownPayments()
    post.node.mine()
    assert await post.catch_up() == UnknownPayments(count=1, amount_micro=60)


async def test_a_payment_of_a_block_that_was_replaced_does_not_count(post: Post) -> None:
    post.pay(SESSION, 60)
    post.node.mine()
    await post.catch_up()
    post.node.fork(2)
    for salt in ("a", "b", "c", "d"):
        post.node.mine(salt=salt)
    assert await post.catch_up() == UnknownPayments()


async def test_a_payment_that_moves_to_another_block_counts_once_with_its_new_block(post: Post) -> None:
    post.pay(SESSION, 60)
    post.node.mine()
    await post.catch_up()
    post.node.fork(2)
    post.node.mine(salt="other")
    block = post.pay(SESSION, 60)
    post.bury()
    assert await post.catch_up() == UnknownPayments(count=1, amount_micro=60)
    [found] = await post.ledger.payments.unknown_payments(limit=10)
    assert found.block_hash == block.block_hash


async def test_the_payment_of_another_services_relayer_is_not_ours(post: Post) -> None:
    post.pay(SESSION, 60, sender=OTHER_RELAYER)
    post.bury()
    assert await post.catch_up() == UnknownPayments()


async def test_the_payment_of_a_relayer_that_this_database_has_seen_sign_is_ours(post: Post) -> None:
    await post.ledger.compose(a_payload(OTHER_SESSION), now_ms=0)
    attempt = Attempt(
        session_id=OTHER_SESSION, nonce=0, tx_hash="0xaa", raw=b"", max_fee_wei=1, tip_wei=1, signed_at_ms=0
    )
    await post.ledger.store_signed(OTHER_RELAYER, [attempt], now_ms=0)
    post.pay(SESSION, 60, sender=OTHER_RELAYER)
    post.bury()
    assert await post.catch_up() == UnknownPayments(count=1, amount_micro=60)


async def test_the_payment_of_a_settlement_that_was_written_off_is_ours_whoever_sent_it(post: Post) -> None:
    await post.ledger.compose(a_payload(SESSION), now_ms=0)
    await post.ledger.write_off(SESSION, reason="lost", now_ms=0)
    post.pay(SESSION, 60, sender=OTHER_RELAYER)
    post.bury()
    assert await post.catch_up() == UnknownPayments(count=1, amount_micro=60)


async def test_a_watcher_says_that_it_has_read_the_chain_when_it_has_applied_the_head(post: Post) -> None:
    post.ledger.payments.is_read = False
    watcher = post.watcher(blocks_max=1)
    post.bury()
    assert await watcher.watch_once()
    assert not await post.ledger.payments.is_chain_read(runs_watcher=True)
    assert await watcher.watch_once()
    assert await post.ledger.payments.is_chain_read(runs_watcher=True)


async def test_the_cursor_stays_while_the_sender_is_not_known(post: Post) -> None:
    before = await post.ledger.chain_head()
    block = post.pay(SESSION, 60)
    post.bury()
    post.node.lost_receipts = {block.logs[0]["transactionHash"]}
    with pytest.raises(ChainUnavailableError, match="is not there"):
        await post.catch_up()
    assert await post.ledger.chain_head() == before
    post.node.lost_receipts = set()
    assert (await post.catch_up()).count == 1


async def test_a_receipt_of_another_block_does_not_say_who_sent_a_payment(post: Post) -> None:
    post.pay(SESSION, 60)
    post.bury()
    post.node.receipts_from = word(77)
    with pytest.raises(ChainUnavailableError, match=r"the receipt of transaction .* is not there"):
        await post.catch_up()
    post.node.receipts_from = None
    assert (await post.catch_up()).count == 1
