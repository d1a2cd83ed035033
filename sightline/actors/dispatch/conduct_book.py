"""The conduct of wallets as the dispatcher knows it: their rank in a dispatch, and which of it is not stored yet."""

from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Final, final

from sightline.domain.conduct import UNKNOWN, Conduct

PROVED: Final = 0
NEW: Final = 1
Rank = int
"""PROVED or NEW: the order within a tier."""


@final
class ConductBook:
    """The records of all wallets of which something is known."""

    def __init__(self) -> None:
        self._conducts: dict[str, Conduct] = {}
        self._unsaved: dict[str, None] = {}
        self._back: list[tuple[int, str]] = []
        """When wallets come back into the tiers, as a heap; entries may be outdated."""

    def load(self, conducts: Mapping[str, Conduct]) -> None:
        """Take the stored records."""
        for wallet, conduct in conducts.items():
            self._set(wallet, conduct)

    def of(self, wallet: str) -> Conduct:
        """The record of a wallet."""
        return self._conducts.get(wallet, UNKNOWN)

    def rank(self, wallet: str, now_ms: int) -> Rank | None:
        """The rank of a wallet's operators; None while they are out of the tiers."""
        conduct = self._conducts.get(wallet, UNKNOWN)
        if now_ms < conduct.out_until_ms:
            return None
        return PROVED if conduct.is_proved else NEW

    def record(self, wallet: str, conduct: Conduct) -> bool:
        """Replace a record; returns whether it is another one."""
        if conduct == self.of(wallet):
            return False
        self._set(wallet, conduct)
        self._unsaved[wallet] = None
        return True

    def _set(self, wallet: str, conduct: Conduct) -> None:
        self._conducts[wallet] = conduct
        if conduct.out_until_ms:
            heappush(self._back, (conduct.out_until_ms, wallet))

    def back(self, now_ms: int) -> list[str]:
        """The wallets that may have come back into the tiers since the last call."""
        found = []
        while self._back and self._back[0][0] <= now_ms:
            found.append(heappop(self._back)[1])
        return found

    def take_unsaved(self) -> dict[str, Conduct]:
        """The records to store; they count as stored from now on."""
        taken, self._unsaved = self._unsaved, {}
        return {wallet: self._conducts[wallet] for wallet in taken}

    def not_saved(self, wallets: Mapping[str, Conduct]) -> None:
        """Storing these failed: they are taken again."""
        self._unsaved |= dict.fromkeys(wallets)
