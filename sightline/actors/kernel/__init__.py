"""The actor kernel on trio: mailbox, ref, registry, supervisor, timers.

Knows nothing of sessions. An actor is a `Behaviour` made by a factory; everybody else holds a `Ref`. One turn at a
time, control before data, every ask answered exactly once, a crash answered by a load from the store.
"""

from sightline.actors.kernel.behaviour import Behaviour, Context, Factory, Rng
from sightline.actors.kernel.envelope import Envelope
from sightline.actors.kernel.errors import (
    ActorParkedError,
    ActorStoppedError,
    AskCycleError,
    AskTimeoutError,
    OverloadedError,
    ReloadRequestedError,
    SupersededError,
    TurnLostError,
)
from sightline.actors.kernel.kind import KindOptions
from sightline.actors.kernel.mailbox import Lane, Sent
from sightline.actors.kernel.ref import Ref
from sightline.actors.kernel.registry import KernelLog, KernelOptions, Registry
from sightline.actors.kernel.statistics import Histogram, KernelStatistics, KindStatistics
from sightline.actors.kernel.timers import Timers
from sightline.actors.kernel.wire import Wire

__all__ = [
    "ActorParkedError",
    "ActorStoppedError",
    "AskCycleError",
    "AskTimeoutError",
    "Behaviour",
    "Context",
    "Envelope",
    "Factory",
    "Histogram",
    "KernelLog",
    "KernelOptions",
    "KernelStatistics",
    "KindOptions",
    "KindStatistics",
    "Lane",
    "OverloadedError",
    "Ref",
    "Registry",
    "ReloadRequestedError",
    "Rng",
    "Sent",
    "SupersededError",
    "Timers",
    "TurnLostError",
    "Wire",
]
