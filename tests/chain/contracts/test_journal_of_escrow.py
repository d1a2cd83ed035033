"""The journal's entries of SessionEscrow's logs: after every act the books equal what the contract says of itself."""

import dataclasses
from collections import Counter
from dataclasses import dataclass, field

import pytest

from sightline.chain.contracts.escrow import CREDITED_TOPIC
from sightline.chain.reconcile.compare import compare_events
from sightline.chain.reconcile.facts import ChainFacts, RawLog
from sightline.chain.signer import Signer
from sightline.chain.watcher.books import entries_in
from sightline.chain.watcher.events import Log, Watched
from sightline.domain.books.differences import Difference
from sightline.domain.books.journal import EntryKind, JournalEntry, credit_of, held_by
from tests.chain.contracts.escrow_world import RATE, SECONDS, EscrowWorld
from tests.chain.contracts.ground import Done, Ground

HOLD = RATE * SECONDS


@dataclass
class RecordedGround:
    """A ground that keeps the logs of each call as those of a block of its own."""

    ground: Ground
    logs: list[Log] = field(default_factory=list)
    blocks: int = 0

    @property
    def now_s(self) -> int:
        return self.ground.now_s

    def wait(self, seconds: int) -> None:
        self.ground.wait(seconds)

    def create(self, code: bytes) -> str:
        return self.ground.create(code)

    def view(self, to: str, data: bytes) -> bytes:
        return self.ground.view(to, data)

    def call(self, sender: Signer, to: str, data: bytes) -> Done:
        done = self.ground.call(sender, to, data)
        self.blocks += 1
        self.logs += [
            Log(
                address=address.lower(), topics=tuple(topics), data=content, tx_hash=f"0x{self.blocks}",
                log_index=index, block_number=self.blocks, block_hash=f"0xb{self.blocks}",
            )
            for index, (address, topics, content) in enumerate(done.logs)
        ]  # fmt: skip
        return done


@dataclass
class Diary:
    """A contract and the books that its logs make."""

    world: EscrowWorld
    ground: RecordedGround

    def entries(self) -> tuple[JournalEntry, ...]:
        watched = Watched(
            token=self.world.token.lower(), settlement=self.world.escrow.lower(), wallets=frozenset(), is_escrow=True
        )
        times_ms = {number: 1_000 * number for number in range(self.ground.blocks + 1)}
        return entries_in(self.ground.logs, watched, times_ms, {}, {})

    def kinds(self) -> list[EntryKind]:
        return [entry.kind for entry in self.entries()]

    def balances(self) -> Counter[str]:
        sums: Counter[str] = Counter()
        for entry in self.entries():
            for line in entry.lines:
                sums[line.account] += line.amount
        return sums

    def assert_equal_to_the_contract(self) -> None:
        books, world = self.balances(), self.world
        assert self.differences() == [], "the reconciliation decodes the same logs by itself"
        assert books["escrow"] == world.balance(world.escrow)
        assert -sum(books[account] for account in books if account.startswith("held:")) == world.ask("totalHeld()")
        assert -sum(books[account] for account in books if account.startswith("credit:")) == world.ask("totalCredit()")
        assert -books["stray"] == world.stray()
        assert all(books[account] <= 0 for account in books if account.startswith(("held:", "credit:", "stray")))

    def differences(self) -> list[Difference]:
        facts = ChainFacts(token=self.world.token.lower(), contract=self.world.escrow.lower(), is_escrow=True)
        facts.read(
            RawLog(
                log.address, log.topics, words_of(log.data), log.tx_hash, log.log_index, log.block_number,
                log.block_hash,
            )
            for log in self.ground.logs
        )  # fmt: skip
        assert facts.unexplained == []
        entries = {(entry.tx_hash, entry.log_index): [entry] for entry in self.entries()}
        return compare_events(facts.facts, entries, {}, {})

    def earned(self, who: str) -> int:
        return -self.balances()[f"payee:{self.world.address(who).lower()}"]

    def held(self, who: str) -> int:
        return -self.balances()[held_by(self.world.address(who).lower())]


def words_of(data: bytes) -> tuple[int, ...]:
    return tuple(int.from_bytes(data[at : at + 32]) for at in range(0, len(data), 32))


