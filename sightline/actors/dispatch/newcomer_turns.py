"""Decides which dispatches try an operator of a wallet that has not proved anything yet before the proved ones.

Without such turns nobody new would ever film where proved operators are idle. With a fixed share, an attacker with many
new wallets could fail that share of all dispatches for ever. So the share falls while newcomers fail, and recovers.
"""

from typing import Final, final

EVERY: Final = 5
"""One dispatch in five tries newcomers first while they start what they are given."""
EVERY_MAX: Final = 80


@final
class NewcomerTurns:
    """Counts dispatches. A no-show of a newcomer halves the share of newcomers; one that proves itself doubles it."""

    def __init__(self) -> None:
        self._every = EVERY
        self._since = 0
        """Dispatches since the last newcomer was tried."""

    def is_due(self) -> bool:
        """Whether the next dispatch tries newcomers first."""
        return self._since + 1 >= self._every

    def picked(self, *, is_new: bool) -> None:
        """An operator was chosen for a dispatch."""
        self._since = 0 if is_new else self._since + 1

    def failed(self, *, is_new: bool) -> None:
        """A wallet did not start a session."""
        if is_new:
            self._every = min(2 * self._every, EVERY_MAX)

    def proved(self, *, is_new: bool) -> None:
        """A wallet proved itself, perhaps for the first time."""
        if is_new:
            self._every = max(self._every // 2, EVERY)
