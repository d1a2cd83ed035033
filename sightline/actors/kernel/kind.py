"""One kind of actor: its limits and what all of its actors share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

from msgspec import Struct

from sightline.actors.kernel.statistics import Counters
from sightline.domain.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from sightline.actors.kernel.behaviour import Factory, Rng
    from sightline.actors.kernel.envelope import Envelope
    from sightline.actors.kernel.ref import Directory
    from sightline.actors.kernel.timers import Timers
    from sightline.ports.clock import Clock

DEAD_LETTERS_LOGGED: Final = 100


class KernelLog(Protocol):
    """The part of a structlog logger that the kernel uses."""

    def warning(self, event: str, **fields: object) -> object:
        """Log something that needs no action now."""
        ...

    def error(self, event: str, *, exc_info: BaseException | None = None, **fields: object) -> object:
        """Log a failed actor."""
        ...


@final
class KindOptions(Value, kw_only=True):
    """Limits of one kind of actor.

    Attributes:
        data_max: Messages that may wait in the data lane.
        control_max: Messages that may wait in the control lane; protects against a runaway sender.
        helpers_max: Helpers of one actor that may run at once.
        idle_s: Seconds without a message after which an actor may be passivated.
        restarts_max, restart_window_s: An actor with more crashes than this within the window is parked.
        backoff_first_ms, backoff_max_ms: Pause before a restart; doubles, with a jitter factor of 0.5 to 1.5.
        tell_retries_max: How often a tell is handled again after a turn that failed without a crash.
        asks_others: Its helpers ask actors of other kinds. When actors are given to another server, these finish what
            they have begun while the others still answer; see `Registry.settle_where`.
    """

    data_max: int = 64
    control_max: int = 256
    helpers_max: int = 64
    idle_s: float = 120.0
    restarts_max: int = 3
    restart_window_s: float = 5.0
    backoff_first_ms: int = 100
    backoff_max_ms: int = 5_000
    tell_retries_max: int = 8
    asks_others: bool = False


@final
class Kind(Struct, kw_only=True):
    """What all actors of one kind share."""

    name: str
    factory: Factory[object, object]
    options: KindOptions
    directory: Directory
    timers: Timers
    clock: Clock
    rng: Rng
    log: Callable[[], KernelLog]
    now: Callable[[], float]
    counters: Counters

    def dead_letter(self, actor_id: str, envelope: Envelope[object], reason: str) -> None:
        """Count a tell that will not be handled; log the first hundred, then every hundredth."""
        self.counters.dead_letters += 1
        total = self.counters.dead_letters
        if total > DEAD_LETTERS_LOGGED and total % DEAD_LETTERS_LOGGED:
            return
        message = type(envelope.message).__name__
        self.log().warning("dead_letter", kind=self.name, id=actor_id, message=message, reason=reason, total=total)
