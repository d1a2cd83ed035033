"""Tells LIVE sessions what their payer can still pay, where holds are enforced.

A session judges by what it has charged so far, which grows while the funds stay the same. So besides each change that
the chain reports, the funds of payers who cannot pay all their holds are told again every few seconds. The first check,
made when the watcher starts, covers what changed while no server watched.

One server does this for the sessions of all servers, because the sessions of one payer share its funds.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, final

from sightline.actors.deps import SESSION
from sightline.actors.kernel import Registry
from sightline.domain.errors import OutcomeUnknownError, UnavailableError
from sightline.domain.session.machine import funds_needed
from sightline.domain.session.messages import FundsReported
from sightline.domain.session.model import Live, Session, SessionLimits
from sightline.domain.units import MicroUsdc
from sightline.ports.clock import Clock
from sightline.ports.ledger import Ledger, LiveHold

CHECK_EVERY_S: Final = 10.0
"""Below `SessionLimits.funds_reserve_s`: a session ends before it has charged what cannot be paid."""


@final
class PayerFunds:
    """Reports funds to the LIVE sessions of all servers."""

    def __init__(
        self,
        registry: Registry,
        ledger: Ledger,
        read_session: Callable[[str], Awaitable[Session | None]],
        clock: Clock,
        limits: SessionLimits,
    ) -> None:
        """`read_session` returns a session as its actor, which may run on another server, knows it."""
        self._registry = registry
        self._ledger = ledger
        self._read_session = read_session
        self._clock = clock
        self._limits = limits

    async def report(self, payer: str) -> None:
        """Tell the sessions of a payer whose wallet was just read.

        Raises:
            UnavailableError, OutcomeUnknownError: The ledger or a session cannot be read.
        """
        await self._tell_all(await self._ledger.live_holds(payer))

    async def check(self) -> None:
        """Tell all sessions whose payer's last reading does not cover its holds.

        Raises:
            UnavailableError, OutcomeUnknownError: The ledger or a session cannot be read; other payers were served.
        """
        await self._tell_all(await self._ledger.live_holds())

    async def _tell_all(self, holds: Sequence[LiveHold]) -> None:
        by_payer: dict[str, list[LiveHold]] = {}
        for hold in holds:
            by_payer.setdefault(hold.payer, []).append(hold)
        if not by_payer:
            return
        # The charges of ended sessions are paid first: they reserve what their settlements will take.
        left = await self._ledger.funds_beside_charges(sorted(by_payer), now_ms=self._clock.now_ms())
        failure: UnavailableError | OutcomeUnknownError | None = None
        for payer, held in by_payer.items():
            if payer not in left or (
                left[payer] >= sum(hold.amount_micro for hold in held)
                and not any(_exceeds_limit(hold) for hold in held)
            ):
                continue  # not read yet, or all its sessions can charge their maximum
            try:
                await self._tell(held, left[payer])
            except (UnavailableError, OutcomeUnknownError) as error:
                failure = error
        if failure is not None:
            raise failure

    async def _tell(self, holds: Sequence[LiveHold], available: int) -> None:
        """Share the funds of one payer among its sessions: those that started first are paid first."""
        live: list[tuple[Session, Live]] = []
        for hold in holds:
            session = await self._read_session(hold.session_id)
            if session is not None and isinstance(session.phase, Live):
                live.append((session, session.phase))
        limits = {hold.session_id: hold.session_limit_micro for hold in holds}
        now_ms = self._clock.now_ms()
        for session, phase in sorted(live, key=lambda each: (each[1].started_at_ms, each[0].id)):
            limit = limits[session.id]
            payable = available if limit is None else min(available, limit)
            if payable < session.terms.hold:
                message = FundsReported(MicroUsdc(max(0, payable)))
                self._registry.ref(SESSION, session.id).tell(message, conflate_key="funds")
            available -= funds_needed(session, phase, now_ms, self._limits)


def _exceeds_limit(hold: LiveHold) -> bool:
    return hold.session_limit_micro is not None and hold.amount_micro > hold.session_limit_micro
