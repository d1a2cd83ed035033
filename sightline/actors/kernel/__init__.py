"""The actor kernel: one supervised trio task per active actor, typed mailboxes, timers.

An actor is a `Behaviour` made by a factory; others send to it through a `Ref`. It handles one message at a time,
control messages before data messages. Every ask is answered exactly once. After a crash the actor loads its state from
the store. The kernel knows nothing of sessions or workspaces.
"""

from sightline.actors.kernel.behaviour import Behaviour, Context, Factory, Rng
from sightline.actors.kernel.envelope import Envelope
from sightline.actors.kernel.errors import (
    ActorElsewhereError,
    ActorParkedError,
    ActorStoppedError,
    AskCycleError,
    AskTimeoutError,
    OverloadedError,
    ReloadRequestedError,
    SupersededError,
    TurnLostError,
)
from sightline.actors.kernel.kind import KernelLog, KindOptions
from sightline.actors.kernel.mailbox import Lane, Sent
from sightline.actors.kernel.message import Command, KindName
from sightline.actors.kernel.ref import AnyRef, Directory, Ref, Remote, Wire
from sightline.actors.kernel.registry import KernelOptions, Registry
from sightline.actors.kernel.statistics import Histogram, KernelStatistics, KindStatistics
from sightline.actors.kernel.timers import Timers

__all__ = [
    "ActorElsewhereError",
    "ActorParkedError",
    "ActorStoppedError",
    "AnyRef",
    "AskCycleError",
    "AskTimeoutError",
    "Behaviour",
    "Command",
    "Context",
    "Directory",
    "Envelope",
    "Factory",
    "Histogram",
    "KernelLog",
    "KernelOptions",
    "KernelStatistics",
    "KindName",
    "KindOptions",
    "KindStatistics",
    "Lane",
    "OverloadedError",
    "Ref",
    "Registry",
    "ReloadRequestedError",
    "Remote",
    "Rng",
    "Sent",
    "SupersededError",
    "Timers",
    "TurnLostError",
    "Wire",
]
