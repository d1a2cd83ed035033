"""Records a span for each turn that answers an ask of a traced caller. In use only when traces are on."""

from typing import Generic, TypeVar, final
from weakref import WeakKeyDictionary

from sightline.actors.kernel import Behaviour, Context, Envelope, Factory, KindName
from sightline.ports.tracing import Tracer

M = TypeVar("M")
S = TypeVar("S")


@final
class TracedTurns:
    """The spans that asks belong to, from the ask until its turn."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self._parents: WeakKeyDictionary[Envelope[object], object] = WeakKeyDictionary()

    def note_ask(self, _askee: tuple[str, str], envelope: Envelope[object]) -> None:
        """Record the asker's span; called in the asker's task."""
        parent = self.tracer.current()
        if parent is not None:
            self._parents[envelope] = parent

    def take_parent(self, envelope: Envelope[object]) -> object | None:
        """Return the asker's span."""
        return self._parents.pop(envelope, None)


def traced(turns: TracedTurns | None, kind: KindName[M, S], factory: Factory[M, S]) -> Factory[M, S]:
    """Return a factory whose behaviours record their turns; the same factory when traces are off."""
    if turns is None:
        return factory

    def make(context: Context[M]) -> Behaviour[M, S]:
        return _TracedBehaviour(factory(context), str(kind), turns)

    return make


@final
class _TracedBehaviour(Generic[M, S]):
    """A behaviour whose turns are recorded."""

    def __init__(self, inner: Behaviour[M, S], kind: str, turns: TracedTurns) -> None:
        self._inner = inner
        self._kind = kind
        self._turns = turns
        self.load = inner.load
        self.snapshot = inner.snapshot
        self.may_passivate = inner.may_passivate

    async def handle(self, envelope: Envelope[M]) -> None:
        """Handle a message."""
        parent = self._turns.take_parent(envelope)
        if parent is None:
            await self._inner.handle(envelope)
            return
        with self._turns.tracer.span(f"{self._kind} {type(envelope.message).__name__}", parent):
            await self._inner.handle(envelope)
