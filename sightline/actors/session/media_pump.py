"""Forwards media events from the video backend to the session actors, and stores media proofs as checkpoints."""

from typing import Final, final

import structlog
import trio

from sightline.actors.deps import SESSION, Deps
from sightline.actors.kernel.mailbox import Lane
from sightline.actors.kernel.registry import Registry
from sightline.actors.messages import ReopenVideo
from sightline.actors.session.consumer_presence import note_picture, renew_lease
from sightline.domain.errors import SightlineError
from sightline.domain.session.messages import ConsumerActive, MediaBroke, MediaProved
from sightline.domain.session.model import Live, MediaCheckpoint
from sightline.ports.video import MediaEvent, MediaKind

CHECKPOINT_EVERY_S: Final = 2.0

log = structlog.get_logger("sightline.media")


@final
class MediaPump:
    """Forwards media events to their sessions and checkpoints what the sessions have proved.

    A checkpoint is read from the session's snapshot and not from the event. A proof that ends a dirty gap is in the
    snapshot only after the row that shows the gap is stored, so a crash in between does not turn the gap into proof.
    """

    def __init__(self, deps: Deps, registry: Registry) -> None:
        self._video = deps.video
        self._registry = registry
        self._store = deps.store
        self._proved = deps.media_proved

    async def run(self) -> None:
        """Run until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._checkpoint)
            async for event in self._video.events():
                self.forward(event)

    def forward(self, event: MediaEvent) -> None:
        """Send one event to its session."""
        session = self._registry.ref(SESSION, event.session_id)
        match event.kind:
            case MediaKind.CONNECTED | MediaKind.FRAMES:
                session.tell(MediaProved(event.at_ms), conflate_key="media")
            case MediaKind.DISCONNECTED:
                session.tell(MediaBroke(event.at_ms), lane=Lane.CONTROL)
            case MediaKind.WATCHED:
                self._forward_viewers(event)
            case MediaKind.LOST:
                session.tell(ReopenVideo(), lane=Lane.CONTROL)
            case MediaKind.NO_RTP | MediaKind.NO_FRAME:
                pass  # the meter measures silence by itself

    def _forward_viewers(self, event: MediaEvent) -> None:
        """Tell the session of its consumer's viewers. The operator may watch its own video, which does not count."""
        known = self._registry.peek(SESSION, event.session_id)
        if known is None:  # loading, or another server's, which knows its consumer
            session = self._registry.ref(SESSION, event.session_id)
            for workspace_id in event.viewers:
                picture_at_ms = event.at_ms if workspace_id in event.receiving else None
                session.tell(ConsumerActive(workspace_id, picture_at_ms), conflate_key=f"viewer {workspace_id}")
            return
        consumer = known.terms.consumer_workspace_id
        if consumer in event.viewers:
            renew_lease(self._registry, known, event.at_ms)
        if consumer in event.receiving:
            note_picture(self._registry, known, event.at_ms)

    async def _checkpoint(self) -> None:
        while True:
            await trio.sleep(CHECKPOINT_EVERY_S)
            waiting = list(self._proved)
            self._proved.clear()
            checkpoints: dict[str, MediaCheckpoint] = {}
            for session_id in waiting:
                session = self._registry.peek(SESSION, session_id)
                if session is None:
                    continue  # its next life tells of later media
                if isinstance(session.phase, Live) and (proved := session.phase.evidence.media.last_proof_ms):
                    checkpoints[session_id] = MediaCheckpoint(proved_at_ms=proved, delivery=session.delivery)
            if not checkpoints:
                continue
            try:
                await self._store.checkpoint_media(checkpoints)
            except SightlineError as error:
                log.warning("media_checkpoint_failed", sessions=len(checkpoints), error=str(error))
                self._proved.update(dict.fromkeys(checkpoints))
