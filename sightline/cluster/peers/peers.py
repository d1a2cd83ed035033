"""The other servers of the service, as the actors of this one reach them.

Messages to actors that another server owns are gathered for the time of one scheduler pass and sent as one frame. What
a sender may conclude:

| what happens | an ask | a tell |
|---|---|---|
| the receiver does not own the actor (`MOVED`), or does not exist | is sent to the next owner | the same |
| no owner is known for `HOLD_S` | UnavailableError: it had no effect | is lost, and logged |
| the receiver ended after that, or frames were lost | OutcomeUnknownError; a question is asked again | may be lost |
| no answer until the deadline | AskTimeoutError | |
| the bus is not connected | UnavailableError | is lost |

A frame that cannot be decoded or handled is logged and counted (`PeerCounts.refused`); nothing else happens. The bus
has made sure that a server of this service sent it, but that may be of a newer version, or have a bug.

That a frame was not delivered is what the NATS server says, or somebody who pretends to be it. What is sent again to
the same server therefore names its first frame, and the receiver drops it if it has that one.

A server that misses a frame of another one, or sees it end, calls `on_loss`: facts about LIVE sessions may be missing.
"""

from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import Any, Final, TypeVar, cast, final

import structlog
import trio
from msgspec import Struct, field

from sightline.actors.kernel import (
    ActorElsewhereError,
    ActorStoppedError,
    Command,
    Envelope,
    KindName,
    Lane,
    Registry,
    Sent,
)
from sightline.actors.messages import (
    BeginDispatch,
    CheckClaim,
    CountCells,
    CountOperators,
    GetConduct,
    GetSession,
    GetWorkspace,
    HasOperator,
    PickOperator,
    ShardsReleased,
    ShardsTaken,
)
from sightline.actors.shards import shard_of
from sightline.cluster.peers import codec
from sightline.cluster.peers.codec import NotPortableError, Packed
from sightline.cluster.peers.frame_numbers import FrameNumbers
from sightline.cluster.routes import Routes
from sightline.domain.errors import OutcomeUnknownError, UnavailableError
from sightline.ports.bus import Bus, Interrupted, Received, Undelivered

M = TypeVar("M")
R = TypeVar("R")

ASKS_MAX: Final = 16_384
"""Asks in flight to other servers."""
HELD_MAX: Final = 4_096
"""Messages that wait until the owner of their actor is known."""
HOLD_S: Final = 3.0
SWEEP_EVERY_S: Final = 0.25
HOPS_MAX: Final = 3
"""How often a tell is passed on by servers that do not own its actor."""
SENT_KEPT: Final = 4_096
"""Frames that are kept for the case that they are not delivered."""
LOG_EVERY_S: Final = 10.0
"""Least time between two log lines about frames that were refused for one reason."""
LEFT_MS_MAX: Final = 600_000
"""The longest time that an ask of another server may leave for its answer."""
FRAME_ITEMS_MAX: Final = 256

ASK, TELL, ANSWER, ERROR, MOVED, SERVER_ASK, SERVER_TELL = range(7)
"""Kinds of items in a frame."""

QUESTIONS: Final = frozenset(
    {
        GetSession,
        GetWorkspace,
        CheckClaim,
        CountOperators,
        HasOperator,
        CountCells,
        GetConduct,
        PickOperator,
        BeginDispatch,
    }
)
"""Commands that may be handled twice: they change nothing, or only a reservation that expires."""

log = structlog.get_logger("sightline.peers")


@final
class _Message(Struct, eq=False):
    """A message to an actor of another server, until it is sent, and an ask until it is answered."""

    kind: str
    actor_id: str
    envelope: Envelope[object]
    lane: Lane
    payload: Packed
    hops: int = 0
    number: int = 0
    """Of an ask."""
    sent_to: str | None = None
    undelivered: tuple[str, int] | None = None
    """The server that is said not to have got it, and the number of that frame."""
    held_until: float = 0.0


@final
class _Question(Struct, eq=False):
    """An ask to a server itself, until it is answered."""

    server: str
    is_done: trio.Event = field(default_factory=trio.Event)
    value: Any = None
    error: Exception | None = None

    def answer(self, value: Any) -> None:
        """Wake the asker with the answer."""
        self.value = value
        self.is_done.set()

    def fail(self, error: Exception) -> None:
        """Wake the asker with an error."""
        self.error = error
        self.is_done.set()


