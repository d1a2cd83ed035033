"""Compares facts of the chain with the journal. Does no I/O."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from sightline.chain.reconcile.facts import Fact
from sightline.domain.books.differences import Difference, DifferenceKind
from sightline.domain.books.journal import JournalEntry
from sightline.ports.ledger import StoredEntry
from sightline.system.keccak import session_id_hash

EventKey: TypeAlias = tuple[str, int]
"""Transaction hash and log index."""


def standing(entries: Iterable[StoredEntry]) -> dict[EventKey, list[JournalEntry]]:
    """Return the entries that no other entry has taken back, by event."""
    found = list(entries)
    gone = {each.reverses for each in found if each.reverses is not None}
    by_event: dict[EventKey, list[JournalEntry]] = {}
    for each in found:
        if each.reverses is None and each.id not in gone:
            by_event.setdefault((each.entry.tx_hash, each.entry.log_index), []).append(each.entry)
    return by_event


def compare_events(
    facts: Sequence[Fact],
    entries: Mapping[EventKey, Sequence[JournalEntry]],
    sessions: Mapping[str, str],
    block_hashes: Mapping[int, str],
) -> list[Difference]:
    """Compare the events of some blocks with the entries of the same blocks.

    Args:
        sessions: The sessions of this database, by hash.
        block_hashes: The hashes of blocks in which entries without an event are said to be.
    """
    found: list[Difference] = []
    known = {(fact.tx_hash, fact.index): fact for fact in facts}
    for key, fact in known.items():
        found += _compare_event(fact, entries.get(key, ()), sessions)
    for key, extra in entries.items():
        if key not in known:
            found += [_without_event(entry, block_hashes) for entry in extra]
    return found


def _compare_event(
    fact: Fact, entries: Sequence[JournalEntry], sessions: Mapping[str, str]
) -> list[Difference]:  # fmt: skip
    subject = _subject(fact.kind, fact.tx_hash, fact.index, fact.block)
    said = _text(fact.accounts)
    if not entries:
        return [Difference(kind=DifferenceKind.MISSING, subject=subject, chain=said, books="no entry")]
    if len(entries) > 1:
        books = f"{len(entries)} entries"
        return [Difference(kind=DifferenceKind.DOUBLED, subject=subject, chain="one event", books=books)]
    [entry] = entries
    found: list[Difference] = []
    if entry.block_hash != fact.block_hash:
        found.append(
            Difference(
                kind=DifferenceKind.NOT_ON_CHAIN, subject=subject, chain=f"block {fact.block} {fact.block_hash}",
                books=f"block {entry.block_number} {entry.block_hash}",
            )
        )  # fmt: skip
    lines = _net(entry)
    if kind := _wrong_lines(entry, lines, fact):
        found.append(Difference(kind=kind, subject=subject, chain=said, books=_text(lines)))
    hashed = fact.session_id_hash
    expected = fact.session_id if hashed is None else sessions.get(hashed)
    own_hash = None if entry.session_id is None else session_id_hash(entry.session_id)
    if entry.session_id != expected or entry.session_id_hash != hashed or own_hash not in (None, hashed, _of(fact)):
        books = f"session {entry.session_id}, hash {entry.session_id_hash}"
        chain = f"session {expected}, hash {hashed}"
        found.append(Difference(kind=DifferenceKind.SESSION, subject=subject, chain=chain, books=books))
    return found


def _of(fact: Fact) -> str | None:
    return None if fact.session_id is None else session_id_hash(fact.session_id)


def _wrong_lines(entry: JournalEntry, lines: Mapping[str, int], fact: Fact) -> DifferenceKind | None:
    if sum(line.amount for line in entry.lines) != 0:
        return DifferenceKind.UNBALANCED
    if set(lines) != set(fact.accounts):
        return DifferenceKind.ACCOUNT
    if dict(lines) != dict(fact.accounts) or {line.currency.value for line in entry.lines} - {fact.currency}:
        return DifferenceKind.AMOUNT
    return None if entry.kind.value == fact.kind else DifferenceKind.ACCOUNT


def _without_event(entry: JournalEntry, block_hashes: Mapping[int, str]) -> Difference:
    subject = _subject(entry.kind.value, entry.tx_hash, entry.log_index, entry.block_number)
    actual = block_hashes.get(entry.block_number)
    if actual != entry.block_hash:
        return Difference(
            kind=DifferenceKind.NOT_ON_CHAIN, subject=subject, chain=f"block {entry.block_number} {actual}",
            books=f"block {entry.block_number} {entry.block_hash}",
        )  # fmt: skip
    return Difference(
        kind=DifferenceKind.NO_SUCH_EVENT, subject=subject, chain="no event", books=_text(_net(entry))
    )  # fmt: skip


def _net(entry: JournalEntry) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for line in entry.lines:
        sums[line.account] += line.amount
    return {account: amount for account, amount in sums.items() if amount}


def _subject(kind: str, tx_hash: str, index: int, block: int) -> str:
    place = "" if index < 0 else f" log {index}"
    return f"{kind} in block {block}, transaction {tx_hash}{place}"


def _text(accounts: Mapping[str, int]) -> str:
    return ", ".join(f"{account} {amount:+d}" for account, amount in sorted(accounts.items())) or "no lines"
