"""How many streams a workspace may hold open: each keeps a connection, a task and a place among the watchers."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, final

from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Code, Refusal

RETRY_AFTER_S: Final = 5


@final
class StreamSlots:
    """Counts open streams per workspace."""

    def __init__(self, per_workspace_max: int) -> None:
        self._max = per_workspace_max
        self._open: Counter[str] = Counter()

    def require_free(self, workspace_id: str) -> None:
        """Ask before the answer begins, while it can still be an error.

        Raises:
            RefusedError: RATE_LIMITED `streams:limit`.
        """
        if self._open[workspace_id] >= self._max:
            message = f"The workspace holds {self._max} streams open"
            raise RefusedError(Refusal(Code.RATE_LIMITED, "streams:limit", message, retry_after_s=RETRY_AFTER_S))

    @contextmanager
    def held(self, workspace_id: str) -> Iterator[None]:
        """Hold a slot for as long as the stream lasts."""
        self._open[workspace_id] += 1
        try:
            yield
        finally:
            self._open[workspace_id] -= 1
            if not self._open[workspace_id]:
                del self._open[workspace_id]
