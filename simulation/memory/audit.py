"""The audit log in memory, for tests. It passes the same contract suite as the one in Postgres."""

from collections.abc import Sequence
from typing import final

import trio

from sightline.domain.value import replace
from sightline.ports.administration import AuditEntry


@final
class MemoryAuditLog:
    """Keeps entries in a list."""

    def __init__(self) -> None:
        self._entries: list[AuditEntry] = []

    async def append(self, entry: AuditEntry) -> None:
        """Append an entry."""
        await trio.lowlevel.checkpoint()
        self._entries.append(replace(entry, id=len(self._entries) + 1))

    async def entries(self, *, after_id: int, limit: int, target: str | None = None) -> Sequence[AuditEntry]:
        """Read entries in ascending order of id."""
        await trio.lowlevel.checkpoint()
        found = [entry for entry in self._entries if entry.id > after_id and target in (None, entry.target)]
        return found[:limit]
