"""Deliver messages between actors twice or late, but only the messages for which the actors allow it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from sightline.actors.kernel import AnyRef, Envelope, Lane, Sent
from sightline.actors.messages import (
    FreeOperator,
    HeartbeatResumed,
    OperatorChanged,
    RestoreClaim,
    VacateOperator,
)
from sightline.domain.session.messages import FixReported, MediaBroke, MediaProved

if TYPE_CHECKING:
    from simulation.faults import Faults
    from simulation.history import History

MAY_REPEAT: Final = (
    FixReported,
    MediaProved,
    MediaBroke,
    FreeOperator,
    VacateOperator,
    RestoreClaim,
    OperatorChanged,
    HeartbeatResumed,
)
MAY_BE_LATE: Final = (FixReported, MediaProved)
"""Evidence carries its own time. Messages that change a claim are delivered in order, because the actors rely on it."""


@final
class FaultyWire:
    """Implements the Wire port of one server process."""

    def __init__(self, faults: Faults, nursery: trio.Nursery, history: History) -> None:
        self._faults = faults
        self._nursery = nursery
        self._history = history

    def carry(self, ref: AnyRef, envelope: Envelope[object], lane: Lane) -> Sent:
        """Deliver a tell to its mailbox."""
        faults, message = self._faults, envelope.message
        if isinstance(message, MAY_BE_LATE) and faults.hits(faults.rates.late):
            self._nursery.start_soon(self._carry_late, ref, envelope, lane)
            return Sent.ADMITTED
        sent = ref.receive(envelope, lane)
        if isinstance(message, MAY_REPEAT) and faults.hits(faults.rates.duplicate):
            again = Envelope(message, envelope.enqueued_at)
            again.conflate_key = envelope.conflate_key
            ref.receive(again, lane)
        return sent

    async def _carry_late(self, ref: AnyRef, envelope: Envelope[object], lane: Lane) -> None:
        await trio.sleep(self._faults.random() * self._faults.rates.late_s)
        ref.receive(envelope, lane)
        message = envelope.message
        if isinstance(message, FixReported):
            self._history.evidence_delivered(ref.id, message.fix.at_ms)
        elif isinstance(message, MediaProved):
            self._history.evidence_delivered(ref.id, message.at_ms)