@pytest.fixture
def diary(world: EscrowWorld) -> Diary:
    ground = RecordedGround(world.ground)
    return Diary(dataclasses.replace(world, ground=ground), ground)


def test_an_open_is_a_hold_of_its_payer(diary: Diary) -> None:
    hold = diary.world.open_authorized(diary.world.terms())
    assert diary.kinds() == [EntryKind.OPENED]
    assert diary.entries()[0].session_id_hash == "0x" + hold.session_id_hash.hex()
    assert diary.held("payer") == HOLD
    diary.assert_equal_to_the_contract()


def test_an_extension_adds_to_the_hold_although_its_event_does_not_name_the_payer(diary: Diary) -> None:
    hold = diary.world.open_consented(diary.world.terms())
    diary.world.extend_authorized(hold, 5 * RATE)
    assert diary.kinds() == [EntryKind.OPENED, EntryKind.EXTENDED]
    assert diary.held("payer") == HOLD + 5 * RATE
    diary.assert_equal_to_the_contract()


def test_a_capture_is_earned_by_payee_and_platform_and_the_rest_is_returned(diary: Diary) -> None:
    world = diary.world
    holds = [world.open_exact(world.terms()), world.open_authorized(world.terms(payee=world.address("other")))]
    world.ground.wait(300)
    world.capture(*(world.item(hold, 100) for hold in holds))
    assert diary.kinds()[2:] == [EntryKind.SETTLED, EntryKind.RETURNED] * 2
    assert diary.earned("payee") == diary.earned("other") == 100 * RATE * 85 // 100
    assert -diary.balances()["fee"] == 2 * 100 * RATE * 15 // 100
    assert diary.balances()[f"payer:{world.address('payer').lower()}"] == 2 * 100 * RATE
    assert diary.held("payer") == 0
    diary.assert_equal_to_the_contract()


def test_a_capture_of_nothing_is_an_entry_without_lines_and_a_return_of_all(diary: Diary) -> None:
    hold = diary.world.open_authorized(diary.world.terms())
    diary.world.capture(diary.world.item(hold, 0))
    settled, returned = diary.entries()[1:]
    assert (settled.kind, settled.lines) == (EntryKind.SETTLED, ())
    assert returned.lines[0].amount == HOLD
    diary.assert_equal_to_the_contract()


def test_a_reclaim_returns_the_hold(diary: Diary) -> None:
    hold = diary.world.open_authorized(diary.world.terms())
    diary.world.ground.wait(SECONDS + 172_800)
    diary.world.call("reclaim", hold)
    assert diary.kinds() == [EntryKind.OPENED, EntryKind.RECLAIMED]
    assert diary.held("payer") == 0
    diary.assert_equal_to_the_contract()


@pytest.mark.parametrize("who", ["payer", "payee", "feeReceiver"])
def test_a_part_that_its_receiver_refuses_is_credited_and_withdrawn_later(diary: Diary, who: str) -> None:
    world = diary.world
    hold = world.open_authorized(world.terms())
    world.ground.wait(300)
    world.block(who)
    assert world.capture(world.item(hold, 100)).of(CREDITED_TOPIC)
    credited = next(entry for entry in diary.entries() if entry.kind is EntryKind.CREDITED)
    assert (credited.session_id_hash is None) == (who == "feeReceiver"), "the fees of a batch are of no session"
    assert -diary.balances()[credit_of(world.address(who).lower())] == world.credit(who) > 0
    diary.assert_equal_to_the_contract()
    world.block(who, False)
    world.call("withdraw", world.address(who))
    assert diary.kinds()[-1] is EntryKind.WITHDRAWN
    assert diary.balances()[credit_of(world.address(who).lower())] == 0
    diary.assert_equal_to_the_contract()


def test_money_without_a_hold_is_stray_until_it_is_returned(diary: Diary) -> None:
    world = diary.world
    world.open_authorized(world.terms())
    world.send("payer", world.token, "transfer(address,uint256)", world.escrow, 77)
    assert -diary.balances()["stray"] == 77
    diary.assert_equal_to_the_contract()
    world.return_stray("payer", 70, b"r" * 32)
    assert diary.kinds() == [EntryKind.OPENED, EntryKind.STRAY, EntryKind.STRAY_RETURNED]
    assert -diary.balances()["stray"] == 7
    diary.assert_equal_to_the_contract()
