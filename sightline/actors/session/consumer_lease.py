"""Renews the consumer lease of LIVE sessions: the consumer made a call about the session, or somebody watches it."""

from typing import Final

from sightline.actors.deps import SESSION
from sightline.actors.kernel.registry import Registry
from sightline.domain.session.messages import ConsumerActive
from sightline.domain.session.model import Live, Session

RENEW_EVERY_MS: Final = 1_000


def renew_lease(registry: Registry, session: Session, now_ms: int) -> None:
    """Tell the session that its consumer is there; nothing without a lease, or within a second of the last renewal."""
    phase = session.phase
    if session.terms.consumer_lease_s is None or not isinstance(phase, Live):
        return
    if now_ms - max(phase.consumer_seen_ms, phase.started_at_ms) >= RENEW_EVERY_MS:
        registry.ref(SESSION, session.id).tell(ConsumerActive(), conflate_key="consumer")
