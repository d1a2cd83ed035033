"""The seam at which a simulation makes messages between actors late or double."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sightline.actors.kernel.envelope import Envelope
    from sightline.actors.kernel.mailbox import Lane, Sent
    from sightline.actors.kernel.ref import Ref


class Wire(Protocol):
    """Carries every tell, in place of the mailbox call that a server makes. Asks and timers do not pass here."""

    def carry(self, ref: Ref, envelope: Envelope, lane: Lane) -> Sent:
        """Bring a message to `ref.receive`, now or later, once or more often."""
        ...
