"""Tells LIVE sessions what their payer can still pay, where holds are enforced.

A session judges by what it has charged so far, which grows while the funds stay the same. So besides each change that
the chain reports, the funds of payers who cannot pay a whole hold are told again every few seconds. The first check,
made right after recovery, covers what changed while the server was down.
"""

from typing import Final, final

from sightline.actors.deps import SESSION
from sightline.actors.kernel import Registry
from sightline.domain.session.messages import FundsReported
from sightline.domain.session.model import Live, Session
from sightline.domain.units import MicroUsdc
from sightline.ports.chain import FundsUpdate
from sightline.ports.clock import Clock
from sightline.ports.ledger import SettlementOutbox

CHECK_EVERY_S: Final = 10.0
"""Below `SessionLimits.funds_reserve_s`: a session ends before it has charged what cannot be paid."""


@final
class PayerFunds:
    """Reports funds to the LIVE sessions of one process."""

    def __init__(self, registry: Registry, ledger: SettlementOutbox, clock: Clock) -> None:
        self._registry = registry
        self._ledger = ledger
        self._clock = clock

    async def report(self, update: FundsUpdate) -> None:
        """Tell the sessions of a payer whose wallet was just read."""
        for session in self._live_sessions():
            if session.terms.payer_address.lower() == update.address:
                self._tell(session, update.spendable_micro)

    async def check(self) -> None:
        """Tell all sessions whose payer's last reading does not cover the hold.

        Raises:
            StoreUnavailableError: The ledger cannot be read.
        """
        sessions = self._live_sessions()
        if not sessions:
            return
        payers = sorted({session.terms.payer_address for session in sessions})
        spendable = await self._ledger.spendable(payers, now_ms=self._clock.now_ms())
        for session in sessions:
            available = spendable.get(session.terms.payer_address)
            if available is not None:
                self._tell(session, available)

    def _live_sessions(self) -> list[Session]:
        # A LIVE session is never passivated: all of them are in memory.
        return [session for _, session in self._registry.snapshots(SESSION) if isinstance(session.phase, Live)]

    def _tell(self, session: Session, available: int) -> None:
        if available < session.terms.hold:
            message = FundsReported(MicroUsdc(available))
            self._registry.ref(SESSION, session.id).tell(message, conflate_key="funds")
