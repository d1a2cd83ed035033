"""Reads entries of the journal from blocks. With several endpoints, two must give the same entries.

Entries stay for ever, and statements and invoices are computed from them. So with several endpoints they are not taken
from the logs that the watcher applies to the wallets: each endpoint is asked for the unread blocks by itself, and what
two of them tell is written. Until then the journal is behind the wallets.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, final

import structlog
import trio

from sightline.chain.rpc.client import JsonRpc, RpcEndpoint
from sightline.chain.rpc.reader import RpcReader, block_ref, block_time_ms, hex_int
from sightline.chain.watcher.books import entries_in
from sightline.chain.watcher.events import FOLLOWED, Log, Watched, log_of
from sightline.chain.watcher.logs import LogSource
from sightline.domain.books.journal import JournalEntry
from sightline.domain.errors import ChainUnavailableError, SightlineError
from sightline.domain.value import Value
from sightline.ports.ledger import BlockRef, BooksReading, WalletLedger

OWN_PER_QUERY: Final = 500
"""Transactions of ours that are looked up at once."""
_FOLLOWED: Final = frozenset((topic,) for topic in FOLLOWED)
AGREEING: Final = 2
"""Number of endpoints that must give the same entries."""

log = structlog.get_logger()


@final
class _Told(Value, kw_only=True):
    """What one endpoint tells of unread blocks."""

    through: int
    """The last block that was read."""
    own: tuple[tuple[JournalEntry, ...], ...]
    """Entries of our transactions that no log of the contract names, a page for each query of the ledger."""
    entries: tuple[JournalEntry, ...]

    def until(self, through: int) -> "_Told":
        """Return what is told of the blocks up to this one; `own` is read with the last block only."""
        if through == self.through:
            return self
        entries = tuple(each for each in self.entries if each.block_number <= through)
        return _Told(through=through, own=(), entries=entries)

    def readings(self, first: int) -> list[BooksReading]:
        """Return what is to be applied, in its order."""
        own = [BooksReading(first=first, through=first - 1, entries=page) for page in self.own]
        return [*own, BooksReading(first=first, through=self.through, entries=self.entries)]


@final
class JournalReader:
    """Builds the entries of blocks. The caller sets `read_through` when it has stored them."""

    def __init__(
        self, rpc: JsonRpc, reader: RpcReader, ledger: WalletLedger, watched: Watched, source: LogSource,
        *, start_block: int, span_max: int, old_logs_max: int,
    ) -> None:  # fmt: skip
        self._ledger = ledger
        self._watched = watched
        self._source = source
        self._start_block = start_block
        self._old_logs_max = old_logs_max
        self._witnesses: Mapping[RpcEndpoint, LogSource] = {
            endpoint: LogSource(alone, reader, start_block=start_block, span_max=span_max)
            for endpoint, alone in rpc.each_alone().items()
        }
        self.read_through: int | None = None
        """The last block whose events the journal has; None: ask the ledger."""

    async def _through(self) -> int:
        if self.read_through is None:
            known = await self._ledger.books_read_through()
            self.read_through = self._start_block - 1 if known is None else known
        return self.read_through

    async def of_blocks(self, blocks: Sequence[dict[str, Any]], logs: Sequence[Log]) -> BooksReading | None:
        """Build the entries of blocks that follow each other, from logs that the one endpoint has given.

        Returns:
            Their entries; None if `unread` is to read them: they do not follow the journal, or there are several
            endpoints.
        """
        first = block_ref(blocks[0]).number
        if len(self._witnesses) > 1 or await self._through() != first - 1:
            return None
        hashes = [
            str(each if isinstance(each, str) else each["hash"]).lower()
            for block in blocks for each in block.get("transactions") or ()
        ]  # fmt: skip
        numbered = {block_ref(block).number: block for block in blocks}
        entries = await self._entries(self._source, numbered, hashes, logs)
        return BooksReading(first=first, through=block_ref(blocks[-1]).number, entries=entries)

    async def unread(self, cursor: BlockRef) -> list[BooksReading]:
        """Read blocks up to the cursor that the journal does not have.

        They were applied before the journal existed, or by a server that did not write it, or there are several
        endpoints.

        Returns:
            What is to be applied, in its order; nothing if the journal has everything, or no two endpoints agree yet.
        """
        first = max(0, await self._through() + 1)
        if first > cursor.number:
            return []
        if len(self._witnesses) == 1:
            return (await self._told(self._source, first, cursor)).readings(first)
        agreed = self._agreed(await self._ask_all(first, cursor), first)
        return [] if agreed is None else agreed.readings(first)

    async def _ask_all(self, first: int, cursor: BlockRef) -> dict[RpcEndpoint, _Told]:
        """Ask the endpoints that answer reads now and have the cursor's block."""
        told: dict[RpcEndpoint, _Told] = {}

        async def ask(endpoint: RpcEndpoint, source: LogSource) -> None:
            try:
                await source.blocks_at({cursor.number: cursor.block_hash})
                told[endpoint] = await self._told(source, first, cursor)
            except SightlineError as error:
                log.info("journal_not_read", endpoint=endpoint.health.name, reason=str(error))

        async with trio.open_nursery() as nursery:
            for endpoint, source in self._witnesses.items():
                if not (endpoint.health.is_left_out or endpoint.health.is_lagging):
                    nursery.start_soon(ask, endpoint, source)
        return told

    def _agreed(self, told: Mapping[RpcEndpoint, _Told], first: int) -> _Told | None:
        """Return what two endpoints tell, and name those that tell something else."""
        if len(told) < AGREEING:
            return None
        through = min(each.through for each in told.values())
        votes = Counter(each.until(through) for each in told.values())
        [(most, count), *others] = votes.most_common()
        is_outvoting = count >= AGREEING
        for endpoint, answer in told.items():
            theirs = answer.until(through)
            if others and not (is_outvoting and votes[theirs] >= AGREEING):
                other = most if theirs != most else others[0][0]
                log.error(
                    "chain_endpoint_disagrees", endpoint=endpoint.health.name, tx_hash=_differing(theirs, other),
                    first_block=first, last_block=through, is_outvoted=is_outvoting,
                )  # fmt: skip
                endpoint.health.disagrees(is_outvoted=is_outvoting)
        return most if is_outvoting else None

    async def _told(self, source: LogSource, first: int, cursor: BlockRef) -> _Told:
        last, logs = await source.contract_logs(self._watched, first, cursor.number)
        if len(logs) > self._old_logs_max:
            last = sorted(log.block_number for log in logs)[self._old_logs_max]
            logs = [log for log in logs if log.block_number <= last]
        own = await self._of_own(source, cursor) if last == cursor.number else ()
        hashes = sorted({log.tx_hash for log in logs})
        entries = await self._entries(source, await source.blocks_of(logs), hashes, logs)
        return _Told(through=last, own=own, entries=entries)

    async def _of_own(self, source: LogSource, cursor: BlockRef) -> tuple[tuple[JournalEntry, ...], ...]:
        """Read our transactions that no log of the contract names: refunds, and those that failed."""
        pages: list[tuple[JournalEntry, ...]] = []
        after = ""
        while tx_hashes := await self._ledger.without_entry(after=after, limit=OWN_PER_QUERY):
            after = tx_hashes[-1]
            receipts = await source.receipts_if_mined(tx_hashes)
            places = {hex_int(receipt["blockNumber"]): str(receipt["blockHash"]).lower() for receipt in receipts}
            blocks = await source.blocks_at({at: each for at, each in places.items() if at <= cursor.number})
            due = [receipt for receipt in receipts if hex_int(receipt["blockNumber"]) in blocks]
            logs = [log_of(entry) for receipt in due for entry in receipt["logs"]]
            hashes = [str(each["transactionHash"]).lower() for each in due]
            if entries := await self._entries(source, blocks, hashes, logs):
                pages.append(entries)
        return tuple(pages)

    async def _entries(
        self, source: LogSource, blocks: Mapping[int, dict[str, Any]], tx_hashes: Sequence[str], logs: Sequence[Log]
    ) -> tuple[JournalEntry, ...]:
        own = await self._ledger.own_transactions(tx_hashes) if tx_hashes else {}
        receipts = await source.receipts(sorted(own), {str(block["hash"]).lower() for block in blocks.values()})
        if len(self._witnesses) == 1:
            self._require_same_events(logs, receipts)
        times_ms = {number: block_time_ms(block) for number, block in blocks.items()}
        return entries_in(logs, self._watched, times_ms, own, receipts)

    def _require_same_events(self, logs: Sequence[Log], receipts: Mapping[str, Mapping[str, Any]]) -> None:
        """Require that logs and receipts tell the same of our transactions: no other endpoint can be asked.

        Raises:
            ChainUnavailableError: The endpoint contradicts itself.
        """
        for tx_hash, receipt in receipts.items():
            told = self._events(log for log in logs if log.tx_hash == tx_hash)
            if told != self._events(log_of(entry) for entry in receipt["logs"]):
                raise ChainUnavailableError(f"the endpoint's logs of transaction {tx_hash} differ from its receipt")

    def _events(self, logs: Iterable[Log]) -> set[Log]:
        return {log for log in logs if log.address == self._watched.settlement and log.topics[:1] in _FOLLOWED}


def _differing(theirs: _Told, other: _Told) -> str | None:
    """Return the transaction of the first entry that only one of two endpoints gives."""
    ours, others = ([each for page in (*told.own, told.entries) for each in page] for told in (theirs, other))
    only = [each for each in ours if each not in others] or [each for each in others if each not in ours]
    return only[0].tx_hash if only else None
