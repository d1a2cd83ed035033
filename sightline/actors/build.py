"""Builds and runs the actors of one process: the kernel, every kind of actor, and the services beside them.

The server, the simulator, the test worlds and the bench build their actors here: what is tested is what runs.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final, final

import structlog
import trio

from sightline.actors.deps import DISPATCHER, SESSION, WORKSPACE, Deps
from sightline.actors.dispatch.actor import DispatcherActor
from sightline.actors.kernel import KernelLog, KernelOptions, KindOptions, Registry, Wire
from sightline.actors.messages import FactsMissed, GetSession, GetWorkspace
from sightline.actors.recovery import recover
from sightline.actors.remote.live_updates import StreamsElsewhere
from sightline.actors.remote.peers import Peers
from sightline.actors.remote.seen_reports import SeenReports
from sightline.actors.service.broker import Broker
from sightline.actors.service.look_up import LookUp
from sightline.actors.session.actor import SessionActor
from sightline.actors.session.media_pump import MediaPump
from sightline.actors.traced import TracedTurns, traced
from sightline.actors.watchers import Watchers
from sightline.actors.workspace.actor import WorkspaceActor
from sightline.actors.workspace.heartbeat_writer import HeartbeatWriter
from sightline.domain.session.model import Live
from sightline.ports.tracing import Tracer

log: Final = structlog.get_logger("sightline.actors")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Actors:
    """The actors of one process and the services beside them. `run` starts them; `close` drains and stops them."""

    deps: Deps
    registry: Registry
    writer: HeartbeatWriter
    pump: MediaPump
    broker: Broker

    peers: Peers | None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until `close` or cancellation.

        Reports started when everything unfinished has been recovered once; one of several servers starts with no actor
        and recovers each shard when it takes it.
        """
        async with trio.open_nursery() as nursery:
            await nursery.start(self.registry.run)
            nursery.start_soon(self.writer.run)
            nursery.start_soon(self.pump.run)
            if self.peers is None:
                await nursery.start(recover, self.deps.store, self.registry)
            else:
                await nursery.start(self.peers.run)
                nursery.start_soon(SeenReports(self.registry, self.deps).run)
                streams = self.deps.watchers.elsewhere = StreamsElsewhere(self.deps.watchers, self.peers)
                nursery.start_soon(streams.run)
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
    *,
    options: KernelOptions | None = None,
    wire: Wire | None = None,
    log: KernelLog | None = None,
    tracer: Tracer | None = None,
    peers: Peers | None = None,
) -> Actors:
    """Build every kind of actor and the services beside them; nothing runs yet.

    Args:
        options: Limits of the kernel.
        wire: Carries the tells between actors, for a simulation that delays or duplicates them.
        log: Receives the kernel's log events.
        tracer: Records the turns of asks; None adds nothing to a turn.
        peers: The other servers, if this is one of several.
    """
    turns = None if tracer is None else TracedTurns(tracer)
    on_ask = None if turns is None else turns.note_ask
    registry = Registry(
        clock=deps.clock, rng=deps.rng, options=options, wire=wire, log=log, owns=deps.owned.owns,
        admits=deps.owned.admits, on_ask=on_ask, remote=peers,
    )  # fmt: skip
    if peers is not None:
        peers.on_loss = partial(_read_again, registry, deps.watchers)
        look_up = LookUp(registry, deps)
        peers.answer_quietly(GetSession, look_up.quiet_session)
        peers.answer_quietly(GetWorkspace, look_up.quiet_workspace)
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
        broker=Broker(registry, deps, peers),
        peers=peers,
    )


def _read_again(registry: Registry, watchers: Watchers, server: str) -> None:
    """Messages of a server may be lost: LIVE sessions of its operators, and streams, read what is recorded."""
    watchers.wake_all()
    reloaded = 0
    for session_id, session in registry.snapshots(SESSION):
        if isinstance(session.phase, Live) and registry.peek(WORKSPACE, session.phase.operator.workspace_id) is None:
            registry.ref(SESSION, session_id).tell(FactsMissed(), conflate_key="missed")
            reloaded += 1
    if reloaded:
        log.warning("live_sessions_reloaded", sessions=reloaded, server=server)
