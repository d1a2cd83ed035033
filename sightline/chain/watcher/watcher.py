"""The watcher: follows the chain block by block and keeps the stored wallets and ledger rows equal to it.

A block is applied when the endpoint returned its header and the header links to the last applied block; `logs`
verifies the logs. Balances, allowances and limits are read pinned to the block they are stored with, and are never
computed from logs. Events, readings, released holds and the cursor are written in one transaction, which compares the
cursor first.

The cost of a round does not depend on the number of wallets: the ledger is queried only for the addresses in a
block's logs, for wallets that are not read yet, and at intervals for a few of the oldest readings.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, final

import structlog
import trio

from sightline.chain.relayer.work import require_same_chain
from sightline.chain.rpc.client import BATCH_MAX, JsonRpc, RpcResponseError, backoff_ms
from sightline.chain.rpc.reader import RpcReader, block_ref
from sightline.chain.watcher.events import Meaning, Watched, parties, payments_in, read_logs
from sightline.chain.watcher.journal import JournalReader
from sightline.chain.watcher.logs import NEAR_BLOCKS, LogSource
from sightline.chain.watcher.unknown import EarlierPayments, unknown_payments
from sightline.domain.errors import ChainUnavailableError, SightlineError
from sightline.domain.settlement import ChainPayment
from sightline.domain.value import Value
from sightline.ports.chain import ChainChangedError
from sightline.ports.clock import Clock
from sightline.ports.ids import Ids
from sightline.ports.ledger import (
    DAY_MS,
    HEADERS_MAX,
    BlockApplication,
    BlockRef,
    BooksReading,
    ChainIdentity,
    ReadingState,
    WalletLedger,
    WalletReading,
)

log = structlog.get_logger()

CHECKED_EVERY_MS: Final = 5_000
BUSY_MS: Final = 5_000


@final
class WatcherOptions(Value, kw_only=True):
    """Intervals, limits and confirmation depth of the watcher."""

    depth: int = 0
    """Number of blocks above an event's block before the event counts as confirmed."""
    finality_tag: str | None = None
    """Block tag of the newest final block, until which the journal is written and from which headers are kept. None, or
    an endpoint without the tag: blocks are final at the depth.
    """
    poll_ms: int = 200
    """Between rounds while the chain moves: in the BUSY_MS after a new block, a changed wallet, or a wake."""
    idle_ms: int = 2_000
    """Between other rounds, if it is longer than `poll_ms`."""
    start_block: int = 0
    """First block of a new wallet's history: the deployment of the settlement contract."""
    blocks_max: int = 64
    """Maximum number of blocks applied in one transaction."""
    log_span_max: int = 2_000
    """Number of blocks in one query of old logs; halved when the endpoint refuses the range."""
    old_logs_max: int = 1_000
    """About how many old logs are written to the journal in one transaction, so that it ends before its deadline."""
    sweep_ms: int = 600_000
    """Age after which a wallet is read again, to detect changes without a log."""
    sweep_every_ms: int = 30_000
    sweep_max: int = 50
    """Maximum number of old readings refreshed every `sweep_every_ms`."""
    is_escrow: bool = False
    """Whether the contract is SessionEscrow."""
    read_max: int = 200
    """Maximum number of wallets read in one transaction."""


