"""Decodes logs of the token and the settlement contract into wallet events. Does no I/O."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias, final

from sightline.chain.contracts.abi import (
    APPROVAL_TOPIC,
    LIMITS_SET_TOPIC,
    SETTLED_TOPIC,
    TRANSFER_TOPIC,
    SettledEvent,
    topic_address,
)
from sightline.chain.contracts.escrow import EXTENDED_TOPIC, OPENED_TOPIC, RECLAIMED_TOPIC
from sightline.chain.rpc.reader import hex_int
from sightline.domain.errors import ChainUnavailableError
from sightline.domain.settlement import ChainPayment
from sightline.domain.value import Value
from sightline.ports.ledger import ChainEvent, LedgerEventKind
from sightline.system.keccak import keccak256

ZERO_ADDRESS: Final = "0x" + "0" * 40
FOLLOWED: Final = (SETTLED_TOPIC, LIMITS_SET_TOPIC, OPENED_TOPIC, EXTENDED_TOPIC, RECLAIMED_TOPIC)
"""Events of the settlement contract that change what the ledger says."""


@final
class Watched(Value, kw_only=True):
    """The contracts and wallets that the watcher follows; addresses are lower-case."""

    token: str
    settlement: str
    wallets: frozenset[str]
    is_escrow: bool = False
    """Whether the contract is SessionEscrow: money moves through the contract, not from payer to payee."""


@final
class Log(Value, kw_only=True):
    """A log with its numbers decoded."""

    address: str
    topics: tuple[str, ...]
    data: bytes
    tx_hash: str
    log_index: int
    block_number: int
    block_hash: str


@final
class Meaning(Value, kw_only=True):
    """The content of a block's logs: ledger rows, wallets whose numbers changed, and settled sessions."""

    events: tuple[ChainEvent, ...]
    touched: frozenset[str]
    settled: tuple[tuple[str, int], ...]
    """Sessions whose hold is over, with their block: settled, or returned to the payer by a reclaim."""
    escrowed: tuple[tuple[str, int], ...] = ()
    """Sessions whose amount the escrow contract took, with their block."""


class _OfSession(NamedTuple):
    """The session that a transfer belongs to, and whether the transfer is its charge."""

    session_id_hash: str
    is_charge: bool


_SessionOf: TypeAlias = dict[tuple[str, int], _OfSession]
"""Transfers that belong to sessions, by block hash and log index."""


