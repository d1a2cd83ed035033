"""Who wants to know that something changed. Watchers see the latest state, not every state in between."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, final

import trio

ASSIGNMENTS_MAX: Final = 64
"""Session ids kept for a slow watcher of a workspace; the oldest is dropped."""


@final
class Watch:
    """One watcher's mailbox: a flag, and the ids of what changed beside."""

    def __init__(self) -> None:
        self._event = trio.Event()
        self._related: dict[str, None] = {}

    def _notify(self, related: str | None) -> None:
        if related is not None:
            self._related.pop(related, None)
            self._related[related] = None
            if len(self._related) > ASSIGNMENTS_MAX:
                del self._related[next(iter(self._related))]
        self._event.set()

    async def change(self) -> tuple[str, ...]:
        """Wait for a change; returns the ids of related things that changed meanwhile, maybe none."""
        await self._event.wait()
        self._event = trio.Event()
        related, self._related = tuple(self._related), {}
        return related


@final
class Watchers:
    """All watchers of one process, by (kind, id)."""

    def __init__(self) -> None:
        self._watches: dict[tuple[str, str], set[Watch]] = {}

    def notify(self, kind: str, actor_id: str, *, related: str | None = None) -> None:
        """Wake the tasks that watch this actor."""
        for watch in self._watches.get((kind, actor_id), ()):
            watch._notify(related)  # noqa: SLF001  (the two classes are one mechanism)

    @contextmanager
    def watch(self, kind: str, actor_id: str) -> Iterator[Watch]:
        """Watch one actor for as long as the block lasts."""
        watch = Watch()
        watches = self._watches.setdefault((kind, actor_id), set())
        watches.add(watch)
        try:
            yield watch
        finally:
            watches.discard(watch)
            if not watches:
                self._watches.pop((kind, actor_id), None)

    def __len__(self) -> int:
        return sum(len(watches) for watches in self._watches.values())
