"""Opens holds for sessions that start, and signs statements of the meter."""

from collections.abc import Callable
from typing import Final, final

import trio

from sightline.chain.contracts.messages import MeterStatement
from sightline.chain.meter import Meter
from sightline.chain.relayer.openings import hold_of
from sightline.domain.errors import RefusedError, UnavailableError
from sightline.domain.refusal import Code, Refusal
from sightline.domain.session.model import Session
from sightline.ports.clock import Clock
from sightline.ports.escrow import HoldOpening, OpeningOutbox, SignedStatement
from sightline.ports.ledger import SettlementState
from sightline.system.keccak import session_id_hash

OPEN_WAIT_S: Final = 20.0
"""How long a start waits for its hold. Afterwards it can be repeated; the hold is still opened."""
LOOK_EVERY_S: Final = 0.1
"""How often a start looks for its hold when the relayer runs on another server."""
_OPENED: Final = (SettlementState.MINED, SettlementState.CONFIRMED)
_REFUSED: Final = (SettlementState.FAILED, SettlementState.REVERTED, SettlementState.MISMATCHED)


@final
class ChainEscrow:
    """Implements `Escrow` with the outbox of the relayer."""

    def __init__(
        self, openings: OpeningOutbox, meter: Meter, *, clock: Clock, wake_relayer: Callable[[], None]
    ) -> None:
        self._openings = openings
        self._meter = meter
        self._clock = clock
        self._wake_relayer = wake_relayer
        self._news = trio.Event()

    def on_round(self) -> None:
        """Look for holds at once: the relayer of this server has completed a round."""
        self._news.set()
        self._news = trio.Event()

    async def open_hold(self, session: Session) -> None:
        """Open the hold of a session and return when it is in a block."""
        now_ms = self._clock.now_ms()
        await self._openings.request(_opening(session, now_ms), now_ms=now_ms)
        with trio.move_on_after(OPEN_WAIT_S):
            while True:
                news = self._news
                self._wake_relayer()
                opening = await self._openings.opening(session.id)
                if opening is not None and opening.state in _OPENED:
                    return
                if opening is not None and opening.state in _REFUSED:
                    raise RefusedError(_not_held(opening.reason or "refused"))
                with trio.move_on_after(LOOK_EVERY_S):
                    await news.wait()
        raise UnavailableError("the hold is not in a block yet; repeat the start")

    async def statement(
        self, session_id: str, *, clean_seconds: int, head_hash: str, is_final: bool
    ) -> SignedStatement | None:
        """Sign a reading of the meter."""
        opening = await self._openings.opening(session_id)
        hold = None if opening is None else hold_of(opening)
        if opening is None or hold is None:
            return None
        message = MeterStatement(
            hold_hash=hold.hash(), clean_seconds=clean_seconds, head_hash=bytes.fromhex(head_hash),
            is_final=is_final,
        )  # fmt: skip
        signature = await self._meter.sign(message)
        return SignedStatement(
            hold=opening, clean_seconds=clean_seconds, head_hash=head_hash, is_final=is_final,
            signature="0x" + signature.hex(),
        )  # fmt: skip


def _opening(session: Session, now_ms: int) -> HoldOpening:
    terms, operator = session.terms, session.operator
    assert operator is not None, "a hold is opened for an assigned session"
    assert terms.consent is not None, "a hold is opened for a session with a consent"
    return HoldOpening(
        session_id=terms.id, session_id_hash=session_id_hash(terms.id), payer=terms.payer_address.lower(),
        payee=operator.wallet_address.lower(), max_amount=terms.hold, rate=terms.rate,
        fee_bps=terms.platform_fee_bps, consent=terms.consent, state=SettlementState.COMPOSED, reason=None,
        tx_hash=None, block_number=None, block_hash=None, confirmed_at_ms=None, retry_at_ms=now_ms, tries=0,
        notified=True, composed_at_ms=now_ms, updated_at_ms=now_ms,
    )  # fmt: skip


def _not_held(reason: str) -> Refusal:
    return Refusal(
        Code.INSUFFICIENT_CREDIT, "session:fundsNotHeld", f"The contract does not hold the session's amount: {reason}"
    )
