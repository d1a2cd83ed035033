"""What the watcher makes of single logs: rows, parties, sums and bloom filters, without a node."""

from typing import Any

import pytest
from eth_bloom import BloomFilter

from sightline.chain.contracts.abi import (
    APPROVAL_TOPIC,
    LIMITS_SET_TOPIC,
    SETTLED_TOPIC,
    TRANSFER_TOPIC,
    address_topic,
)
from sightline.chain.contracts.escrow import EXTENDED_TOPIC, OPENED_TOPIC, RECLAIMED_TOPIC
from sightline.chain.watcher.events import (
    ZERO_ADDRESS,
    Log,
    Watched,
    bloom_has,
    bloom_mask,
    bloom_promises,
    log_of,
    parties,
    read_logs,
    transfer_sums,
)
from sightline.domain.errors import ChainUnavailableError
from sightline.domain.value import replace
from sightline.ports.ledger import ChainEvent, LedgerEventKind

TOKEN, SETTLEMENT, OTHER = "0x" + "aa" * 20, "0x" + "cc" * 20, "0x" + "dd" * 20
LOW = "0x" + "11" * 20
ALICE, BOB, CAROL = "0x" + "a1" * 20, "0x" + "b2" * 20, "0x" + "c3" * 20
SESSION = "0x" + "5e" * 32
KINDS_OF_OTHERS = ("0x" + "00" * 32, "0x" + "ff" * 32)
WATCHED = Watched(token=TOKEN, settlement=SETTLEMENT, wallets=frozenset({ALICE, BOB}))


def word(number: int) -> bytes:
    return number.to_bytes(32, "big")


def a_log(kind: str, *addresses: str, data: bytes = b"", at: int = 0, tx: str = "0xt", block: int = 7) -> Log:
    # Equal to the constants and other objects, as from an endpoint.
    topics = (kind.encode().decode(), *(each if len(each) == 66 else address_topic(each) for each in addresses))
    address = (SETTLEMENT if kind in (SETTLED_TOPIC, LIMITS_SET_TOPIC) else TOKEN).encode().decode()
    return Log(
        address=address, topics=topics, data=data, tx_hash=tx.encode().decode(), log_index=at, block_number=block,
        block_hash=f"0xb{block}",
    )  # fmt: skip


def moved(sender: str, receiver: str, amount: int, **place: Any) -> Log:
    return a_log(TRANSFER_TOPIC, sender, receiver, data=word(amount), **place)


def approved(holder: str, spender: str, amount: int, **place: Any) -> Log:
    return a_log(APPROVAL_TOPIC, holder, spender, data=word(amount), **place)


def settled(payer: str, payee: str, to_amount: int, fee: int, session: str = SESSION, **place: Any) -> Log:
    data = word(to_amount) + word(fee) + bytes(96)
    return a_log(SETTLED_TOPIC, session, payer, payee, data=data, **place)


def rows(*logs: Log) -> set[tuple[str, LedgerEventKind, int, int, str | None]]:
    """Wallet, kind, log index, amount and session of each row."""
    return {
        (event.address, event.kind, event.log_index, event.amount_micro, event.session_id_hash)
        for event in read_logs(logs, WATCHED).events
    }