@final
class Watcher:
    """Reads one chain. `run` it once; call `wake` when there may be a new block or a new wallet."""

    def __init__(
        self, rpc: JsonRpc, reader: RpcReader, ledger: WalletLedger, identity: ChainIdentity, options: WatcherOptions,
        *, relayer: str, clock: Clock, ids: Ids,
    ) -> None:  # fmt: skip
        """Args: relayer: address of the key that settles for this database."""
        self._relayer = relayer.lower()
        self._rpc = rpc
        self._reader = reader
        self._ledger = ledger
        self._identity = identity
        self._options = options
        self._clock = clock
        self._ids = ids
        self.on_reorganised: Callable[[], None] = lambda: None
        """Called after blocks were rolled back."""
        self.on_readings: Callable[[Sequence[WalletReading]], None] = lambda _: None
        """Called with the wallets that were read, after they are stored."""
        self._wake = trio.Event()
        self._busy_until_ms = clock.now_ms() + BUSY_MS
        self._cursor: BlockRef | None = None
        """The last applied block, as this watcher wrote or read it; None: ask the ledger."""
        self._source = LogSource(rpc, reader, start_block=options.start_block, span_max=options.log_span_max)
        self._earlier = EarlierPayments(
            rpc, reader, ledger, self._watched(()), self._relayer, self._source, start_block=options.start_block,
            span_max=options.log_span_max,
        )  # fmt: skip
        self._checked_at_ms = 0
        self._was_in_step = False
        """Whether this watcher has once applied every block up to the endpoint's head, and has recorded it."""
        self._swept_at_ms = clock.now_ms()
        self._final_number: int | None = None
        """The newest final block when the endpoint was last asked; None: it does not say."""
        self._journal = JournalReader(
            rpc, reader, ledger, self._watched(()), self._source, start_block=options.start_block,
            span_max=options.log_span_max, old_logs_max=options.old_logs_max,
        )  # fmt: skip
        self.failures = 0
        self.seen_at_ms = 0
        self.head_number = 0
        self.lag_blocks = 0
        self.halted_because: str | None = None

    def wake(self) -> None:
        """Start the next round now."""
        self._stay_busy()
        self._wake.set()

    def _stay_busy(self) -> None:
        self._busy_until_ms = self._clock.now_ms() + BUSY_MS

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the chain until cancelled.

        Cancellation: safe at any point; each application of blocks is atomic.
        """
        task_status.started()
        while True:
            self._wake = trio.Event()
            wait_ms = await self._round_with_back_off()
            poll_ms, idle_ms = self._options.poll_ms, self._options.idle_ms
            wait_ms += poll_ms if self._clock.now_ms() < self._busy_until_ms else max(poll_ms, idle_ms)
            with trio.move_on_after(wait_ms / 1000):
                await self._wake.wait()

    async def _round_with_back_off(self) -> int:
        try:
            while await self.watch_once():
                self._stay_busy()
        except ChainChangedError as error:
            self._cursor = None
            self.failures += 1
            self.halted_because = str(error)
            log.critical("watcher_halted", reason=str(error))
        except (SightlineError, OSError) as error:
            self._cursor = None
            self.failures += 1
            log.warning("watcher_round_failed", reason=str(error), failures=self.failures)
        else:
            self.failures = 0
            self.halted_because = None
            return 0
        return backoff_ms(self._ids, self.failures, least_ms=max(self._options.poll_ms, 100), most_ms=30_000)

    async def watch_once(self) -> bool:
        """Do one step: apply the next blocks, roll back reorganised ones, or read new wallets.

        Returns:
            Whether the next step should start at once.
        """
        cursor = self._cursor = self._cursor or await self._ledger.chain_head()
        head = await self._look()
        self.head_number = head.number
        if cursor is None:
            await self._begin(head)
            return True
        self.lag_blocks = max(0, head.number - cursor.number)
        if head.number <= cursor.number:
            if await self._compare(cursor, head):
                return True
            return head == cursor and (await self._read_wallets(cursor) or await self._read_old_books(cursor))
        return await self._advance(cursor, head)

    async def _begin(self, head: BlockRef) -> None:
        """Set the cursor to the head; the history of each wallet covers earlier blocks.

        The database is empty, which may be an accident: payments of this relayer in earlier blocks are recorded as
        unknown.
        """
        # These headers are stored so that a reorganisation soon after the start finds its common ancestor.
        near = head.number - NEAR_BLOCKS + 1
        first = near if self._final_number is None else min(near, self._final_number)
        blocks = await self._source.blocks(max(0, head.number - HEADERS_MAX + 1, first), head)
        headers = [block_ref(block) for block in blocks]
        nothing = Meaning(events=(), touched=frozenset(), settled=())
        unknown = await self._earlier.up_to(head)
        await self._apply(headers, nothing, head, [], previous=None, unknown=unknown)

    async def _compare(self, cursor: BlockRef, head: BlockRef) -> bool:
        """Handle a head that is not above the cursor: the same block, an older view of the chain, or another branch.

        Returns:
            Whether blocks were rolled back.
        """
        if head.block_hash == cursor.block_hash:
            await self._mark_checked()
            return False
        known = {header.number: header for header in await self._ledger.recent_headers()}
        mine = known.get(head.number)
        if mine is None:
            await self._require_same_chain()
        if mine is None or mine.block_hash == head.block_hash:
            log.info("endpoint_lags", head=head.number, cursor=cursor.number)
            return False
        await self._take_back(cursor)
        return True

    async def _mark_checked(self) -> None:
        now_ms = self._clock.now_ms()
        self.seen_at_ms = now_ms
        if not self._was_in_step or now_ms - self._checked_at_ms >= CHECKED_EVERY_MS:
            await self._ledger.mark_checked(now_ms=now_ms)
            self._checked_at_ms = now_ms
            self._was_in_step = True

    async def _advance(self, cursor: BlockRef, head: BlockRef) -> bool:
        last = min(head.number, cursor.number + self._options.blocks_max)
        numbers = range(cursor.number + 1, last + 1)
        blocks: list[dict[str, Any]] = []
        previous = cursor
        for answer in await self._rpc.batch([("eth_getBlockByNumber", [hex(number), False]) for number in numbers]):
            if not isinstance(answer, dict):
                break  # the endpoint does not have all blocks up to the head it reported: apply those it returned
            reference = block_ref(answer)
            if reference.parent_hash != previous.block_hash or reference.number != previous.number + 1:
                if previous is cursor:
                    await self._take_back(cursor)
                    return True
                break
            blocks.append(answer)
            previous = reference
        if not blocks:
            raise ChainUnavailableError(f"block {cursor.number + 1} is missing, and the head is {head.number}")
        logs = await self._source.logs_of(blocks, self._watched(()))
        candidates = sorted(parties(logs, self._watched(())))
        tracked = await self._ledger.tracked_among(candidates) if candidates else {}
        # The history of a NEW wallet is read up to the cursor, including these blocks.
        watched = self._watched(address for address, known in tracked.items() if known is not ReadingState.NEW)
        meaning = read_logs(logs, watched)
        headers = [block_ref(block) for block in blocks]
        unknown = await unknown_payments(self._rpc, self._ledger, self._relayer, payments_in(logs, watched))
        books = await self._journal.of_blocks(blocks, logs)
        await self._apply(
            headers, meaning, previous, sorted(meaning.touched), previous=cursor, unknown=unknown, books=books
        )
        if previous == head and not self._was_in_step:
            await self._mark_checked()  # the next round may find another block, and so on
        return True

    async def _apply(
        self, headers: Sequence[BlockRef], meaning: Meaning, head: BlockRef, wallets: Sequence[str],
        *, previous: BlockRef | None, unknown: tuple[ChainPayment, ...] = (), books: BooksReading | None = None,
    ) -> None:  # fmt: skip
        readings = await self._readings(wallets, head) if wallets else ()
        now_ms = self._clock.now_ms()
        application = BlockApplication(
            headers=tuple(headers),
            events=meaning.events,
            readings=readings,
            settled=meaning.settled,
            escrowed=meaning.escrowed,
            head=head,
            confirmed_block=head.number - self._options.depth,
            final_block=self._final_number,
            previous=previous,
            unknown=unknown,
            books=books,
        )
        await self._ledger.apply_blocks(application, now_ms=now_ms)
        self._cursor = head
        if books is not None:
            self._journal.read_through = books.through
        self._checked_at_ms = self.seen_at_ms = now_ms
        if readings:
            self.on_readings(readings)

    async def _readings(self, wallets: Sequence[str], head: BlockRef) -> tuple[WalletReading, ...]:
        numbers = await self._reader.balances_and_allowances(wallets, head.block_hash)
        day = self._clock.now_ms() // DAY_MS
        limits = await self._reader.spending_limits(wallets, head.block_hash, day=day)
        return tuple(
            WalletReading(
                address=wallet, balance_micro=balance, allowance_micro=allowance, block_number=head.number,
                limits=limits[wallet],
            )
            for wallet, (balance, allowance) in zip(wallets, numbers, strict=True)
        )  # fmt: skip

    def _watched(self, wallets: Iterable[str]) -> Watched:
        return Watched(
            token=self._identity.usdc_address,
            settlement=self._identity.settlement_address,
            wallets=frozenset(wallets),
            is_escrow=self._options.is_escrow,
        )

    # Wallets that must be read.

    async def _read_wallets(self, cursor: BlockRef) -> bool:
        waiting = await self._ledger.wallets_to_read(limit=self._options.read_max)
        fresh = sorted(address for address, known in waiting.items() if known is ReadingState.NEW)
        old = await self._oldest_readings() if not waiting else []
        if not waiting and not old:
            return False
        watched = self._watched(fresh)
        logs = await self._source.history(watched, cursor) if fresh else []
        await self._apply([], read_logs(logs, watched), cursor, sorted({*waiting, *old}), previous=cursor)
        return bool(waiting)  # old readings are no reason to look more often

    async def _oldest_readings(self) -> list[str]:
        now_ms = self._clock.now_ms()
        if now_ms - self._swept_at_ms < self._options.sweep_every_ms:
            return []
        self._swept_at_ms = now_ms
        return await self._ledger.oldest_readings(
            before_ms=now_ms - self._options.sweep_ms, limit=self._options.sweep_max
        )

    async def _read_old_books(self, cursor: BlockRef) -> bool:
        nothing = Meaning(events=(), touched=frozenset(), settled=())
        readings = await self._journal.unread(cursor)
        for books in readings:
            await self._apply([], nothing, cursor, [], previous=cursor, books=books)
        return bool(readings)

    # Reorganisations.

    async def _take_back(self, cursor: BlockRef) -> None:
        """Find the last block that the database and the endpoint share, and roll back every block above it.

        Raises:
            ChainChangedError: None of the stored headers is on the endpoint's chain.
        """
        await self._require_same_chain()
        headers = await self._ledger.recent_headers()
        for start in range(0, len(headers), BATCH_MAX):
            some = headers[start : start + BATCH_MAX]
            answers = await self._rpc.batch([("eth_getBlockByNumber", [hex(each.number), False]) for each in some])
            for header, answer in zip(some, answers, strict=True):
                if isinstance(answer, dict) and str(answer["hash"]).lower() == header.block_hash:
                    await self._roll_back(header, cursor)
                    return
        raise ChainChangedError(f"no block of the last {len(headers)} is known to the endpoint any more")

    async def _roll_back(self, ancestor: BlockRef, cursor: BlockRef) -> None:
        if ancestor.number == cursor.number:
            return  # the endpoint is back on the applied chain
        log.warning("chain_reorganised", ancestor=ancestor.number, depth=cursor.number - ancestor.number)
        self._cursor = None
        await self._ledger.roll_back(ancestor, cursor=cursor, now_ms=self._clock.now_ms())
        self._journal.read_through = None
        self.on_reorganised()

    async def _require_same_chain(self) -> None:
        chain_id, genesis = await self._rpc.batch([("eth_chainId", []), ("eth_getBlockByNumber", ["0x0", False])])
        require_same_chain(self._identity, chain_id, genesis)

    async def _look(self) -> BlockRef:
        """Ask for the newest block, and for the newest final one."""
        tag = self._options.finality_tag
        tags = ["latest"] if tag is None else ["latest", tag]
        latest, *final = await self._rpc.batch([("eth_getBlockByNumber", [each, False]) for each in tags])
        if isinstance(latest, RpcResponseError):
            raise ChainUnavailableError(latest.message) from latest
        if not isinstance(latest, dict):
            raise ChainUnavailableError("the endpoint has no latest block")
        known = [block_ref(each).number for each in final if isinstance(each, dict)]
        self._final_number = known[0] if known else None
        return block_ref(latest)
