"""The relayer: settles each session of the outbox on the chain once, whatever the chain's endpoint does.

What makes it safe:
- A transaction is stored with its nonce before it is broadcast. After a crash the same bytes are sent again.
- A timeout is not a refusal: the transaction is looked for and sent again, and never signed under another nonce while
  it may still mine.
- Every hash is kept; any of them may mine. A replacement has the same nonce.
- Only what the session's recorded end and its hold prove is signed (`proof`).
- Before signing, the contract is asked whether the session is settled already; if so, that transaction is adopted.
- The contract settles a session once. Should all else fail, a second transaction reverts.

What makes it fair: settlements that were refused, or that the payer's wallet does not cover, wait in a lane of their
own with exponential backoff. The watcher moves them back when the wallet changes.

This file holds the loop, the lease and the notifications; `signing` signs what is due, `confirmation` follows what was
sent, `resubmission` handles what does not mine.
"""

from collections.abc import Sequence
from typing import final

import structlog
import trio

from sightline.chain.relayer.confirmation import Confirmation
from sightline.chain.relayer.options import RelayerOptions
from sightline.chain.relayer.sender import Sender
from sightline.chain.relayer.signing import Signing
from sightline.chain.rpc.client import JsonRpc, backoff_ms
from sightline.chain.signer import Signer
from sightline.domain.errors import SightlineError
from sightline.ports.chain import ChainChangedError, OnSettlement, SettlementUpdate
from sightline.ports.clock import Clock
from sightline.ports.ids import Ids
from sightline.ports.ledger import BlockRef, ChainIdentity, SettlementOutbox

log = structlog.get_logger()


@final
class Relayer:
    """The one writer of a relayer key. `run` it once; `notify` it when a settlement was composed."""

    def __init__(
        self, rpc: JsonRpc, outbox: SettlementOutbox, signer: Signer, identity: ChainIdentity,
        options: RelayerOptions, *, clock: Clock, ids: Ids,
    ) -> None:  # fmt: skip
        self._outbox = outbox
        self._relayer = signer.address
        self._options = options
        self._clock = clock
        self._ids = ids
        sender = Sender(rpc, outbox, signer, identity, options, clock=clock, ids=ids)
        self._confirmation = Confirmation(rpc, outbox, sender, signer.address, identity, options, clock=clock)
        self._signing = Signing(rpc, outbox, sender, self._confirmation, signer.address, identity, options, clock=clock)
        self._holder = options.holder or ids.uuid()
        self._is_holder = False
        self._wake = trio.Event()
        self._failures = 0
        self.round_at_ms = 0
        self.halted_because: str | None = None

    def notify(self) -> None:
        """Start the next round now."""
        self._wake.set()

    def recheck(self, ancestor_number: int) -> None:
        """A reorganisation left nothing above this block certain: look at those settlements again."""
        self._confirmation.recheck(ancestor_number)
        self._wake.set()

    def compare(self, headers: Sequence[BlockRef]) -> None:
        """Take these blocks as canonical: settlements recorded in others of their numbers are looked at again."""
        self._confirmation.compare(headers)

    async def run(
        self, on_settlement: OnSettlement, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Work until cancelled.

        Cancellation: harmless at any point; the next run goes on from the outbox.
        """
        task_status.started()
        try:
            while True:
                self._wake = trio.Event()
                wait_ms = await self._round_with_back_off(on_settlement)
                with trio.move_on_after(wait_ms / 1000):
                    await self._wake.wait()
        finally:
            with trio.move_on_after(1) as patience:
                patience.shield = True
                await self._give_up_lease()

    async def _give_up_lease(self) -> None:
        try:
            await self._outbox.take_lease(self._relayer, self._holder, lease_ms=0)
        except (SightlineError, OSError) as error:
            log.info("relayer_lease_runs_out", reason=str(error))

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
        """One round: follow what is in flight, sign what is due, report what is confirmed.

        Returns:
            Whether something is still in flight.
        """
        if not await self._has_lease():
            return False
        await self._confirmation.reconsider_marked()
        await self._confirmation.follow()
        signed, is_full = await self._signing.sign_due()
        if signed:
            await self._confirmation.follow()
        if signed or is_full:
            self._wake.set()  # there may be more than fits one round
        await self._tell(on_settlement)
        return bool(await self._outbox.settlements_in_flight(limit=1))

    async def _has_lease(self) -> bool:
        was_holder = self._is_holder
        self._is_holder = await self._outbox.take_lease(self._relayer, self._holder, lease_ms=self._options.lease_ms)
        if not self._is_holder:
            log.info("relayer_waits_for_lease", relayer=self._relayer)
        elif not was_holder:
            self._confirmation.recheck(0)  # reorganisations may have passed while another held the lease
        return self._is_holder

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
