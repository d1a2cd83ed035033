"""The media pump: what the video backend reports reaches the session's actor, and the store as checkpoints."""

from typing import Final, final

import structlog
import trio

from sightline.actors.deps import SESSION
from sightline.actors.kernel.mailbox import Lane
from sightline.actors.kernel.registry import Registry
from sightline.actors.messages import MediaArrived, MediaWentAway
from sightline.domain.errors import SightlineError
from sightline.ports.store import Store
from sightline.ports.video import MediaEvent, MediaKind, VideoBackend

CHECKPOINT_EVERY_S: Final = 2.0

log = structlog.get_logger("sightline.media")


@final
class MediaPump:
    """Forwards media events and checkpoints media proofs, so that a restart charges no more than was proved."""

    def __init__(self, video: VideoBackend, registry: Registry, store: Store) -> None:
        self._video = video
        self._registry = registry
        self._store = store
        self._proofs: dict[str, int] = {}

    async def run(self) -> None:
        """Pump for ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._checkpoint)
            async for event in self._video.events():
                self.forward(event)

    def forward(self, event: MediaEvent) -> None:
        """Tell the session one event."""
        session = self._registry.ref(SESSION, event.session_id)
        match event.kind:
            case MediaKind.CONNECTED | MediaKind.FRAMES:
                self._proofs[event.session_id] = event.at_ms
                session.tell(MediaArrived(event.at_ms), conflate_key="media")
            case MediaKind.DISCONNECTED:
                session.tell(MediaWentAway(event.at_ms), lane=Lane.CONTROL)
            case MediaKind.NO_RTP | MediaKind.NO_FRAME:
                pass  # the meter counts silence itself

    async def _checkpoint(self) -> None:
        while True:
            await trio.sleep(CHECKPOINT_EVERY_S)
            proofs, self._proofs = self._proofs, {}
            if not proofs:
                continue
            try:
                await self._store.checkpoint_media(proofs)
            except SightlineError as error:
                log.warning("media_checkpoint_failed", sessions=len(proofs), error=str(error))
                self._proofs = {**proofs, **self._proofs}