def log_of(entry: Any) -> Log:
    """Decode a log from JSON-RPC.

    Raises:
        ChainUnavailableError: The value is not a log.
    """
    try:
        return Log(
            address=entry["address"].lower(),
            topics=tuple(topic.lower() for topic in entry["topics"]),
            data=bytes.fromhex(entry["data"].removeprefix("0x")),
            tx_hash=entry["transactionHash"].lower(),
            log_index=hex_int(entry["logIndex"]),
            block_number=hex_int(entry["blockNumber"]),
            block_hash=entry["blockHash"].lower(),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ChainUnavailableError("the endpoint's answer is not a log") from error


def parties(logs: Iterable[Log], watched: Watched) -> set[str]:
    """Return every address in these logs that may be a tracked wallet: holders, payers and payees."""
    found: set[str] = set()
    for log in logs:
        kind = log.topics[0] if log.topics else ""
        if log.address == watched.token and kind in (TRANSFER_TOPIC, APPROVAL_TOPIC):
            found |= {topic_address(word) for word in log.topics[1:3]}
        elif log.address == watched.settlement and kind == SETTLED_TOPIC:
            found |= {topic_address(word) for word in log.topics[2:4]}
        elif log.address == watched.settlement and kind == LIMITS_SET_TOPIC:
            found |= {topic_address(word) for word in log.topics[1:2]}
    return found


def read_logs(logs: Iterable[Log], watched: Watched) -> Meaning:
    """Decode the logs of several blocks; logs of other contracts and wallets are ignored."""
    ordered = sorted(logs, key=lambda log: (log.block_number, log.log_index))
    settlements = [log for log in ordered if _is_settled(log, watched)]
    session_of = _escrow_transfers(ordered, watched) if watched.is_escrow else _sessions_of_transfers(ordered, watched)
    events: list[ChainEvent] = []
    touched: set[str] = set()
    for log in ordered:
        found = _events_of(log, watched, session_of)
        events += found
        touched |= {event.address for event in found}
        if log.address == watched.settlement and log.topics[:1] == (LIMITS_SET_TOPIC,):
            touched |= {topic_address(log.topics[1])} & watched.wallets
    touched |= {topic_address(log.topics[2]) for log in settlements} & watched.wallets
    return Meaning(
        events=tuple(events),
        touched=frozenset(touched),
        settled=tuple((log.topics[1], log.block_number) for log in ordered if _ends_hold(log, watched)),
        escrowed=tuple((log.topics[1], log.block_number) for log in ordered if _is_of(log, watched, OPENED_TOPIC)),
    )


def payments_in(logs: Iterable[Log], watched: Watched) -> list[ChainPayment]:
    """Decode the Settled events of the settlement contract."""
    return [_payment(log) for log in logs if _is_settled(log, watched)]


def _payment(log: Log) -> ChainPayment:
    event = SettledEvent.of(log.topics, log.data)
    return ChainPayment(
        session_id_hash=event.session_id_hash,
        payer=event.payer,
        payee=event.payee,
        to_amount=event.to_amount,
        fee_amount=event.fee_amount,
        rate=event.rate,
        seconds=event.seconds,
        fee_bps=event.platform_fee_bps,
        tx_hash=log.tx_hash,
        log_index=log.log_index,
        block_number=log.block_number,
        block_hash=log.block_hash,
    )


def _is_of(log: Log, watched: Watched, kind: str) -> bool:
    return log.address == watched.settlement and log.topics[:1] == (kind,)


def _is_settled(log: Log, watched: Watched) -> bool:
    return _is_of(log, watched, SETTLED_TOPIC) and len(log.topics) == 4


def _ends_hold(log: Log, watched: Watched) -> bool:
    return _is_settled(log, watched) or _is_of(log, watched, RECLAIMED_TOPIC)


def _is_transfer(log: Log, watched: Watched) -> bool:
    is_of_token = log.address == watched.token and log.topics[:1] == (TRANSFER_TOPIC,)
    return is_of_token and len(log.topics) == 3 and len(log.data) == 32


def _sessions_of_transfers(ordered: Sequence[Log], watched: Watched) -> _SessionOf:
    """Map transfers to the session that they settle, by (block hash, log index).

    The contract transfers the payee's part, then the fee, then emits Settled. The transfers of a session are therefore
    the
    last ones before its Settled event in the same transaction; earlier transfers do not belong to it.
    """
    session_of: _SessionOf = {}
    before: list[Log] = []
    for log in ordered:
        if before and before[-1].tx_hash != log.tx_hash:
            before = []
        if _is_transfer(log, watched):
            before.append(log)
        elif _is_settled(log, watched):
            event = SettledEvent.of(log.topics, log.data)
            for amount in (event.fee_amount, event.to_amount):
                if amount and before and _moved(before[-1]) == (event.payer, amount):
                    transfer = before.pop()
                    session_of[transfer.block_hash, transfer.log_index] = _OfSession(
                        event.session_id_hash, is_charge=True
                    )
            before = []
    return session_of


def _escrow_transfers(ordered: Sequence[Log], watched: Watched) -> _SessionOf:
    """Map transfers to and from the escrow contract to their session, by (block hash, log index).

    The contract emits Opened or Extended before it takes the amount. It pays the payee, returns the rest to the payer,
    and then emits Settled; it returns everything before Reclaimed. The fees of a batch are one transfer at its end.
    """
    session_of: _SessionOf = {}
    opened: str | None = None
    paid: list[Log] = []
    tx_hash = ""
    for log in ordered:
        if log.tx_hash != tx_hash:
            tx_hash, opened, paid = log.tx_hash, None, []
        if _is_transfer(log, watched):
            if opened is not None and topic_address(log.topics[2]) == watched.settlement:
                session_of[log.block_hash, log.log_index] = _OfSession(opened, is_charge=False)
                opened = None
            elif topic_address(log.topics[1]) == watched.settlement:
                paid.append(log)
        elif _is_of(log, watched, OPENED_TOPIC) or _is_of(log, watched, EXTENDED_TOPIC):
            opened = log.topics[1]
        elif _ends_hold(log, watched):
            # The payee's part comes first. Without a charge there is none.
            charge = 1 if _is_settled(log, watched) and int.from_bytes(log.data[:32], "big") else 0
            for position, each in enumerate(paid):
                session_of[each.block_hash, each.log_index] = _OfSession(log.topics[1], is_charge=position < charge)
            paid = []
    return session_of


def _moved(log: Log) -> tuple[str, int]:
    return topic_address(log.topics[1]), int.from_bytes(log.data, "big")


def _events_of(log: Log, watched: Watched, session_of: _SessionOf) -> list[ChainEvent]:
    kind = log.topics[0] if log.topics else ""
    if _is_transfer(log, watched):
        return _transfer(log, watched, session_of.get((log.block_hash, log.log_index)))
    if log.address == watched.token and kind == APPROVAL_TOPIC and len(log.topics) == 3 and len(log.data) == 32:
        return _approval(log, watched)
    if _is_settled(log, watched) and int.from_bytes(log.data[:64], "big") == 0:
        return _free_settlement(log, watched)
    return []


def _transfer(log: Log, watched: Watched, of: _OfSession | None) -> list[ChainEvent]:
    sender, receiver = topic_address(log.topics[1]), topic_address(log.topics[2])
    amount = int.from_bytes(log.data, "big")
    rows = []
    for wallet in {sender, receiver} & watched.wallets:
        if of is not None and of.is_charge:
            kind = LedgerEventKind.SETTLEMENT
        elif sender == ZERO_ADDRESS:
            kind = LedgerEventKind.DEPOSIT
        elif receiver == ZERO_ADDRESS:
            kind = LedgerEventKind.WITHDRAWAL
        else:
            kind = LedgerEventKind.TRANSFER_IN if wallet == receiver else LedgerEventKind.TRANSFER_OUT
        rows.append(_row(log, wallet, kind, sender, receiver, amount, None if of is None else of.session_id_hash))
    return rows


def _approval(log: Log, watched: Watched) -> list[ChainEvent]:
    holder, spender = topic_address(log.topics[1]), topic_address(log.topics[2])
    if holder not in watched.wallets or spender != watched.settlement:
        return []
    amount = int.from_bytes(log.data, "big")
    return [_row(log, holder, LedgerEventKind.APPROVAL, holder, spender, amount, None)]


def _free_settlement(log: Log, watched: Watched) -> list[ChainEvent]:
    """Build the ledger row of a settlement without a charge: it moves no token, so only the Settled event exists."""
    payer, payee = topic_address(log.topics[2]), topic_address(log.topics[3])
    wallets = {payer, payee} & watched.wallets
    return [_row(log, wallet, LedgerEventKind.SETTLEMENT, payer, payee, 0, log.topics[1]) for wallet in wallets]


def _row(
    log: Log, wallet: str, kind: LedgerEventKind, sender: str, receiver: str, amount: int, session_id_hash: str | None
) -> ChainEvent:
    return ChainEvent(
        address=wallet,
        kind=kind,
        tx_hash=log.tx_hash,
        log_index=log.log_index,
        block_number=log.block_number,
        block_hash=log.block_hash,
        from_address=sender,
        to_address=receiver,
        amount_micro=amount,
        session_id_hash=session_id_hash,
    )


def transfer_sums(logs: Iterable[Log], token: str, wallets: Sequence[str]) -> dict[str, int]:
    """Return by how much the token's transfers in these logs change each wallet's balance."""
    sums = dict.fromkeys(wallets, 0)
    for log in logs:
        if log.address != token or log.topics[:1] != (TRANSFER_TOPIC,):
            continue
        amount = int.from_bytes(log.data, "big")
        for sign, topic in ((-1, log.topics[1]), (1, log.topics[2])):
            wallet = topic_address(topic)
            if wallet in sums:
                sums[wallet] += sign * amount
    return sums


@lru_cache(maxsize=64)
def bloom_mask(word: str) -> int:
    """Return the bits that an address or a topic sets in a bloom filter (yellow paper, 4.4.3)."""
    digest = keccak256(bytes.fromhex(word[2:]))
    mask = 0
    for at in (0, 2, 4):
        mask |= 1 << (int.from_bytes(digest[at : at + 2], "big") & 2047)
    return mask


def bloom_has(bits: int, word: str) -> bool:
    """Return whether a bloom filter matches this address or topic."""
    mask = bloom_mask(word)
    return bits & mask == mask


def bloom_promises(bloom: str, watched: Watched) -> bool:
    """Return whether a block may hold a log of the two contracts; False is certain."""
    bits = int(bloom, 16)
    if bloom_has(bits, watched.settlement) and any(bloom_has(bits, kind) for kind in FOLLOWED):
        return True
    return bloom_has(bits, watched.token) and (bloom_has(bits, TRANSFER_TOPIC) or bloom_has(bits, APPROVAL_TOPIC))