def test_a_log_is_decoded_in_lower_case_and_with_numbers() -> None:
    entry = {
        "address": TOKEN.upper().replace("0X", "0x"), "topics": [TRANSFER_TOPIC.upper().replace("0X", "0x")],
        "data": "0x0102", "transactionHash": "0xAB", "logIndex": "0x1f", "blockNumber": "0x20", "blockHash": "0xCD",
    }  # fmt: skip
    expected = Log(
        address=TOKEN, topics=(TRANSFER_TOPIC,), data=b"\x01\x02", tx_hash="0xab", log_index=31, block_number=32,
        block_hash="0xcd",
    )  # fmt: skip
    assert log_of(entry) == expected
    wrong: list[Any] = [None, {}, entry | {"data": "0x1"}, entry | {"topics": None}, entry | {"logIndex": None}]
    for each in wrong:
        with pytest.raises(ChainUnavailableError):
            log_of(each)


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (moved(ZERO_ADDRESS, ALICE, 5), {(ALICE, LedgerEventKind.DEPOSIT)}),
        (moved(ALICE, ZERO_ADDRESS, 5), {(ALICE, LedgerEventKind.WITHDRAWAL)}),
        (moved(ALICE, BOB, 5), {(ALICE, LedgerEventKind.TRANSFER_OUT), (BOB, LedgerEventKind.TRANSFER_IN)}),
        (moved(ALICE, CAROL, 5), {(ALICE, LedgerEventKind.TRANSFER_OUT)}),
        (moved(CAROL, BOB, 5), {(BOB, LedgerEventKind.TRANSFER_IN)}),
        (moved(CAROL, OTHER, 5), set()),
        (approved(ALICE, SETTLEMENT, 5), {(ALICE, LedgerEventKind.APPROVAL)}),
        (approved(ALICE, OTHER, 5), set()),
        (approved(CAROL, SETTLEMENT, 5), set()),
        (replace(moved(ALICE, BOB, 5), address=OTHER), set()),
        (replace(moved(ALICE, BOB, 5), address=LOW), set()),
        (replace(approved(ALICE, SETTLEMENT, 5), address=LOW), set()),
        (replace(settled(ALICE, BOB, 0, 0), address=LOW), set()),
        (replace(settled(ALICE, BOB, 0, 0), address=OTHER), set()),
        (approved(ALICE, LOW, 5), set()),
        (replace(moved(ALICE, BOB, 5), address=SETTLEMENT), set()),
        (replace(approved(ALICE, SETTLEMENT, 5), address=OTHER), set()),
        (replace(moved(ALICE, BOB, 5), topics=()), set()),
        (replace(moved(ALICE, BOB, 5), data=word(5)[1:]), set()),
        (replace(moved(ALICE, BOB, 5), data=word(5) + b"\x00"), set()),
        (replace(moved(ALICE, BOB, 5), topics=(*moved(ALICE, BOB, 5).topics, SESSION)), set()),
        (replace(approved(ALICE, SETTLEMENT, 5), data=word(5)[1:]), set()),
        (replace(approved(ALICE, SETTLEMENT, 5), topics=(*approved(ALICE, SETTLEMENT, 5).topics, SESSION)), set()),
        (replace(moved(ALICE, BOB, 5), topics=moved(ALICE, BOB, 5).topics[:2]), set()),
        (replace(approved(ALICE, SETTLEMENT, 5), topics=approved(ALICE, SETTLEMENT, 5).topics[:2]), set()),
        (settled(ALICE, BOB, 0, 0), {(ALICE, LedgerEventKind.SETTLEMENT), (BOB, LedgerEventKind.SETTLEMENT)}),
        (settled(ALICE, CAROL, 0, 0), {(ALICE, LedgerEventKind.SETTLEMENT)}),
        (settled(ALICE, BOB, 1, 0), set()),
        (settled(ALICE, BOB, 0, 1), set()),
        (a_log(LIMITS_SET_TOPIC, ALICE), set()),
        *[(a_log(kind, ALICE, SETTLEMENT, data=word(5)), set()) for kind in KINDS_OF_OTHERS],
        *[
            (replace(a_log(kind, SESSION, ALICE, BOB, data=bytes(160)), address=SETTLEMENT), set())
            for kind in KINDS_OF_OTHERS
        ],
        (replace(settled(ALICE, BOB, 0, 0), topics=settled(ALICE, BOB, 0, 0).topics[:3]), set()),
        (replace(settled(ALICE, BOB, 0, 0), topics=(*settled(ALICE, BOB, 0, 0).topics, SESSION)), set()),
    ],
)
def test_the_rows_of_one_log(log: Log, expected: set[tuple[str, LedgerEventKind]]) -> None:
    assert {row[:2] for row in rows(log)} == expected


def test_a_row_has_everything_of_its_log() -> None:
    (event,) = read_logs([moved(CAROL, BOB, 5, at=3, tx="0xt1", block=9)], WATCHED).events
    assert event == ChainEvent(
        address=BOB, kind=LedgerEventKind.TRANSFER_IN, tx_hash="0xt1", log_index=3, block_number=9, block_hash="0xb9",
        from_address=CAROL, to_address=BOB, amount_micro=5, session_id_hash=None,
    )  # fmt: skip


def test_a_settlement_without_a_charge_names_its_session() -> None:
    assert rows(settled(ALICE, CAROL, 0, 0)) == {(ALICE, LedgerEventKind.SETTLEMENT, 0, 0, SESSION)}


def test_a_transfer_to_oneself_is_one_row_that_came_in() -> None:
    assert rows(moved(ALICE, ALICE, 5)) == {(ALICE, LedgerEventKind.TRANSFER_IN, 0, 5, None)}


