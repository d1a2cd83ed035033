"""Payments on the chain without a settlement in the database: those of our relayers are recorded, each once."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from sightline.chain.rpc.client import JsonRpc
from sightline.chain.rpc.reader import RpcReader
from sightline.chain.watcher.logs import NEAR_BLOCKS
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
    post.node.has_bodies = False
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


@pytest.fixture
async def late() -> AsyncIterator[Post]:
    """A chain whose watcher has an empty database and has not begun."""
    node = ScriptedNode()
    node.mine()
    async with open_scripted(node) as rpc:
        yield Post(node, rpc)


async def test_an_empty_database_does_not_know_the_earlier_payments_of_its_relayer(late: Post) -> None:
    block = late.pay(SESSION, 60)
    late.pay(OTHER_SESSION, 0)
    late.bury()
    assert await late.catch_up() == UnknownPayments(count=2, amount_micro=60)
    assert [each.block_number for each in await late.ledger.payments.unknown_payments(limit=10)] == [
        block.number, block.number + 1,
    ]  # fmt: skip


async def test_an_empty_database_finds_payments_that_are_older_than_the_blocks_read_by_header(late: Post) -> None:
    late.pay(SESSION, 60)
    for _ in range(2 * NEAR_BLOCKS):
        late.node.mine()
    late.pay(OTHER_SESSION, 7)
    late.bury()
    assert await late.catch_up() == UnknownPayments(count=2, amount_micro=67)


async def test_a_new_service_with_a_key_of_its_own_takes_no_earlier_payments_for_its_own(late: Post) -> None:
    late.pay(SESSION, 60, sender=OTHER_RELAYER)
    late.bury()
    assert await late.catch_up() == UnknownPayments()


async def test_an_earlier_payment_whose_block_is_replaced_does_not_count(late: Post) -> None:
    late.pay(SESSION, 60)
    late.node.mine()
    await late.catch_up()
    late.node.fork(2)
    for salt in ("a", "b", "c", "d"):
        late.node.mine(salt=salt)
    assert await late.catch_up() == UnknownPayments()


async def test_an_empty_database_has_no_cursor_before_the_earlier_payments_are_read(late: Post) -> None:
    block = late.pay(SESSION, 60)
    late.bury()
    late.node.lost_receipts = {block.logs[0]["transactionHash"]}
    late.node.has_bodies = False
    with pytest.raises(ChainUnavailableError, match="is not there"):
        await late.catch_up()
    assert await late.ledger.chain_head() is None
    late.node.lost_receipts = set()
    assert (await late.catch_up()).count == 1


async def test_an_error_in_the_newest_blocks_does_not_read_the_older_ones_again(late: Post) -> None:
    late.pay(SESSION, 60)
    for _ in range(2 * NEAR_BLOCKS):
        late.node.mine()
    block = late.pay(OTHER_SESSION, 7)
    late.bury()
    watcher = late.watcher()
    late.node.lost_receipts = {block.logs[0]["transactionHash"]}
    late.node.has_bodies = False
    with pytest.raises(ChainUnavailableError, match="is not there"):
        await watcher.watch_once()
    late.node.lost_receipts = set(late.node.senders.keys() - late.node.lost_receipts)
    while await watcher.watch_once():
        pass
    assert await late.ledger.payments.unknown() == UnknownPayments(count=2, amount_micro=67)


@pytest.mark.parametrize(("sender", "count"), [(RELAYER, 1), (OTHER_RELAYER, 0)])
async def test_a_node_without_an_index_of_old_transactions_says_by_their_block_who_sent_them(
    late: Post, sender: str, count: int
) -> None:
    block = late.pay(SESSION, 60, sender=sender)
    late.bury()
    late.node.lost_receipts = {block.logs[0]["transactionHash"]}
    assert (await late.catch_up()).count == count
    assert await late.ledger.chain_head() is not None


@pytest.mark.parametrize("forgetful", [0, 1])
async def test_an_earlier_payment_counts_if_one_of_two_endpoints_still_has_its_log(forgetful: int) -> None:
    nodes = [ScriptedNode(), ScriptedNode()]
    nodes[1].blocks = nodes[0].blocks
    async with open_scripted(*nodes) as rpc:
        post = Post(nodes[0], rpc)
        nodes[forgetful].lost_logs = {post.pay(SESSION, 60).block_hash}
        for _ in range(2 * NEAR_BLOCKS):
            post.node.mine()
        nodes[1 - forgetful].is_down = True
        with pytest.raises(ChainUnavailableError):
            await post.catch_up()
        assert await post.ledger.chain_head() is None, "one of two endpoints may have forgotten payments"
        nodes[1 - forgetful].is_down = False
        assert await post.catch_up() == UnknownPayments(count=1, amount_micro=60)
