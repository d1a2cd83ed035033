"""Tells LIVE sessions that their consumer is there, and that it got a picture."""

from typing import Final

from sightline.actors.deps import SESSION
from sightline.actors.kernel.registry import Registry
from sightline.domain.session.messages import ConsumerActive
from sightline.domain.session.model import Live, Session

TELL_EVERY_MS: Final = 1_000


def renew_lease(registry: Registry, session: Session, now_ms: int) -> None:
    """Tell the session that its consumer is there; nothing without a lease, or within a second of the last renewal."""
    phase = session.phase
    if session.terms.consumer_lease_s is None or not isinstance(phase, Live):
        return
    if now_ms - max(phase.consumer_seen_ms, phase.started_at_ms) >= TELL_EVERY_MS:
        registry.ref(SESSION, session.id).tell(ConsumerActive(), conflate_key="consumer")


def note_picture(registry: Registry, session: Session, at_ms: int) -> None:
    """Tell the session that its consumer got a picture, which renews its lease too; at most once a second."""
    known = session.delivery
    if isinstance(session.phase, Live) and (known is None or at_ms - known.last_at_ms >= TELL_EVERY_MS):
        told = ConsumerActive(session.terms.consumer_workspace_id, picture_at_ms=at_ms)
        registry.ref(SESSION, session.id).tell(told, conflate_key="picture")