def test_the_payees_part_and_the_fee_before_the_event_are_the_settlement() -> None:
    found = rows(
        moved(ALICE, BOB, 9, at=0), moved(ALICE, BOB, 40, at=1), moved(ALICE, CAROL, 2, at=2),
        settled(ALICE, BOB, 40, 2, at=3),
    )  # fmt: skip
    assert found == {
        (ALICE, LedgerEventKind.TRANSFER_OUT, 0, 9, None),
        (BOB, LedgerEventKind.TRANSFER_IN, 0, 9, None),
        (ALICE, LedgerEventKind.SETTLEMENT, 1, 40, SESSION),
        (BOB, LedgerEventKind.SETTLEMENT, 1, 40, SESSION),
        (ALICE, LedgerEventKind.SETTLEMENT, 2, 2, SESSION),
    }


@pytest.mark.parametrize(
    "logs",
    [
        [moved(ALICE, BOB, 40, tx="0xt1", block=6), settled(ALICE, BOB, 40, 0, tx="0xt2")],
        [moved(ALICE, BOB, 40, tx="0xt2", block=6), settled(ALICE, BOB, 40, 0, tx="0xt1")],
        [moved(LOW, BOB, 40, at=0), settled(ALICE, BOB, 40, 0, at=1)],
        [moved(ALICE, BOB, 39, at=0), settled(ALICE, BOB, 40, 0, at=1)],
        [moved(ALICE, BOB, 40, at=2), settled(ALICE, BOB, 40, 0, at=1)],
        [moved(CAROL, BOB, 40, at=0), settled(ALICE, BOB, 40, 0, at=1)],
        [moved(ALICE, BOB, 41, at=0), settled(ALICE, BOB, 40, 0, at=1)],
        [moved(ALICE, BOB, 40, at=0), settled(ALICE, BOB, 0, 0, at=1)],
        [moved(ALICE, BOB, 40, at=0), replace(settled(ALICE, BOB, 40, 0, at=1), address=OTHER)],
    ],
    ids=[
        "another transaction",
        "an earlier hash",
        "a lower payer",
        "a lower amount",
        "after the event",
        "another payer",
        "another amount",
        "free",
        "another contract",
    ],
)
def test_other_transfers_do_not_belong_to_a_settlement(logs: list[Log]) -> None:
    transfers = {row for row in rows(*logs) if row[3]}
    assert transfers
    assert {row[4] for row in transfers} == {None}


def test_a_batch_gives_each_session_its_own_transfers_in_any_order_of_the_answer() -> None:
    second = "0x" + "6f" * 32
    logs = [
        moved(ALICE, BOB, 10, at=0), settled(ALICE, BOB, 10, 0, at=1),
        moved(BOB, ALICE, 20, at=2), moved(BOB, CAROL, 3, at=3), settled(BOB, ALICE, 20, 3, second, at=4),
    ]  # fmt: skip
    for answer in (logs, logs[::-1]):
        assert {(row[2], row[4]) for row in rows(*answer)} == {(0, SESSION), (2, second), (3, second)}


def test_the_transfers_of_an_escrow_belong_to_the_session_whose_hold_they_open_or_close() -> None:
    watched, second = replace(WATCHED, is_escrow=True), "0x" + "6f" * 32

    def opened(session: str, **place: Any) -> Log:
        return replace(a_log(OPENED_TOPIC, session, ALICE, BOB, data=word(100), **place), address=SETTLEMENT)

    logs = [
        moved(ALICE, BOB, 7, at=0), opened(SESSION, at=1), moved(ALICE, SETTLEMENT, 100, at=2),
        moved(ALICE, SETTLEMENT, 3, at=3),
        moved(ALICE, BOB, 8, at=4, tx="0xu"), moved(SETTLEMENT, BOB, 40, at=5, tx="0xu"),
        moved(SETTLEMENT, ALICE, 55, at=6, tx="0xu"), settled(ALICE, BOB, 40, 5, at=7, tx="0xu"),
        moved(SETTLEMENT, ALICE, 60, at=8, tx="0xu"), settled(ALICE, BOB, 0, 0, second, at=9, tx="0xu"),
    ]  # fmt: skip
    events = read_logs(logs, watched).events
    found = {(event.log_index, event.address, event.kind): event.session_id_hash for event in events}
    transfers = {key: session for key, session in found.items() if key[0] not in (7, 9)}
    assert transfers == {
        (0, ALICE, LedgerEventKind.TRANSFER_OUT): None, (0, BOB, LedgerEventKind.TRANSFER_IN): None,
        (2, ALICE, LedgerEventKind.TRANSFER_OUT): SESSION, (3, ALICE, LedgerEventKind.TRANSFER_OUT): None,
        (4, ALICE, LedgerEventKind.TRANSFER_OUT): None, (4, BOB, LedgerEventKind.TRANSFER_IN): None,
        (5, BOB, LedgerEventKind.SETTLEMENT): SESSION, (6, ALICE, LedgerEventKind.TRANSFER_IN): SESSION,
        (8, ALICE, LedgerEventKind.TRANSFER_IN): second,
    }  # fmt: skip


