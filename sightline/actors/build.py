"""Builds and runs the actors of one process: the kernel, every kind of actor, and the services beside them.

The server, the simulator, the test worlds and the bench build their actors here: what is tested is what runs.
"""

from typing import final

import trio

from sightline.actors.deps import DISPATCHER, SESSION, WORKSPACE, Deps
from sightline.actors.dispatch.actor import DispatcherActor
from sightline.actors.kernel import KernelLog, KernelOptions, KindOptions, Registry, Wire
from sightline.actors.other_servers import OtherServers
from sightline.actors.service.broker import Broker
from sightline.actors.session.actor import SessionActor
from sightline.actors.session.media_pump import MediaPump
from sightline.actors.traced import TracedTurns, traced
from sightline.actors.workspace.actor import WorkspaceActor
from sightline.actors.workspace.heartbeat_writer import HeartbeatWriter
from sightline.domain.value import Value
from sightline.ports.tracing import Tracer


@final
class Actors(Value, kw_only=True):
    """The actors of one process and the services beside them. `run` starts them; `close` drains and stops them."""

    deps: Deps
    registry: Registry
    writer: HeartbeatWriter
    pump: MediaPump
    broker: Broker
    others: OtherServers

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until `close` or cancellation. Reports started when `others` does."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.registry.run)
            nursery.start_soon(self.writer.run)
            nursery.start_soon(self.pump.run)
            await nursery.start(self.others.run)
            task_status.started()
            await self.registry.wait_closed()
            nursery.cancel_scope.cancel()

    async def close(self, *, drain_s: float) -> bool:
        """Stop accepting work, let accepted work finish for `drain_s` seconds, then cancel the rest.

        Returns:
            Whether everything finished in time.
        """
        return await self.registry.close(drain_s=drain_s)


def build_actors(
    deps: Deps,
    others: OtherServers,
    *,
    options: KernelOptions | None = None,
    wire: Wire | None = None,
    log: KernelLog | None = None,
    tracer: Tracer | None = None,
) -> Actors:
    """Build every kind of actor and the services beside them; nothing runs yet.

    Args:
        options: Limits of the kernel.
        wire: Carries the tells between actors, for a simulation that delays or duplicates them.
        log: Receives the kernel's log events.
        tracer: Records the turns of asks; None adds nothing to a turn.
    """
    turns = None if tracer is None else TracedTurns(tracer)
    on_ask = None if turns is None else turns.note_ask
    registry = Registry(
        clock=deps.clock, rng=deps.rng, options=options, wire=wire, log=log, owns=deps.owned.owns,
        admits=deps.owned.admits, on_ask=on_ask, remote=others.remote,
    )  # fmt: skip
    others.attach(registry, deps)
    writer = HeartbeatWriter(deps.store)
    sessions = traced(turns, SESSION, lambda context: SessionActor(context, deps))
    registry.register(SESSION, sessions, KindOptions(asks_others=True))
    registry.register(WORKSPACE, traced(turns, WORKSPACE, lambda context: WorkspaceActor(context, deps, writer)))
    # Every workspace tells the dispatcher each change of its availability.
    dispatcher = KindOptions(data_max=4_096, control_max=65_536)
    registry.register(DISPATCHER, traced(turns, DISPATCHER, lambda context: DispatcherActor(context, deps)), dispatcher)
    return Actors(
        deps=deps,
        registry=registry,
        writer=writer,
        pump=MediaPump(deps, registry),
        broker=Broker(registry, deps, others),
        others=others,
    )
