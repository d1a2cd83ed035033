"""Tells LIVE sessions what their payer can still pay, where holds are enforced.

A session judges by what it has charged so far, which grows while the funds stay the same. So besides each change that
the chain reports, the funds of payers who cannot pay a whole hold are told again every few seconds. The first check,
made right after recovery, covers what changed while the server was down.
"""

from typing import Final, final

from sightline.actors.deps import SESSION
from sightline.actors.kernel import Registry
from sightline.domain.session.machine import funds_needed
from sightline.domain.session.messages import FundsReported
from sightline.domain.session.model import Live, Session, SessionLimits
from sightline.domain.units import MicroUsdc
from sightline.ports.clock import Clock
from sightline.ports.ledger import SettlementOutbox

CHECK_EVERY_S: Final = 10.0
"""Below `SessionLimits.funds_reserve_s`: a session ends before it has charged what cannot be paid."""


@final
class PayerFunds:
    """Reports funds to the LIVE sessions of one process."""

    def __init__(self, registry: Registry, ledger: SettlementOutbox, clock: Clock, limits: SessionLimits) -> None:
        self._registry = registry
        self._ledger = ledger
        self._clock = clock
        self._limits = limits

    async def report(self, payer: str) -> None:
        """Tell the sessions of a payer whose wallet was just read.

        Raises:
            StoreUnavailableError: The ledger cannot be read.
        """
        sessions = self._live_sessions().get(payer)
        await self._tell_all({} if sessions is None else {payer: sessions})

    async def check(self) -> None:
        """Tell all sessions whose payer's last reading does not cover the hold.

        Raises:
            StoreUnavailableError: The ledger cannot be read.
        """
        await self._tell_all(self._live_sessions())

    async def _tell_all(self, by_payer: dict[str, list[tuple[Session, Live]]]) -> None:
        if not by_payer:
            return
        # The charges of ended sessions are paid first: they reserve what their settlements will take.
        left = await self._ledger.funds_beside_charges(sorted(by_payer), now_ms=self._clock.now_ms())
        for payer, sessions in by_payer.items():
            if payer in left:
                self._tell(sessions, left[payer])

    def _live_sessions(self) -> dict[str, list[tuple[Session, Live]]]:
        """The LIVE sessions of each payer. None of them is passivated: all are in memory."""
        by_payer: dict[str, list[tuple[Session, Live]]] = {}
        for _, session in self._registry.snapshots(SESSION):
            if isinstance(session.phase, Live):
                by_payer.setdefault(session.terms.payer_address.lower(), []).append((session, session.phase))
        return by_payer

    def _tell(self, sessions: list[tuple[Session, Live]], available: int) -> None:
        """Share the funds of one payer among its sessions: those that started first are paid first."""
        now_ms = self._clock.now_ms()
        for session, phase in sorted(sessions, key=lambda each: (each[1].started_at_ms, each[0].id)):
            if available < session.terms.hold:
                message = FundsReported(MicroUsdc(max(0, available)))
                self._registry.ref(SESSION, session.id).tell(message, conflate_key="funds")
            available -= funds_needed(session, phase, now_ms, self._limits)
