"""One actor in memory: its mailbox, its lives and its turns.

An actor is one task. The task runs lives, one after another: a life loads a new behaviour and then takes messages from
the mailbox, one at a time. Helpers run in the life's nursery and end with it. The supervisor runs the next life as long
as `live` returns True; cancelling the nursery of the life stops the actor.

    LOADING --load--> ACTIVE --crash or reload--> LOADING
       |                 |
       +--too many crashes--> PARKED
       +-----------------+--stop--> STOPPING
       +-----------------+--passivation--> LEFT
"""

from __future__ import annotations

from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Final, TypeVar, final

import trio

from sightline.actors.kernel.envelope import Envelope
from sightline.actors.kernel.errors import (
    ActorParkedError,
    AskTimeoutError,
    ReloadRequestedError,
    SupersededError,
    TurnLostError,
    stopped,
)
from sightline.actors.kernel.mailbox import Lane, Mailbox, Sent
from sightline.actors.kernel.message import Command
from sightline.actors.kernel.supervision import Strikes, Verdict, classify_failure, parked_pause_s
from sightline.actors.kernel.waitfor import turn_of
from sightline.domain.errors import InvariantError, SightlineError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sightline.actors.kernel.behaviour import Behaviour
    from sightline.actors.kernel.kind import Kind
    from sightline.actors.kernel.ref import Directory, Ref

T = TypeVar("T")

TURNS_PER_SLICE: Final = 32
"""Turns taken before other tasks run, if none of these turns waited for anything."""

RELOAD_RETRIES_MAX: Final = 3
"""How often an ask is handled again after `ReloadRequestedError(retry=True)`."""


class Phase(Enum):
    """Where an actor is in its life."""

    LOADING = "loading"
    ACTIVE = "active"
    PARKED = "parked"
    STOPPING = "stopping"
    LEFT = "left"
    """Passivated, or given up while loading; the next message starts a new cell."""


@final
class Activate(Command["Activate", None]):
    """The kernel's own command: answered when the actor has loaded. Behaviours never see it."""

    __slots__ = ()


