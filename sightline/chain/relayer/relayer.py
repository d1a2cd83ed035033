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

This file holds the loop and the notifications. `signing` signs settlements that are due, `confirmation`
follows broadcast transactions, `resubmission` handles transactions that are not mined.
"""

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
from sightline.ports.ledger import ChainIdentity, SettlementOutbox

log = structlog.get_logger()


@final
class Relayer:
    """Settles with one key. `run` it once; call `notify` when a settlement was composed."""

    def __init__(
        self, rpc: JsonRpc, outbox: SettlementOutbox, signer: Signer, identity: ChainIdentity,
        options: RelayerOptions, *, clock: Clock, ids: Ids,
    ) -> None:  # fmt: skip
        self._outbox = outbox
        self.address = signer.address
        self._options = options
        self._clock = clock
        self._ids = ids
        sender = Sender(rpc, outbox, signer, identity, options, clock=clock, ids=ids)
        self._confirmation = Confirmation(rpc, outbox, sender, signer.address, identity, options, clock=clock)
        self._signing = Signing(rpc, outbox, sender, self._confirmation, signer.address, identity, options, clock=clock)
        self._wake = trio.Event()
        self._failures = 0
        self.round_at_ms = 0
        self.halted_because: str | None = None

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
        """Run one round: re-check replaced blocks, follow settlements in flight, sign, report confirmed settlements.

        Returns:
            Whether a settlement is still in flight.
        """
        await self._confirmation.recheck()
        await self._confirmation.follow()
        signed, is_full = await self._signing.sign_due()
        if signed:
            await self._confirmation.follow()
        if signed or is_full:
            self._wake.set()  # more settlements may be due than fit in one round
        await self._tell(on_settlement)
        return bool(await self._outbox.settlements_in_flight(limit=1))

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