ESCROWED = replace(WATCHED, is_escrow=True)


def of_escrow(kind: str, **place: Any) -> Log:
    return replace(a_log(kind, SESSION, ALICE, BOB, data=word(100), **place), address=SETTLEMENT)


def sessions_of(*logs: Log) -> list[str | None]:
    """The session of each transfer."""
    events = {event.log_index: event.session_id_hash for event in read_logs(logs, ESCROWED).events}
    return [events[log.log_index] for log in logs if log.topics[0] == TRANSFER_TOPIC]


def test_what_an_extension_takes_belongs_to_its_session() -> None:
    extended = replace(a_log(EXTENDED_TOPIC, SESSION, data=word(100) + word(300), at=0), address=SETTLEMENT)
    assert sessions_of(extended, moved(ALICE, SETTLEMENT, 100, at=1)) == [SESSION]


@pytest.mark.parametrize("hashes", [("0xt1", "0xt2"), ("0xt2", "0xt1")])
def test_what_one_transaction_opens_or_pays_does_not_reach_into_the_next_one(hashes: tuple[str, str]) -> None:
    first, second = hashes
    taken = moved(ALICE, SETTLEMENT, 100, at=1, tx=second)
    assert sessions_of(of_escrow(OPENED_TOPIC, at=0, tx=second), taken) == [SESSION]
    assert sessions_of(of_escrow(OPENED_TOPIC, at=0, tx=first), taken) == [None]
    paid = moved(SETTLEMENT, BOB, 40, at=0, tx=second)
    assert sessions_of(paid, settled(ALICE, BOB, 40, 0, at=1, tx=second)) == [SESSION]
    earlier = moved(SETTLEMENT, BOB, 40, at=0, tx=first)
    assert sessions_of(earlier, settled(ALICE, BOB, 40, 0, at=1, tx=second)) == [None]


@pytest.mark.parametrize("other", [LOW, OTHER])
def test_transfers_between_others_belong_to_no_hold(other: str) -> None:
    opened = of_escrow(OPENED_TOPIC, at=0)
    between, taken = moved(ALICE, other, 100, at=1), moved(ALICE, SETTLEMENT, 100, at=2)
    assert sessions_of(opened, between, taken) == [None, SESSION]
    event = settled(ALICE, BOB, 40, 0, at=3)
    assert sessions_of(moved(other, BOB, 40, at=1), moved(SETTLEMENT, BOB, 40, at=2), event) == [None, SESSION]


@pytest.mark.parametrize("kind", KINDS_OF_OTHERS)
def test_an_event_of_another_kind_opens_and_ends_no_hold(kind: str) -> None:
    assert sessions_of(of_escrow(kind, at=0), moved(ALICE, SETTLEMENT, 100, at=1)) == [None]
    assert sessions_of(moved(SETTLEMENT, BOB, 40, at=0), of_escrow(kind, at=1)) == [None]


def test_what_a_hold_that_is_reclaimed_returns_belongs_to_its_session() -> None:
    assert sessions_of(moved(SETTLEMENT, ALICE, 100, at=0), of_escrow(RECLAIMED_TOPIC, at=1)) == [SESSION]


def test_logs_are_read_block_by_block_in_their_order() -> None:
    logs = [
        moved(CAROL, ALICE, number, at=at, block=block) for number, (block, at) in enumerate([(8, 0), (7, 1), (7, 0)])
    ]
    assert [event.amount_micro for event in read_logs(logs, WATCHED).events] == [2, 1, 0]


