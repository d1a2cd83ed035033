"""One actor's life in memory: its mailbox, its turns, its memory. What a failure does to it is in `failures`.

A cell has no task of its own. While something waits in its mailbox a worker of the pool runs it; when nothing does, it
is only data. One worker at a time runs a cell, so turns never overlap.

    LOADING --load--> ACTIVE --crash, reload--> LOADING
       |                 |
       +--too many crashes--> PARKED --revive--> LOADING
       +-----------------+--stop--> STOPPING, then the cell is dropped
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, final

import trio

from sightline.actors.kernel.behaviour import Behaviour, Context
from sightline.actors.kernel.envelope import Envelope
from sightline.actors.kernel.errors import (
    ActorParkedError,
    ActorStoppedError,
    AskTimeoutError,
    SupersededError,
    TurnLostError,
)
from sightline.actors.kernel.failures import after_failed_load, after_failed_turn, log_failure
from sightline.actors.kernel.helpers import Helpers
from sightline.actors.kernel.mailbox import Lane, Mailbox, Sent
from sightline.actors.kernel.waitfor import turn_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sightline.actors.kernel.kind import Kind
    from sightline.actors.kernel.ref import Ref
    from sightline.actors.kernel.supervision import Strikes

TURNS_PER_VISIT = 32
"""Turns a worker takes before it lets other tasks run, should no turn have waited for anything."""


class Phase(Enum):
    """Where a cell is in its life."""

    LOADING = "loading"
    ACTIVE = "active"
    PARKED = "parked"
    STOPPING = "stopping"


@final
class Activate:
    """The kernel's own ask: answered when the actor has loaded. Never seen by a behaviour."""


