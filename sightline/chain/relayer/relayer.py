"""The relayer: settles each session of the outbox exactly once on the chain, whatever errors the endpoint has.

Safety:
- A transaction is stored with its nonce before it is broadcast. After a crash the same bytes are sent again.
- A timeout is not a refusal: the relayer looks for the transaction and sends it again. It never signs the settlement
  under another nonce while the first transaction may still be mined.
- Every hash is kept, because any of them may be mined. A replacement has the same nonce.
- A settlement is signed only if the recorded end of the session and its hold confirm it (`proof`).
- Before signing, the relayer asks the contract whether the session is settled; if so, it adopts that transaction.
- The contract settles a session once. If every other check fails, a second transaction reverts.

Fairness: settlements that were refused, or that the payer's wallet does not cover, wait in the RETRY lane with
exponential backoff. They move back when the watcher sees a change of the wallet.

One server runs the relayer: each write checks that it still holds the role (`RoleDatabase`). Reorganisations are found
by comparing the recorded blocks with those that the watcher, which may run on another server, has stored.

This file holds the loop and the notifications. `signing` signs rows that are due, `confirmation` follows broadcast
transactions, `resubmission` handles transactions that are not mined. `work` says what the rows are: settlements from
allowances, or, with SessionEscrow, permits to send and holds to open, to add to and to capture, which share the key and
its nonces.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, final

import structlog
import trio

from sightline.chain.contracts.escrow import CAPTURES_MAX
from sightline.chain.gas_key import GasKey
from sightline.chain.meter import Meter
from sightline.chain.relayer.allowance import AllowanceWork
from sightline.chain.relayer.captures import CaptureWork
from sightline.chain.relayer.confirmation import Confirmation
from sightline.chain.relayer.extensions import ExtensionWork
from sightline.chain.relayer.openings import OpeningWork
from sightline.chain.relayer.options import RelayerOptions
from sightline.chain.relayer.permits import PermitWork
from sightline.chain.relayer.resubmission import close_gap
from sightline.chain.relayer.sender import Sender
from sightline.chain.relayer.signing import AllowanceSigning, EscrowSigning, Signing
from sightline.chain.relayer.work import OutboxWork
from sightline.chain.rpc.client import JsonRpc, backoff_ms
from sightline.chain.signing_process import SignerUnavailableError
from sightline.domain.errors import SightlineError
from sightline.domain.value import Value
from sightline.ports.chain import ChainChangedError, OnSettlement, SettlementUpdate
from sightline.ports.clock import Clock
from sightline.ports.escrow import ExtensionOutbox, OpeningOutbox, PermitOutbox
from sightline.ports.ids import Ids
from sightline.ports.ledger import ChainIdentity, RecordT, SettlementOutbox, SettlementRecord

log = structlog.get_logger()


@final
class EscrowParts(Value, kw_only=True):
    """What a relayer of SessionEscrow needs besides: the holds, the meter's key, and who waits for holds."""

    openings: OpeningOutbox
    extensions: ExtensionOutbox
    permits: PermitOutbox
    meter: Meter
    on_round: Callable[[], None]
    """Called after each round."""


def _nothing() -> None:
    """Do nothing."""


@final
class _Queue(Generic[RecordT]):
    """The rows of one outbox, and what moves them."""

    def __init__(
        self, work: OutboxWork[RecordT], confirmation: Confirmation[RecordT], signing: Signing[RecordT]
    ) -> None:
        self.outbox = work.outbox
        self.confirmation = confirmation
        self.signing = signing