def test_wallets_are_touched_by_rows_limits_and_settlements() -> None:
    def touched(*logs: Log) -> frozenset[str]:
        return read_logs(logs, WATCHED).touched

    assert touched(moved(CAROL, BOB, 1)) == {BOB}
    assert touched(a_log(LIMITS_SET_TOPIC, ALICE)) == {ALICE}
    assert touched(a_log(LIMITS_SET_TOPIC, CAROL)) == frozenset()
    for address in (OTHER, LOW):
        assert touched(replace(a_log(LIMITS_SET_TOPIC, ALICE), address=address)) == frozenset()
    for kind in KINDS_OF_OTHERS:
        assert touched(replace(a_log(kind, ALICE, BOB, CAROL), address=SETTLEMENT)) == frozenset()
    assert touched(settled(ALICE, BOB, 5, 0)) == {ALICE}
    assert touched(settled(CAROL, BOB, 5, 0)) == frozenset()
    meaning = read_logs([settled(ALICE, BOB, 5, 0, at=1), replace(settled(ALICE, BOB, 5, 0), topics=())], WATCHED)
    assert meaning.settled == ((SESSION, 7),)


def test_parties_are_holders_payers_and_payees_of_the_two_contracts() -> None:
    assert parties([moved(ALICE, CAROL, 1)], WATCHED) == {ALICE, CAROL}
    assert parties([approved(CAROL, OTHER, 1)], WATCHED) == {CAROL, OTHER}
    assert parties([settled(ALICE, BOB, 1, 0)], WATCHED) == {ALICE, BOB}
    assert parties([a_log(LIMITS_SET_TOPIC, CAROL)], WATCHED) == {CAROL}
    for log in (moved(ALICE, CAROL, 1), settled(ALICE, BOB, 1, 0), a_log(LIMITS_SET_TOPIC, CAROL)):
        assert parties([replace(log, address=OTHER), replace(log, address=LOW)], WATCHED) == set()
        assert parties([replace(log, topics=())], WATCHED) == set()
    for kind in KINDS_OF_OTHERS:
        for contract in (TOKEN, SETTLEMENT):
            assert parties([replace(a_log(kind, ALICE, BOB, CAROL), address=contract)], WATCHED) == set()
    assert parties([replace(moved(ALICE, BOB, 1), address=SETTLEMENT)], WATCHED) == set()
    assert parties([replace(settled(ALICE, BOB, 1, 0), address=TOKEN)], WATCHED) == set()


def test_sums_add_what_came_in_and_subtract_what_went_out() -> None:
    logs = [
        moved(ZERO_ADDRESS, ALICE, 100), moved(ALICE, BOB, 30), moved(BOB, CAROL, 7), moved(ALICE, ALICE, 50),
        approved(ALICE, SETTLEMENT, 1_000), replace(moved(CAROL, ALICE, 5), address=OTHER),
        replace(moved(CAROL, ALICE, 5), address=LOW),
        a_log("0x" + "ff" * 32, CAROL, ALICE, data=word(5)), a_log("0x" + "00" * 32, CAROL, ALICE, data=word(5)),
    ]  # fmt: skip
    assert transfer_sums(logs, TOKEN, [ALICE, BOB]) == {ALICE: 70, BOB: 23}


@pytest.mark.parametrize("text", [TOKEN, SETTLEMENT, TRANSFER_TOPIC, SETTLED_TOPIC])
def test_the_bits_of_a_word_are_those_of_the_yellow_paper(text: str) -> None:
    bloom_mask.cache_clear()
    filled = BloomFilter()
    filled.add(bytes.fromhex(text[2:]))
    mask = bloom_mask(text)
    assert mask == int(filled)
    assert bloom_has(mask | 1 << 2047 | 1, text)
    assert not bloom_has(mask & (mask - 1), text)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), False),
        ((SETTLEMENT, SETTLED_TOPIC), True),
        ((SETTLEMENT, LIMITS_SET_TOPIC), True),
        ((TOKEN, TRANSFER_TOPIC), True),
        ((TOKEN, APPROVAL_TOPIC), True),
        ((SETTLEMENT,), False),
        ((TOKEN,), False),
        ((SETTLED_TOPIC, LIMITS_SET_TOPIC, TRANSFER_TOPIC, APPROVAL_TOPIC), False),
        ((TOKEN, SETTLED_TOPIC, LIMITS_SET_TOPIC), False),
        ((SETTLEMENT, TRANSFER_TOPIC, APPROVAL_TOPIC), False),
    ],
)
def test_a_block_may_hold_a_log_if_its_contract_and_its_kind_are_in_the_filter(
    words: tuple[str, ...], expected: bool
) -> None:
    bloom_mask.cache_clear()
    bits = 0
    for each in words:
        bits |= bloom_mask(each)
    assert bloom_promises("0x" + bits.to_bytes(256, "big").hex(), WATCHED) is expected
