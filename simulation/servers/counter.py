"""An actor that counts. Its rows are heartbeats, so that its writes are fenced like those of an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, final

from sightline.actors.kernel import Command, Context, Envelope, KindName
from sightline.domain.errors import StoreUnavailableError
from sightline.domain.geofence import Fix
from sightline.domain.value import Value
from sightline.ports.store import Heartbeat, HeartbeatWrite

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sightline.actors.shards import OwnedShards


@final
class Add(Value, Command["Add", int]):
    """Count one more; answers the new value once it is durable."""


@final
class Get(Value, Command["Get", int]):
    """Answers the value."""


CounterMessage: TypeAlias = Add | Get
COUNTER: Final = KindName[CounterMessage, int]("counter")


@final
class Counter:
    """The actor. After a write of unknown outcome it loads again, as every actor does."""

    def __init__(
        self,
        context: Context[CounterMessage],
        owned: OwnedShards,
        load: Callable[[str], Awaitable[int]],
        write: Callable[[HeartbeatWrite], Awaitable[bool]],
    ) -> None:
        self._context = context
        self._lease = owned.lease(context.id)
        self._load = load
        self._write = write
        self._value = 0

    async def load(self) -> None:
        """Read the newest row."""
        self._value = await self._load(self._context.id)

    def snapshot(self) -> int:
        """The value."""
        return self._value

    def may_passivate(self) -> bool:
        """Always."""
        return True

    async def handle(self, envelope: Envelope[CounterMessage]) -> None:
        """Take one turn."""
        message = envelope.message
        match message:
            case Get():
                envelope.reply(message, self._value)
            case Add():
                at_ms = self._context.clock.now_ms()
                fix = Fix(lat=0.0, lng=0.0, accuracy_m=1.0, at_ms=at_ms, taken_at_ms=at_ms)
                beat = Heartbeat(workspace_id=self._context.id, sequence=self._value + 1, fix=fix, is_fresh=True)
                if not await self._write(HeartbeatWrite(self._lease, (beat,))):
                    raise StoreUnavailableError("another server owns this counter")
                self._value += 1
                envelope.reply(message, self._value)