@final
class Relayer:
    """Settles with one key. `run` it once; call `notify` when a settlement was composed or a hold asked for."""

    def __init__(
        self, rpc: JsonRpc, outbox: SettlementOutbox, key: GasKey, identity: ChainIdentity,
        options: RelayerOptions, *, clock: Clock, ids: Ids, escrow: EscrowParts | None = None,
    ) -> None:  # fmt: skip
        """Args: escrow: for SessionEscrow; without it, settlements take the payer's allowance."""
        self._rpc = rpc
        self._outbox = outbox
        self.address = key.address
        self._options = options
        self._clock = clock
        self._ids = ids
        self._key = key
        self._on_round: Callable[[], None] = _nothing if escrow is None else escrow.on_round
        self._queues: tuple[_Queue[Any], ...] = (
            (self._settlements(AllowanceWork(rpc, outbox, identity, options)),)
            if escrow is None
            else (
                # An allowance pays for holds of the same round.
                self._escrow_queue(PermitWork(rpc, escrow.permits, identity, start_block=options.start_block)),
                self._escrow_queue(
                    OpeningWork(rpc, escrow.openings, identity, escrow.meter, start_block=options.start_block)
                ),
                self._escrow_queue(
                    ExtensionWork(
                        rpc,
                        escrow.extensions,
                        escrow.openings,
                        identity,
                        escrow.meter,
                        start_block=options.start_block,
                    )
                ),
                self._escrow_queue(
                    CaptureWork(rpc, outbox, escrow.openings, escrow.extensions, identity, escrow.meter, options),
                    batch_max=CAPTURES_MAX,
                    window_ms=options.capture_window_ms,
                ),
            )
        )
        self._wake = trio.Event()
        self._failures = 0
        self.round_at_ms = 0
        self.halted_because: str | None = None

    def _settlements(self, work: AllowanceWork) -> _Queue[SettlementRecord]:
        sender, confirmation = self._sending(work)
        signing = AllowanceSigning(
            work, self._outbox, sender, confirmation, self.address, self._options, clock=self._clock
        )
        return _Queue(work, confirmation, signing)

    def _escrow_queue(self, work: OutboxWork[RecordT], *, batch_max: int = 1, window_ms: int = 0) -> _Queue[RecordT]:
        sender, confirmation = self._sending(work)
        signing = EscrowSigning(
            work, sender, confirmation, self.address, self._options, clock=self._clock, batch_max=batch_max,
            window_ms=window_ms,
        )  # fmt: skip
        return _Queue(work, confirmation, signing)

    def _sending(self, work: OutboxWork[RecordT]) -> tuple[Sender[RecordT], Confirmation[RecordT]]:
        sender = Sender(work, self._key, self._options, clock=self._clock, ids=self._ids)
        return sender, Confirmation(work, sender, self.address, self._options, clock=self._clock)

    def notify(self) -> None:
        """Start the next round now."""
        self._wake.set()

    async def run(
        self, on_settlement: OnSettlement, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run rounds until cancelled.

        Cancellation: safe at any point; the next run continues from the outbox.
        """
        task_status.started()
        while True:
            self._wake = trio.Event()
            wait_ms = await self._round_with_back_off(on_settlement)
            with trio.move_on_after(wait_ms / 1000):
                await self._wake.wait()

    async def _round_with_back_off(self, on_settlement: OnSettlement) -> int:
        try:
            is_busy = await self.work_once(on_settlement)
        except ChainChangedError as error:
            self._failures += 1
            self.halted_because = str(error)
            log.critical("relayer_halted", reason=str(error))
        except (SightlineError, OSError) as error:
            self._failures += 1
            log.warning("relayer_round_failed", reason=str(error), failures=self._failures)
        else:
            self._failures = 0
            self.round_at_ms = self._clock.now_ms()
            self.halted_because = None
            return self._options.poll_ms if is_busy else self._options.idle_ms
        wait = backoff_ms(self._ids, self._failures, least_ms=self._options.poll_ms, most_ms=10_000)
        return self._options.poll_ms + wait

    async def work_once(self, on_settlement: OnSettlement) -> bool:
        """Run one round: re-check replaced blocks, follow what is in flight, sign, report confirmed settlements.

        Returns:
            Whether anything is still in flight.

        Raises:
            SignerUnavailableError: A key is in another process, which does not sign now. All else of the round is done.
        """
        head = await self._outbox.chain_head()
        for queue in self._queues:
            await queue.confirmation.recheck(head)
        now_ms = self._clock.now_ms()
        busy = [queue for queue in self._queues if await queue.outbox.has_work(now_ms=now_ms)]
        await self._follow(busy)
        signed = is_full = False
        failure: SignerUnavailableError | None = None
        for queue in busy:
            try:
                has_signed, has_more = await queue.signing.sign_due()
            except SignerUnavailableError as error:
                failure = error
                continue
            signed, is_full = signed or has_signed, is_full or has_more
        if signed:
            await self._follow(busy)
        if signed or is_full:
            self._wake.set()  # more rows may be due than fit in one round
        self._on_round()
        await self._tell(on_settlement)
        if failure is not None:
            raise failure
        for queue in busy:
            if await queue.outbox.in_flight(limit=1):
                return True
        return False

    async def _follow(self, queues: Sequence[_Queue[Any]]) -> None:
        unmined = [found for queue in queues if (found := await queue.confirmation.follow()) is not None]
        if unmined:
            pursued = frozenset[str]().union(*(found.tx_hashes for found in unmined))
            mined_nonce = max(found.mined_nonce for found in unmined)
            await close_gap(self._rpc, self._outbox, self.address, mined_nonce, pursued)

    async def _tell(self, on_settlement: OnSettlement) -> None:
        for record in await self._outbox.unnotified():
            assert record.tx_hash is not None
            assert record.confirmed_at_ms is not None
            await on_settlement(
                SettlementUpdate(
                    session_id=record.session_id,
                    state=record.state,
                    tx_hash=record.tx_hash,
                    confirmed_at_ms=record.confirmed_at_ms,
                )
            )
            await self._outbox.mark_notified(record.session_id)