@final
class Cell:
    """One actor in memory; also the `Context` of its behaviours."""

    __slots__ = (
        "_behaviour",
        "_passivate_asked",
        "_waiting",
        "clock",
        "current",
        "held",
        "id",
        "idle",
        "kind",
        "last_active",
        "mailbox",
        "nursery",
        "parkings",
        "phase",
        "reason",
        "ref",
        "registry",
        "retry_at",
        "rng",
        "snapshot",
        "strikes",
        "timers",
        "was_active",
    )

    def __init__(self, kind: Kind, ref: Ref[object]) -> None:
        self.kind = kind
        self.ref = ref
        self.id = ref.id
        self.registry: Directory = kind.directory
        self.timers = kind.timers
        self.clock = kind.clock
        self.rng = kind.rng
        self.mailbox = Mailbox()
        self.phase = Phase.LOADING
        self.snapshot: object | None = None
        self._behaviour: Behaviour[object, object] | None = None
        self.nursery: trio.Nursery | None = None
        """The nursery of the current life."""
        self.current: Envelope[object] | None = None
        """The message being handled."""
        self.held: dict[Envelope[object], None] | None = None
        """Asks whose turn ended and that a later turn will answer."""
        self.strikes: Strikes | None = None
        self.reason: str | None = None
        """Why the actor is parked, or why its load is being retried."""
        self.parkings = 0
        """How often the actor was parked before, in a row."""
        self.retry_at: float | None = None
        """When a parked actor is loaded again; None: when `Registry.revive` is called."""
        self.was_active = False
        self.last_active = kind.now()
        self.idle: trio.Event | None = None
        """Set when the actor becomes idle or ends."""
        self._waiting: trio.lowlevel.Task | None = None
        """The actor's task while it waits for a message."""
        self._passivate_asked = False

    # Context: what a behaviour may use.

    def unpublish(self) -> None:
        """See `Context.unpublish`."""
        self.snapshot = None

    def passivate(self) -> None:
        """See `Context.passivate`."""
        self._passivate_asked = True

    def take_following(self, accepts: Callable[[object], bool]) -> list[Envelope[object]]:
        """See `Context.take_following`."""
        taken = []
        now = self.kind.now()
        for envelope in self.mailbox.take_asks_while(accepts):
            if self._is_wanted(envelope, now):
                if self.held is None:
                    self.held = {}
                envelope.hold_in(self.held)
                taken.append(envelope)
        self.kind.counters.handled += len(taken)
        return taken

    def spawn(
        self,
        work: Callable[[], Awaitable[T]],
        *,
        on_value: Callable[[T], object | None],
        on_error: Callable[[Exception], object | None],
        lane: Lane = Lane.DATA,
    ) -> None:
        """See `Context.spawn`."""
        nursery = self.nursery
        assert nursery is not None, "a behaviour works while its life lasts"
        if len(nursery.child_tasks) >= self.kind.options.helpers_max:
            message = f"{self.ref} has {len(nursery.child_tasks)} helpers running"
            raise InvariantError(message)

        async def help_out() -> None:
            turn_of.set(None)
            message: object | None
            try:
                try:
                    message = on_value(await work())
                except Exception as error:  # noqa: BLE001  sent to the actor as a message
                    message = on_error(classify_failure(error)[1])
            except Exception as error:  # noqa: BLE001  a bug in on_error must not cancel the other helpers
                self.kind.log().error("helper_failed", exc_info=error, kind=self.kind.name, id=self.id)
                return
            if message is not None and nursery is self.nursery and not nursery.cancel_scope.cancel_called:
                envelope = Envelope(message, self.kind.now())
                envelope.life = nursery
                self.admit(envelope, lane, is_bounded=False)

        nursery.start_soon(self._run_helper, help_out)

    async def _run_helper(self, help_out: Callable[[], Awaitable[None]]) -> None:
        try:
            await help_out()
        finally:
            self.wake()  # to look again whether the actor is idle

    # Receiving.

    def admit(self, envelope: Envelope[object], lane: Lane, *, is_bounded: bool = True) -> Sent:
        """Put a message into the mailbox and wake the actor, or say why not. Never blocks."""
        if self.phase is Phase.PARKED or self.phase is Phase.STOPPING:
            sent = Sent.PARKED if self.phase is Phase.PARKED else Sent.STOPPED
            if not envelope.is_ask:
                self.kind.dead_letter(self.id, envelope, sent.value)
            return sent
        sent = Sent.ADMITTED
        options = self.kind.options
        bound = options.data_max if lane is Lane.DATA else options.control_max
        if not self.mailbox.put(envelope, lane, bound if is_bounded else inf):
            if not self._make_room(envelope, lane):
                self.kind.counters.overloaded += 1
                return Sent.OVERLOADED
            sent = Sent.CONFLATED
            self.mailbox.put(envelope, lane)
        self.wake()
        return sent

    def _make_room(self, envelope: Envelope[object], lane: Lane) -> bool:
        if lane is not Lane.DATA or envelope.conflate_key is None:
            return False
        older = self.mailbox.take_oldest(envelope.conflate_key)
        if older is None:
            return False
        self.kind.counters.conflated += 1
        older.fail_if_open(SupersededError("a newer message replaced it in a full mailbox"))
        return True

    def wake(self) -> None:
        """Wake the actor's task if it waits for a message."""
        task = self._waiting
        if task is not None:
            self._waiting = None
            trio.lowlevel.reschedule(task)

    # Living.

    async def live(self) -> bool:
        """Run one life: load, then handle messages until passivated, stopped or failed.

        Returns:
            Whether the supervisor is to run another life.
        """
        async with trio.open_nursery() as self.nursery:
            if self.strikes is not None and self.strikes.pause_s:
                await trio.sleep(self.strikes.pause_s)
            behaviour = await self._load()
            if behaviour is not None:
                await self._serve(behaviour)
            self.nursery.cancel_scope.cancel()
        self.nursery = None
        return self.phase is Phase.LOADING

    async def _load(self) -> Behaviour[object, object] | None:
        failure: BaseExceptionGroup[BaseException]
        try:
            behaviour = self.kind.factory(self)
            await behaviour.load()
            self.snapshot = behaviour.snapshot()
        except* Exception as group:  # noqa: BLE001  the supervision policy decides
            failure = group
        else:
            if self.phase is not Phase.LOADING:
                return None
            self.phase = Phase.ACTIVE
            self.reason = None
            self._behaviour = behaviour
            self.kind.counters.activations += not self.was_active
            self.was_active = True
            return behaviour
        if self.phase is Phase.LOADING:
            self._load_failed(*classify_failure(failure))
        return None

    async def _serve(self, behaviour: Behaviour[object, object]) -> None:
        turns = 0
        while self.phase is Phase.ACTIVE:
            envelope = self.mailbox.take()
            if envelope is not None:
                await self._turn(behaviour, envelope)
                turns += 1
                if turns % TURNS_PER_SLICE == 0:
                    await trio.lowlevel.checkpoint()
            elif self._passivate_asked and self._owes_nothing():
                self.leave()
            else:
                await self._wait()

    async def _wait(self) -> None:
        """Wait for a message, or for a stop."""
        if self.idle is not None and not self._has_helpers():
            self.idle.set()
            self.idle = None
        self._waiting = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._stop_waiting)

    def _stop_waiting(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._waiting = None
        return trio.lowlevel.Abort.SUCCEEDED

    async def _turn(self, behaviour: Behaviour[object, object], envelope: Envelope[object]) -> None:
        kind = self.kind
        counters = kind.counters
        started = kind.now()
        counters.wait.add(started - envelope.enqueued_at)
        if not self._is_wanted(envelope, started):
            return
        self.current = envelope
        failure: BaseExceptionGroup[BaseException] | None = None
        try:
            await behaviour.handle(envelope)
            self.snapshot = behaviour.snapshot()
        except* Exception as group:  # noqa: BLE001  the supervision policy decides
            failure = group
        counters.handled += 1
        ended = self.last_active = kind.now()
        counters.handle.add(ended - started)
        self.current = None
        if failure is not None:
            self._turn_failed(envelope, *classify_failure(failure))
            return
        if self.strikes is not None:
            self.strikes.calm()
        if envelope.is_ask and not envelope.answered and envelope.awaited:
            if self.held is None:
                self.held = {}
            envelope.hold_in(self.held)

    def _is_wanted(self, envelope: Envelope[object], now: float) -> bool:
        if not envelope.is_ask:
            if envelope.claim is not None:
                return envelope.claim()
            return envelope.life is None or envelope.life is self.nursery
        if envelope.deadline <= now:
            self.kind.counters.expired += 1
            envelope.fail_if_open(AskTimeoutError("the deadline passed before the turn"))
            return False
        if isinstance(envelope.message, Activate):
            envelope.acknowledge()
            return False
        return True

    # Failing.

    def _turn_failed(self, envelope: Envelope[object], verdict: Verdict, error: Exception) -> None:
        """Answer the message of the turn or put it back, then reload, restart or park."""
        if self.phase is not Phase.ACTIVE:
            envelope.fail_if_open(TurnLostError("the actor stopped"))
            if not envelope.is_ask:
                self.kind.dead_letter(self.id, envelope, "stopped")
        elif verdict is Verdict.CRASH:
            self._log_failure("actor_crashed", error, envelope)
            envelope.fail_if_open(TurnLostError(f"the actor crashed: {type(error).__name__}"))
            if not envelope.is_ask:
                self.kind.dead_letter(self.id, envelope, "crash")
            self._strike(error)
        else:
            if not isinstance(error, SightlineError | ReloadRequestedError):
                self._log_failure("dependency_failed", error, envelope)
            self._settle(envelope, verdict, error)
            self.kind.counters.reloads += 1
            self._forget_memory()
            self._get_strikes().note_reload()

    def _settle(self, envelope: Envelope[object], verdict: Verdict, error: Exception) -> None:
        """Answer an ask with what is known, or put the message back to be handled after the load."""
        if envelope.is_ask:
            may_retry = isinstance(error, ReloadRequestedError) and error.retry and not envelope.answered
            if may_retry and envelope.retries < RELOAD_RETRIES_MAX:
                self._put_back(envelope)
            elif verdict is not Verdict.RELOAD and isinstance(error, SightlineError):
                envelope.fail_if_open(error)
            else:
                envelope.fail_if_open(TurnLostError(f"the turn failed: {type(error).__name__}: {error}"))
        elif envelope.claim is not None:
            pass  # load() sets the timers again
        elif envelope.retries < self.kind.options.tell_retries_max:
            self._put_back(envelope)
        else:
            self.kind.dead_letter(self.id, envelope, verdict.name.lower())

    def _put_back(self, envelope: Envelope[object]) -> None:
        envelope.retries += 1
        # A helper's outcome that had its turn is handled first by the next life, which undoes what it acquired.
        envelope.life = None
        self.mailbox.put_back(envelope)

    def _load_failed(self, verdict: Verdict, error: Exception) -> None:
        """Refuse the waiting asks; retry the load while the actor was in use or tells wait for it."""
        if verdict is Verdict.CRASH:
            self._log_failure("actor_load_failed", error, None)
            self._strike(error)
            return
        if not isinstance(error, SightlineError | ReloadRequestedError):
            self._log_failure("dependency_failed", error, None)
        self.kind.counters.load_failures += 1
        self._forget_memory()
        self._get_strikes().note_reload()
        self.reason = _reason_of(error)
        refused = error if isinstance(error, UnavailableError) else UnavailableError(f"not loaded: {error}")
        for envelope in self.mailbox.take_asks():
            envelope.fail_if_open(refused)
        if not self.was_active and not len(self.mailbox):
            self.phase = Phase.LEFT

    def _strike(self, error: Exception) -> None:
        """Count a crash, then restart with backoff or park."""
        self._forget_memory()
        if self._get_strikes().note_crash(self.kind.now()):
            self.kind.counters.restarts += 1
            return
        self.phase, self.reason = Phase.PARKED, _reason_of(error)
        pause_s = parked_pause_s(error, self.parkings, self.kind.rng)
        self.retry_at = None if pause_s is None else self.kind.now() + pause_s
        self.kind.log().error("actor_parked", kind=self.kind.name, id=self.id, reason=self.reason)
        self.turn_everything_away()

    def _get_strikes(self) -> Strikes:
        if self.strikes is None:
            self.strikes = Strikes(self.kind.options, self.kind.rng)
        return self.strikes

    def _log_failure(self, event: str, error: Exception, envelope: Envelope[object] | None) -> None:
        message = type(envelope.message).__name__ if envelope is not None else None
        name = type(error).__name__
        self.kind.log().error(event, kind=self.kind.name, id=self.id, message=message, error=name, exc_info=error)

    def _forget_memory(self) -> None:
        """Drop what the next life makes for itself."""
        self.phase = Phase.LOADING
        self.snapshot = self._behaviour = None
        self.timers.cancel_all(self.ref)
        self._lose_turns("the actor was loaded again before the answer")

    def _lose_turns(self, why: str) -> None:
        """Tell the askers whose turn has begun that the outcome is unknown."""
        current, self.current = self.current, None
        held, self.held = self.held, None
        for envelope in [*((current,) if current is not None else ()), *(held or ())]:
            envelope.fail_if_open(TurnLostError(why))

    # Leaving.

    @property
    def is_running(self) -> bool:
        """Whether the task is doing anything but waiting for a message."""
        return self._waiting is None and self.phase is not Phase.PARKED

    @property
    def is_resting(self) -> bool:
        """Whether the task waits for a message, of which there is none, and no helper runs."""
        return self._waiting is not None and not self._has_helpers()

    @property
    def is_busy(self) -> bool:
        """Whether a turn, a load or a helper is in progress."""
        return self.is_running or self._has_helpers()

    @property
    def is_quiet(self) -> bool:
        """Whether the actor is loaded and has no message, turn, helper or unanswered ask."""
        return self.phase is Phase.ACTIVE and not self.is_busy and not len(self.mailbox) and not self.held

    @property
    def helpers(self) -> int:
        """How many helpers run."""
        return len(self.nursery.child_tasks) if self.nursery is not None else 0

    @property
    def owes_answers(self) -> bool:
        """Whether a message waits or is being handled, or an asker waits for the end of a helper."""
        return self.current is not None or bool(self.held) or len(self.mailbox) > 0

    def _has_helpers(self) -> bool:
        return self.nursery is not None and bool(self.nursery.child_tasks)

    def _owes_nothing(self) -> bool:
        return not self.held and not self._has_helpers()

    def leave(self) -> None:
        """Passivate: return from the task. The caller has checked that the actor is quiet."""
        self.kind.counters.passivations += 1
        self.phase = Phase.LEFT
        self.wake()

    def may_passivate(self) -> bool:
        """Ask the behaviour; an actor whose behaviour fails to answer stays."""
        assert self._behaviour is not None
        try:
            return self._behaviour.may_passivate()
        except Exception as error:  # noqa: BLE001  a bug in one actor must not end the sweep
            self._log_failure("may_passivate_failed", error, None)
            return False

    def idle_event(self) -> trio.Event:
        """Set when the actor next becomes idle, or has ended."""
        if self.idle is None:
            self.idle = trio.Event()
        return self.idle

    def begin_stop(self) -> None:
        """Refuse messages, answer those that wait, and cancel helpers; a turn in progress continues."""
        if self.phase is Phase.PARKED:
            return
        self.phase = Phase.STOPPING
        self.timers.cancel_all(self.ref)
        self._turn_mail_away()
        self.wake()

    def cancel(self) -> None:
        """Cancel the turn or load in progress."""
        if self.nursery is not None:
            self.nursery.cancel_scope.cancel()

    def end(self) -> None:
        """Answer or dead-letter all that is left when the task ends."""
        if self.phase is not Phase.PARKED:
            self.phase = Phase.LEFT
        # The behaviour refers to its cell. Without this, both wait for a full garbage collection, which is rare.
        self._behaviour = None
        if self.current is not None and not self.current.is_ask:
            self.kind.dead_letter(self.id, self.current, "cancelled")
        self.turn_everything_away()
        if self.idle is not None:
            self.idle.set()

    def turn_everything_away(self) -> None:
        """Fail pending asks; dead-letter pending tells."""
        self._turn_mail_away()
        self._lose_turns("the turn was cancelled, or the actor stopped before the answer")

    def _turn_mail_away(self) -> None:
        parked = self.phase is Phase.PARKED
        for envelope in self.mailbox.take_all():
            if not envelope.is_ask:
                self.kind.dead_letter(self.id, envelope, "parked" if parked else "stopped")
            elif parked:
                envelope.fail_if_open(ActorParkedError(self.reason or ""))
            else:
                envelope.fail_if_open(stopped(self.kind.name, self.id))


def _reason_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]
