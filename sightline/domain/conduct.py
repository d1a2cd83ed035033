"""How reliable the owner of operators was: sessions that were assigned and not started, and sessions that were filmed.

Kept for each wallet and not for each workspace, because a workspace costs nothing. Source: ADR 0180.
"""

from typing import Final, final

from sightline.domain.units import MINUTE_MS
from sightline.domain.value import Value

PROVED_SECONDS: Final = 30
"""Clean seconds of one session after which its operator's wallet counts as proved."""
NO_SHOWS_WITHIN_MS: Final = 60 * MINUTE_MS
OUT_MS: Final = (MINUTE_MS, 10 * MINUTE_MS, 60 * MINUTE_MS)
"""How long a wallet is passed over after its first, second and third no-show within `NO_SHOWS_WITHIN_MS`."""


@final
class Conduct(Value):
    """The record of one wallet."""

    no_shows_ms: tuple[int, ...] = ()
    """When assigned sessions were not started; the newest ones, oldest first."""
    proved_at_ms: int | None = None
    """When it last ended a session with `PROVED_SECONDS`; None: never."""

    @property
    def is_proved(self) -> bool:
        """Whether it has ever filmed a session of `PROVED_SECONDS`."""
        return self.proved_at_ms is not None

    @property
    def out_until_ms(self) -> int:
        """When its operators come back into the tiers of dispatch; 0 if they are in them."""
        if not self.no_shows_ms:
            return 0
        return self.no_shows_ms[-1] + OUT_MS[len(self.no_shows_ms) - 1]

    def after_no_show(self, at_ms: int) -> "Conduct":
        """Record a session that was assigned and not started; nothing if it is recorded already."""
        if at_ms in self.no_shows_ms:
            return self
        recent = [each for each in self.no_shows_ms if at_ms - each < NO_SHOWS_WITHIN_MS]
        return Conduct(no_shows_ms=(*recent, at_ms)[-len(OUT_MS) :], proved_at_ms=self.proved_at_ms)

    def after_proof(self, at_ms: int) -> "Conduct":
        """Record a session that was filmed: it clears the oldest no-show. Nothing if it is recorded already."""
        if at_ms == self.proved_at_ms:
            return self
        return Conduct(no_shows_ms=self.no_shows_ms[1:], proved_at_ms=at_ms)


UNKNOWN: Final = Conduct()
"""The record of a wallet of which nothing is known."""