@final
class Cell:
    """One actor in memory."""

    __slots__ = (
        "behaviour",
        "context",
        "current",
        "held",
        "helpers",
        "idle",
        "kind",
        "last_active",
        "mailbox",
        "parked_reason",
        "passivate_asked",
        "phase",
        "ref",
        "running",
        "scope",
        "snapshot",
        "strikes",
        "was_active",
    )

    def __init__(self, kind: Kind, ref: Ref) -> None:
        self.kind = kind
        self.ref = ref
        self.mailbox = Mailbox()
        self.phase = Phase.LOADING
        self.context = Context(self)
        self.behaviour: Behaviour | None = None
        self.snapshot: Any | None = None
        self.running = False
        self.current: Envelope | None = None
        """The message whose turn it is."""
        self.held: dict[Envelope, None] | None = None
        """Asks whose turn is over and whose answer is to come in a later one."""
        self.helpers: Helpers | None = None
        self.strikes: Strikes | None = None
        self.parked_reason: str | None = None
        self.passivate_asked = False
        self.was_active = False
        self.last_active = kind.now()
        self.scope: trio.CancelScope | None = None
        self.idle: trio.Event | None = None
        """Set when the worker leaves, if somebody waits for that."""

    # Receiving.

    def admit(self, envelope: Envelope, lane: Lane, *, always: bool = False) -> Sent:
        """Put a message into the mailbox or say why not; wakes a worker. Never blocks."""
        if self.phase is Phase.PARKED or self.phase is Phase.STOPPING:
            sent = Sent.PARKED if self.phase is Phase.PARKED else Sent.STOPPED
            if not envelope.is_ask:
                self.kind.dead_letter(self.ref.id, envelope, sent.value)
            return sent
        sent = Sent.ADMITTED
        mailbox = self.mailbox
        options = self.kind.options
        if not always and mailbox.depth(lane) >= (options.data_max if lane is Lane.DATA else options.control_max):
            if not self._make_room(envelope, lane):
                self.kind.counters.overloaded += 1
                return Sent.OVERLOADED
            sent = Sent.CONFLATED
        mailbox.put(envelope, lane)
        if not self.running:
            self.running = True
            registry = self.kind.registry
            registry.at_work += 1
            registry.workers.dispatch(self)
        return sent

    def _make_room(self, envelope: Envelope, lane: Lane) -> bool:
        if lane is not Lane.DATA or envelope.conflate_key is None:
            return False
        older = self.mailbox.take_oldest(envelope.conflate_key)
        if older is None:
            return False
        self.kind.counters.conflated += 1
        older.fail_if_open(SupersededError("a newer message took its place in a full mailbox"))
        return True

    def turn_everything_away(self) -> None:
        """Answer or bury all that waits, has its turn, or was put off to a later turn."""
        self._turn_mail_away()
        self._lose_turns("the actor stopped before the answer")

    def _turn_mail_away(self) -> None:
        parked = self.phase is Phase.PARKED
        for envelope in self.mailbox.take_all():
            if not envelope.is_ask:
                self.kind.dead_letter(self.ref.id, envelope, "parked" if parked else "stopped")
            elif parked:
                envelope.fail_if_open(ActorParkedError(self.parked_reason or ""))
            else:
                envelope.fail_if_open(ActorStoppedError(f"{self.ref} is stopping"))

    # Working.

    async def run(self, scope: trio.CancelScope) -> None:
        """Load if needed and take turns until the mailbox is empty. Called by one worker at a time."""
        self.scope = scope
        if self.kind.wait_for is not None:
            turn_of.set(self.ref.key)
        try:
            await self._work()
        finally:
            self._leave()

    async def _work(self) -> None:
        turns = 0
        while True:
            if self.phase is Phase.ACTIVE:
                envelope = self.mailbox.take()
                if envelope is None:
                    return
                await self._turn(envelope)
                turns += 1
                if turns % TURNS_PER_VISIT == 0:
                    await trio.lowlevel.checkpoint()
            elif self.phase is Phase.LOADING:
                await self._load()
            else:
                return

    def _leave(self) -> None:
        registry = self.kind.registry
        registry.at_work -= 1
        self.running = False
        self.scope = None
        if self.current is not None:
            if not self.current.is_ask:
                self.kind.dead_letter(self.ref.id, self.current, "cut short")
            self._lose_turns("the turn was cut short")
        if self.phase is Phase.STOPPING:
            self._end()
        elif self.passivate_asked and self.is_quiet():
            self.kind.passivate(self)
        if not registry.at_work:
            registry.note_quiet()

    def _end(self) -> None:
        self.turn_everything_away()
        self.kind.forget(self)
        if self.idle is not None:
            self.idle.set()

    async def _turn(self, envelope: Envelope) -> None:
        kind = self.kind
        counters = kind.counters
        started = kind.now()
        counters.wait.add(started - envelope.enqueued_at)
        if not self._still_wanted(envelope, started):
            return
        self.current = envelope
        behaviour = self.behaviour
        assert behaviour is not None
        failure: BaseExceptionGroup[BaseException] | None = None
        try:
            await behaviour.handle(envelope)
            self.snapshot = behaviour.snapshot()
        except* Exception as group:  # noqa: BLE001  a supervisor is where exceptions end
            failure = group
        counters.handled += 1
        ended = self.last_active = kind.now()
        counters.handle.add(ended - started)
        self.current = None
        if failure is not None:
            after_failed_turn(self, envelope, failure)
            return
        if self.strikes is not None:
            self.strikes.calm()
        if envelope.is_ask and not envelope.answered and envelope.awaited:
            if self.held is None:
                self.held = {}
            envelope.hold_in(self.held)

    def _still_wanted(self, envelope: Envelope, now: float) -> bool:
        if not envelope.is_ask:
            if envelope.timer is not None:
                return self.kind.registry.timers.claim(envelope.timer, envelope.timer_generation)
            return envelope.origin is None or envelope.origin is self.helpers
        if envelope.deadline <= now:
            self.kind.counters.expired += 1
            envelope.fail_if_open(AskTimeoutError("the deadline passed before the turn"))
            return False
        if envelope.message is Activate:
            envelope.reply(None)
            return False
        return True

    # Loading, and losing what was loaded.

    async def _load(self) -> None:
        """Try to bring the behaviour up once, after the pause that supervision asks for."""
        pause_s = self.strikes.pause_s if self.strikes is not None else 0.0
        if pause_s:
            await trio.sleep(pause_s)
        if self.is_stopping():
            return
        failure: BaseExceptionGroup[BaseException] | None = None
        try:
            behaviour = self.kind.factory(self.context)
            await behaviour.load()
            self.snapshot = behaviour.snapshot()
            self.behaviour = behaviour
        except* Exception as group:  # noqa: BLE001  a supervisor is where exceptions end
            failure = group
        if self.is_stopping():
            return
        if failure is not None:
            after_failed_load(self, failure)
            return
        self.phase = Phase.ACTIVE
        self.kind.counters.activations += not self.was_active
        self.was_active = True

    def forget_memory(self) -> None:
        """Drop all that a new behaviour will make for itself."""
        self.phase = Phase.LOADING
        self.behaviour = None
        self.snapshot = None
        if self.helpers is not None:
            self.helpers.cancel()
            self.helpers = None
        self.kind.registry.timers.cancel_all(self.ref)
        self._lose_turns("the actor was loaded again before the answer")

    def _lose_turns(self, why: str) -> None:
        """Tell the askers whose turn has begun that the outcome is unknown."""
        current, self.current = self.current, None
        held, self.held = self.held, None
        for envelope in [*((current,) if current is not None else ()), *(held or ())]:
            envelope.fail_if_open(TurnLostError(why))

    # Leaving.

    def is_quiet(self) -> bool:
        """Whether the actor is loaded and nothing waits, runs or is owed."""
        return (
            self.phase is Phase.ACTIVE
            and not self.running
            and not len(self.mailbox)
            and not self.held
            and not self.helpers
        )

    def agrees_to_passivate(self) -> bool:
        """Ask the behaviour; one that cannot say stays."""
        assert self.behaviour is not None
        try:
            return self.behaviour.may_passivate()
        except Exception as error:  # noqa: BLE001  a supervisor is where exceptions end
            log_failure(self, "may_passivate_failed", error, None)
            return False

    def is_stopping(self) -> bool:
        """Whether it was told to stop, or gave up."""
        return self.phase is Phase.STOPPING

    def give_up(self) -> None:
        """Stop trying to load; the next message starts over."""
        self.phase = Phase.STOPPING

    def park(self, reason: str) -> None:
        """Take no more messages until somebody revives the actor."""
        self.phase = Phase.PARKED
        self.parked_reason = reason
        self.turn_everything_away()

    def begin_stop(self) -> None:
        """Take no more messages, answer those that wait, and end the helpers. A turn in progress goes on."""
        self.phase = Phase.STOPPING
        if self.helpers is not None:
            self.helpers.cancel()
        self.kind.registry.timers.cancel_all(self.ref)
        self._turn_mail_away()
        if not self.running:
            self._end()

    def revive(self) -> None:
        """Leave the parked phase; the next message or activation loads the actor."""
        if self.phase is Phase.PARKED:
            self.phase = Phase.LOADING
            self.parked_reason = None
            self.strikes = None

    def spawn(
        self,
        work: Callable[[], Awaitable[Any]],
        on_value: Callable[[Any], Any],
        on_error: Callable[[Exception], Any],
        lane: Lane,
    ) -> None:
        """See `Context.spawn`."""
        if self.helpers is None:
            self.helpers = Helpers(self)
        self.helpers.spawn(work, on_value, on_error, lane)