@final
class PeerCounts(Struct):
    """What was sent and received since the start; for metrics."""

    frames_sent: int = 0
    frames_received: int = 0
    messages_sent: int = 0
    messages_received: int = 0
    moved: int = 0
    lost_frames: int = 0
    held_too_long: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """Frames and parts of frames that were not understood or not handled, by reason."""


@final
class Peers:
    """Sends messages to actors and services of other servers, and answers theirs. Implements the kernel's `Remote`."""

    def __init__(self, bus: Bus, routes: Routes, *, questions: Collection[type] = QUESTIONS) -> None:
        """Create the peers of a server.

        Args:
            questions: Commands that may be handled twice.
        """
        self._bus = bus
        self._repeatable = frozenset(questions)
        self.routes = routes
        self.counts = PeerCounts()
        self.on_loss: Callable[[str], None] = lambda _: None
        """Called with a server of which messages may be lost."""
        self.on_stale: Callable[[], None] = lambda: None
        """Called when the routes are found to be outdated."""
        self._registry: Registry | None = None
        self.serves: Callable[[str], bool] = lambda _: False
        """Whether this server owns an actor and holds a valid lease."""
        self._nursery: trio.Nursery | None = None
        self._numbers = 0
        self._asks: dict[int, _Message] = {}
        self._questions: dict[int, _Question] = {}
        self._due: dict[str, list[tuple[Packed, _Message | None]]] = {}
        """Items that are to be sent, by server."""
        self._held: list[_Message] = []
        self._was_interrupted = False
        self._to_sweep = trio.Event()
        self._wakeup = trio.Event()
        self._frames = FrameNumbers()
        self._logged_at: dict[str, float] = {}
        self._sent: OrderedDict[int, tuple[str, int, list[_Message], list[_Question]]] = OrderedDict()
        self._quiet_answers: dict[int, Callable[[str], object | None]] = {}
        self._answers: dict[type, Callable[[Any], Awaitable[object]]] = {}
        self._listeners: dict[type, Callable[[str, Any], None]] = {}
        self.listen(ShardsTaken, lambda sender, taken: self.routes.took(sender, taken.shards))
        self.listen(ShardsReleased, lambda _sender, _released: self.on_stale())

    def attach(self, registry: Registry, serves: Callable[[str], bool]) -> None:
        """Deliver messages of other servers to the actors of this registry. Call it before `run`.

        Args:
            serves: Whether this server owns the actor and holds a valid lease.
        """
        self._registry = registry
        self.serves = serves

    @property
    def is_connected(self) -> bool:
        """Whether other servers can be reached."""
        return self._bus.is_connected

    # Actors of other servers.

    def forward(self, kind: str, actor_id: str, envelope: Envelope[object], lane: Lane) -> Sent:
        """Send a message to the actor's owner; see `Remote`."""
        if len(self._asks) >= ASKS_MAX:
            return Sent.OVERLOADED
        try:
            payload = codec.pack(envelope.message)
        except NotPortableError:
            return Sent.ELSEWHERE
        message = _Message(kind, actor_id, envelope, lane, payload)
        if envelope.is_ask:
            message.number = self._next_number()
            self._asks[message.number] = message
            self._to_sweep.set()
        self._route(message)
        return Sent.ADMITTED

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _route(self, message: _Message) -> None:
        """Send a message to the owner of its actor; hold it while none is known."""
        if message.envelope.is_ask and message.number not in self._asks:
            return  # answered or delivered meanwhile; a question may be on two ways at once
        owner = self.routes.owner_of(message.actor_id)
        if owner is None:
            self._hold(message)
        elif owner != self.routes.me:
            self._post(owner, message)
        elif self._takes(message.kind, message.actor_id):
            self._deliver(message)
        else:
            self._hold(message)

    def _takes(self, kind: str, actor_id: str) -> bool:
        """Whether new messages for the actor are handled here: its shard is owned, and not about to be given up."""
        assert self._registry is not None
        return self.serves(actor_id) and self._registry.takes(kind, actor_id)

    def _hold(self, message: _Message) -> None:
        now = trio.current_time()
        message.sent_to = None
        message.held_until = message.held_until or now + HOLD_S
        if now >= message.held_until or len(self._held) >= HELD_MAX:
            self._give_up(message)
        else:
            self._held.append(message)
            self._to_sweep.set()
            self.on_stale()

    def _give_up(self, message: _Message) -> None:
        self.counts.held_too_long += 1
        self._asks.pop(message.number, None)
        if message.envelope.is_ask:
            message.envelope.fail_if_open(UnavailableError("no server serves this now"))
        else:
            name = type(message.envelope.message).__name__
            log.warning("message_without_owner", kind=message.kind, id=message.actor_id, message=name)

    def _deliver(self, message: _Message) -> None:
        """This server has become the owner."""
        assert self._registry is not None
        if message.envelope.is_ask and self._asks.pop(message.number, None) is None:
            return  # answered, given up or delivered
        ref = self._registry.ref(KindName[Any, Any](message.kind), message.actor_id)
        sent = ref.receive(message.envelope, message.lane)
        if message.envelope.is_ask and sent not in (Sent.ADMITTED, Sent.CONFLATED):
            message.envelope.fail_if_open(UnavailableError(f"the actor is {sent}"))

    def _post(self, owner: str, message: _Message) -> None:
        envelope = message.envelope
        conflate = cast("Packed", envelope.conflate_key)
        is_control = message.lane is Lane.CONTROL
        item: list[Packed]
        if envelope.is_ask:
            left_ms = int((envelope.deadline - trio.current_time()) * 1_000)
            if left_ms <= 0 or not envelope.awaited:
                self._asks.pop(message.number, None)
                return
            item = [ASK, message.number, message.kind, message.actor_id, is_control, conflate, left_ms]
        else:
            item = [TELL, message.kind, message.actor_id, is_control, conflate, message.hops]
        undelivered = message.undelivered
        item += [message.payload, undelivered[1] if undelivered is not None and undelivered[0] == owner else 0]
        message.sent_to = owner
        self._queue(owner, item, message)

    def _queue(self, server: str, item: Packed, message: _Message | None = None) -> None:
        self._due.setdefault(server, []).append((item, message))
        self._wakeup.set()

    # Other servers themselves.

    async def ask(self, server: str, command: Command[M, R], *, timeout_s: float) -> R:
        """Ask a service of another server, which it registered by `answer`.

        Raises:
            UnavailableError: It surely had no effect.
            OutcomeUnknownError: No answer in time, or the server has ended.
        """
        number, question = self._next_number(), _Question(server)
        self._questions[number] = question
        try:
            self._queue(server, [SERVER_ASK, number, int(timeout_s * 1_000), codec.pack(command)])
            with trio.move_on_after(timeout_s):
                await question.is_done.wait()
                if question.error is not None:
                    raise question.error
                return cast("R", question.value)
        finally:
            del self._questions[number]
        raise OutcomeUnknownError("another server did not answer in time")

    def tell(self, server: str, message: object) -> None:
        """Send a message to one server; it may be lost."""
        self._queue(server, [SERVER_TELL, codec.pack(message)])

    def tell_all(self, message: object) -> None:
        """Send a message to every other server that is known; it may be lost."""
        item = [SERVER_TELL, codec.pack(message)]
        for server in sorted(self.routes.others):
            self._queue(server, item)

    def answer(self, command: type[Command[M, R]], handler: Callable[[M], Awaitable[R]]) -> None:
        """Answer asks of other servers by this handler."""
        self._answers[command] = cast("Callable[[Any], Awaitable[object]]", handler)

    def answer_quietly(self, question: type[Command[M, R]], read: Callable[[str], R]) -> None:
        """Answer questions of this class to actors by what `read` returns for their id, without a turn of the actor.

        This takes a fraction of the time of a turn, and no place in a mailbox. None: the actor is asked.
        """
        self._quiet_answers[codec.number_of(question)] = read

    def announce(self, shards: Collection[int]) -> None:
        """Tell every other server that this one has taken shards."""
        self.tell_all(ShardsTaken(tuple(shards)))

    def listen(self, message: type[M], handler: Callable[[str, M], None]) -> None:
        """Call the handler with the sender and each message of this type."""
        self._listeners[message] = handler

    # Running.

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send and receive until cancelled."""
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._send_forever)
            self._nursery.start_soon(self._sweep_forever)
            self._nursery.start_soon(self._follow_routes)
            task_status.started()
            while True:
                match await self._bus.receive():
                    case Received(frame=frame, sender=sender):
                        self._take(frame, sender)
                    case Undelivered(serial=serial):
                        self._take_back(serial)
                    case Interrupted():
                        self._was_interrupted = True
                        self._to_sweep.set()
                        for server in sorted({*self._asked_servers()}):
                            self._doubt(server)

    async def _send_forever(self) -> None:
        while True:
            await self._wakeup.wait()
            self._wakeup = trio.Event()
            due, self._due = self._due, {}
            for server, items in due.items():
                for start in range(0, len(items), FRAME_ITEMS_MAX):
                    self._send(server, items[start : start + FRAME_ITEMS_MAX])

    def _send(self, server: str, items: list[tuple[Packed, _Message | None]]) -> None:
        number = self._frames.next_to(server)
        frame = codec.encode([self.routes.wire_to(server), number, [item for item, _ in items]])
        if len(frame) > self._bus.frame_max and len(items) > 1:
            self._send(server, items[: len(items) // 2])
            self._send(server, items[len(items) // 2 :])
            return
        # Also if it cannot be sent: answers in it are lost then, which the receiver must notice.
        self._frames.sent(server)
        messages = [message for _, message in items if message is not None]
        serial = self._bus.send(server, frame) if len(frame) <= self._bus.frame_max else None
        if serial is None:
            self._fail_unsent(items)
            return
        self.counts.frames_sent += 1
        self.counts.messages_sent += len(items)
        asked = [item[1] for item, _ in items if item[0] == SERVER_ASK]
        questions = [self._questions[ask] for ask in asked if ask in self._questions]
        self._sent[serial] = (server, number, messages, questions)
        if len(self._sent) > SENT_KEPT:
            self._sent.popitem(last=False)

    def _fail_unsent(self, items: list[tuple[Packed, _Message | None]]) -> None:
        error = UnavailableError("the server that serves this cannot be reached")
        for item, message in items:
            if message is not None and message.envelope.is_ask:
                self._asks.pop(message.number, None)
                message.envelope.fail_if_open(error)
            elif item[0] == SERVER_ASK and (question := self._questions.get(item[1])) is not None:
                question.fail(error)

    def _take_back(self, serial: int) -> None:
        """A frame was not delivered, because its receiver has ended or is not connected.

        Hold its messages until the routes are read again: the receiver may own their actors still.
        """
        server, number, messages, questions = self._sent.pop(serial, ("", 0, [], []))
        if not server:
            self._refuse("undelivered", "unknown", f"frame {serial} was not sent, or is too old")
            return
        for question in questions:
            question.fail(UnavailableError("the server has ended, or is not connected"))
        for message in messages:
            # An ask may have been sent to another server, or be held, since.
            if not message.envelope.is_ask or (message.number in self._asks and message.sent_to == server):
                message.undelivered = (server, number)
                self._hold(message)
        self._doubt(server)
        self.on_stale()

    async def _follow_routes(self) -> None:
        """Send held messages when an owner is known; give up what was asked of servers that have ended."""
        known = self.routes.others
        while True:
            await self.routes.changed.wait()
            held, self._held = self._held, []
            for message in held:
                self._route(message)
            ended, known = known - self.routes.others, self.routes.others
            for server in sorted(ended):
                self._server_ended(server)
            self._ask_new_owners()

    def _ask_new_owners(self) -> None:
        """Ask questions again whose actor has another owner now: the earlier one may be cut off."""
        for message in tuple(self._asks.values()):
            owner = self.routes.owner_of(message.actor_id)
            is_moved = message.sent_to is not None and owner is not None and owner != message.sent_to
            if is_moved and type(message.envelope.message) in self._repeatable:
                message.sent_to = None
                self._route(message)

    def _asked_servers(self) -> Iterator[str]:
        """Servers of which answers are expected."""
        yield from (message.sent_to for message in self._asks.values() if message.sent_to is not None)
        yield from (question.server for question in self._questions.values())

    def _doubt(self, server: str) -> None:
        """Stop waiting for answers of a server, because an ask or its answer may be lost."""
        for message in [each for each in self._asks.values() if each.sent_to == server]:
            if type(message.envelope.message) in self._repeatable:
                message.sent_to = None
                self._route(message)
            else:
                del self._asks[message.number]
                message.envelope.fail_if_open(OutcomeUnknownError("the answer of another server may be lost"))
        for question in self._questions.values():
            if question.server == server:
                question.fail(OutcomeUnknownError("the answer of another server may be lost"))

    def _server_ended(self, server: str) -> None:
        self._doubt(server)
        self.on_loss(server)

    async def _sweep_forever(self) -> None:
        while True:
            if not (self._was_interrupted or self._held or self._asks):
                self._to_sweep = trio.Event()
                await self._to_sweep.wait()
            await trio.sleep(SWEEP_EVERY_S)
            if self._was_interrupted and self._bus.is_connected:
                self._was_interrupted = False
                for server in sorted(self.routes.others):
                    # An empty frame: its number tells the receiver whether it missed one.
                    self._send(server, [])
            held, self._held = self._held, []
            for message in held:
                self._route(message)
            for number in [number for number, each in self._asks.items() if not each.envelope.awaited]:
                del self._asks[number]

    # Receiving.

    def _take(self, frame: bytes, sender: str) -> None:
        try:
            wire, number, items = codec.decode(frame)
            if wire not in self.routes.wire:
                self._refuse("version", sender, f"wire version {wire!r}; this server speaks {self.routes.wire}")
                return
            self._count(sender, number, items)
            for item in items:
                self._take_item(sender, item)
        except Exception as error:  # noqa: BLE001  one bad frame must not end the server
            self._refuse("frame", sender, error)

    def _count(self, sender: str, number: int, items: list[Packed]) -> None:
        self.counts.frames_received += 1
        self.counts.messages_received += len(items)
        expected = self._frames.take(sender, number) if number else None
        if expected is not None:
            self.counts.lost_frames += 1
            log.warning("frames_lost", sender=sender, expected=expected, received=number)
            self._doubt(sender)
            self.on_loss(sender)

    def _refuse(self, reason: str, sender: str, error: Exception | str) -> None:
        """Count what was not understood or handled; log the first of each reason, and then one each `LOG_EVERY_S`."""
        self.counts.refused[reason] += 1
        now = trio.current_time()
        if now - self._logged_at.get(reason, float("-inf")) >= LOG_EVERY_S:
            self._logged_at[reason] = now
            total = self.counts.refused[reason]
            log.error("frame_not_understood", reason=reason, sender=sender, error=str(error)[:200], total=total)

    def _take_item(self, sender: str, item: list[Packed]) -> None:
        """Handle an item. An error of one does not affect the other items of the frame."""
        try:
            self._handle(sender, item)
        except NotPortableError as error:
            self._refuse("class", sender, error)
        except Exception as error:  # noqa: BLE001  a server of a newer version sent it, or it has a bug
            self._refuse("item", sender, error)

    def _handle(self, sender: str, item: list[Packed]) -> None:
        kind = item[0]
        if kind == ANSWER:
            self._answered(item[1], item[2])
        elif kind == TELL:
            self._told(sender, item)
        elif kind == ASK:
            if not self._frames.has(sender, item[8]) and not self._answers_quietly(sender, item):
                self._start(self._answer_ask, sender, item)
        elif kind == ERROR:
            self._failed(item[1], codec.unpack_error(item[2]))
        elif kind == MOVED:
            self._moved(sender, item[1])
        elif kind == SERVER_ASK:
            self._start(self._answer_question, sender, item)
        elif kind == SERVER_TELL:
            message = codec.unpack(item[1])
            listener = self._listeners.get(type(message))
            if listener is not None:
                listener(sender, message)

    def _start(self, work: Callable[[str, list[Packed]], Awaitable[None]], sender: str, item: list[Packed]) -> None:
        assert self._nursery is not None
        self._nursery.start_soon(self._guard, work, sender, item)

    async def _guard(
        self, work: Callable[[str, list[Packed]], Awaitable[None]], sender: str, item: list[Packed]
    ) -> None:
        try:
            await work(sender, item)
        except Exception as error:  # noqa: BLE001  the asker waits until its deadline; this server goes on
            self._refuse("ask", sender, error)

    def _answered(self, number: int, packed: Packed) -> None:
        try:
            value = codec.unpack(packed)
        except Exception as error:
            # The owner has handled the ask: its outcome is lost, and must not be taken for none.
            self._failed(number, OutcomeUnknownError(f"the answer of another version of the server: {error}"))
            raise
        message = self._asks.pop(number, None)
        if message is not None:
            if message.envelope.awaited:
                message.envelope.reply(cast("Command[Any, Any]", message.envelope.message), value)
        elif (question := self._questions.get(number)) is not None:
            question.answer(value)

    def _failed(self, number: int, error: Exception) -> None:
        message = self._asks.pop(number, None)
        if message is not None:
            message.envelope.fail_if_open(error)
        elif (question := self._questions.get(number)) is not None:
            question.fail(error)

    def _moved(self, sender: str, number: int) -> None:
        """The receiver of an ask does not own the actor: nothing has happened."""
        self.counts.moved += 1
        message = self._asks.get(number)
        if message is not None:
            self.routes.forget(shard_of(message.actor_id), sender)
            self._route(message)

    def _told(self, sender: str, item: list[Packed]) -> None:
        _, kind, actor_id, is_control, conflate, hops, payload, first_frame = item
        if self._frames.has(sender, first_frame):
            return
        envelope = Envelope(codec.unpack(payload), trio.current_time())
        envelope.conflate_key = conflate
        lane = Lane.CONTROL if is_control else Lane.DATA
        if self._takes(kind, actor_id):
            assert self._registry is not None
            self._registry.ref(KindName[Any, Any](kind), actor_id).receive(envelope, lane)
        elif hops < HOPS_MAX:
            self._route(_Message(kind, actor_id, envelope, lane, payload, hops=hops + 1))
        else:
            log.warning("message_without_owner", kind=kind, id=actor_id, message=type(envelope.message).__name__)

    def _answers_quietly(self, sender: str, item: list[Packed]) -> bool:
        number, actor_id, payload = item[1], item[3], item[7]
        read = self._quiet_answers.get(payload[0])
        value = read(actor_id) if read is not None and self.serves(actor_id) else None
        if value is None:
            return False
        self._queue(sender, [ANSWER, number, codec.pack(value)])
        return True

    async def _answer_ask(self, sender: str, item: list[Packed]) -> None:
        _, number, kind, actor_id, is_control, conflate, left_ms, payload, _first_frame = item
        assert self._registry is not None
        if not self._takes(kind, actor_id):
            self._queue(sender, [MOVED, number])
            return
        lane = Lane.CONTROL if is_control else Lane.DATA
        try:
            timeout_s = min(int(left_ms), LEFT_MS_MAX) / 1_000
            ref = self._registry.ref(KindName[Any, Any](kind), actor_id)
            command = codec.unpack(payload)
        except Exception as error:  # noqa: BLE001  a server of another version sent it
            self._refuse("ask", sender, error)
            self._queue(sender, [ERROR, number, codec.pack_error(_other_version(error))])
            return
        try:
            value = await ref.ask(command, timeout_s=timeout_s, lane=lane, conflate_key=conflate)
            answer = [ANSWER, number, codec.pack(value)]
        except (ActorElsewhereError, ActorStoppedError) as error:
            answer = self._refused_by_a_mailbox(number, (kind, actor_id), error)
        except Exception as error:  # noqa: BLE001  the asker gets the error of its ask
            answer = [ERROR, number, codec.pack_error(error)]
        self._queue(sender, answer)

    def _refused_by_a_mailbox(
        self, number: int, actor: tuple[str, str], error: ActorElsewhereError | ActorStoppedError
    ) -> Packed:
        """The answer to an ask that ended with a mailbox's error.

        If the mailbox is that of the actor itself, the ask had no effect, and its next owner may handle it. Otherwise
        this actor has asked another one in its turn, perhaps after a write: the ask must not be handled again.
        """
        if self.serves(actor[1]):
            return [ERROR, number, codec.pack_error(error)]
        if error.actor == actor:
            return [MOVED, number]
        return [
            ERROR,
            number,
            codec.pack_error(OutcomeUnknownError(f"the actor has moved, and asked another: {error}")),
        ]

    async def _answer_question(self, sender: str, item: list[Packed]) -> None:
        _, number, left_ms, payload = item
        try:
            command = codec.unpack(payload)
            handler, timeout_s = self._answers[type(command)], min(int(left_ms), LEFT_MS_MAX) / 1_000
        except Exception as error:  # noqa: BLE001  a server of another version sent it
            self._refuse("ask", sender, error)
            self._queue(sender, [ERROR, number, codec.pack_error(_other_version(error))])
            return
        try:
            with trio.fail_after(timeout_s):
                answer = [ANSWER, number, codec.pack(await handler(command))]
        except Exception as error:  # noqa: BLE001  the asker gets the error of its ask
            answer = [ERROR, number, codec.pack_error(error)]
        self._queue(sender, answer)


def _other_version(error: Exception) -> UnavailableError:
    return UnavailableError(f"the other server has another version: {error}")
