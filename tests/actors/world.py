"""A whole server of actors on virtual time: real kernel and actors, a store in memory that outlives kills, and ports
that refuse, lose answers or stop the process where a test says so."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from uuid import UUID

import trio

from sightline.actors.build import build_actors
from sightline.actors.deps import ActorLimits, Deps
from sightline.actors.kernel import KernelOptions
from sightline.actors.shards import OwnedShards
from sightline.actors.types import Caller, HeartbeatReport, NewSession, NewWorkspace
from sightline.actors.watchers import Watchers
from sightline.domain.errors import (
    AuthzUnavailableError,
    OutcomeUnknownError,
    RefusedError,
    StoreUnavailableError,
    VideoUnavailableError,
)
from sightline.domain.operator.machine import Patch
from sightline.domain.operator.model import Availability, WorkspaceRole
from sightline.domain.session.messages import Party
from sightline.ports.ledger import BlockApplication, BlockRef, WalletReading
from sightline.ports.relations import Staged
from sightline.ports.store import IdempotencyKey
from sightline.ports.video import MediaEvent, MediaKind, VideoInput
from simulation.adapters.no_other_servers import NoOtherServers
from simulation.memory.identity import MemoryRelations
from simulation.memory.ledger import MemoryLedger
from simulation.memory.store import MemoryStore
from tests.shards import take_every_shard

LAT, LNG = 48.137154, 11.576124
BOTH_SIDES = frozenset(Party)
WALLET = "0x" + "a" * 40
SLOW_S = 5.0


class WallClock:
    """Wall time that follows virtual time."""

    def now_ms(self):
        return 1_767_225_600_000 + round(trio.current_time() * 1000)


class CountedIds:
    """Ids in order, spread over the shards."""

    def __init__(self):
        self._count = 0

    def uuid(self):
        self._count += 1
        return str(UUID(int=(self._count * 37 % 256) << 120 | self._count, version=4))

    def token_bytes(self, count):
        return bytes(count)


@dataclass
class Faults:
    """What goes wrong at the ports: `at[name]` is a list of faults for the next calls of that name.

    refused: nothing happens and the port says so; lost: nothing happens and nobody knows; applied: it happens and
    nobody knows; slow: it happens after `SLOW_S`; late: it happens, and is answered after `SLOW_S`. `on_call` is called
    with the name of each call, before and after it.
    """

    at: dict[str, list[str]] = field(default_factory=dict)
    on_call: Callable[[str], None] = lambda _name: None

    def next(self, name):
        waiting = self.at.get(name)
        return waiting.pop(0) if waiting else None


class Port:
    """Any port, with faults."""

    def __init__(self, inner, faults, refused):
        self._inner = inner
        self._faults = faults
        self._refused = refused

    def __getattr__(self, name):
        method = getattr(self._inner, name)
        if name in {"events", "token_for", "describe_input", "is_external"}:
            return method

        async def call(*args, **kwargs):
            self._faults.on_call(f"before {name}")
            await trio.lowlevel.checkpoint()
            fault = self._faults.next(name)
            if fault == "refused":
                raise self._refused("refused by the test")
            if fault == "hang":
                await trio.sleep_forever()
            if fault == "slow":
                await trio.sleep(SLOW_S)
            result = None if fault == "lost" else await method(*args, **kwargs)
            self._faults.on_call(f"after {name}")
            await trio.sleep(SLOW_S if fault == "late" else 0)
            if fault in {"lost", "applied"}:
                raise OutcomeUnknownError("the test lost the answer")
            return result

        return call


class Video:
    """Live inputs without video."""

    def __init__(self, *, hangs=False):
        self.inputs = set()
        self.hangs = hangs
        self.asked_at = []
        self.send, self._receive = trio.open_memory_channel(1_000)

    async def create_input(self, session_id):
        self.asked_at.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        if self.hangs:
            await trio.sleep_forever()
        self.inputs.add(f"ref-{session_id}")
        return self.describe_input(session_id)

    async def reopen_input(self, session_id):
        return await self.create_input(session_id)

    def whep_url_for(self, whep_url, holder):
        return whep_url

    def describe_input(self, session_id):
        ref = f"ref-{session_id}"
        return VideoInput(ref=ref, whip_url=f"http://video/whip/{ref}", whep_url=f"http://video/whep/{ref}")

    async def close_input(self, ref):
        await trio.lowlevel.checkpoint()
        self.inputs.discard(ref)

    def events(self):
        return self._receive


class GraphApart:
    """The graph of a store in memory as a server of its own: an edge is written before the row it belongs to."""

    is_external = True

    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        return getattr(self._inner, name)

    async def stage(self, updates):
        return Staged(token=await self._inner.write(updates), undo=tuple(update.inverse() for update in updates))


class World:
    """One disk, and one server process at a time. `graph_apart`: the relations are not part of the store."""

    def __init__(self, limits=None, *, graph_apart=False, **kernel):
        self.clock, self.ids, self.ledger = WallClock(), CountedIds(), MemoryLedger()
        graph = MemoryRelations(token_key=b"t" * 32)
        self.relations = GraphApart(graph) if graph_apart else graph
        self.store = MemoryStore(relations=graph, ledger=self.ledger)
        self.faults = Faults()
        # One consumer makes many dispatches in these tests; test_dispatch_caps.py has the limit.
        # Operators say nothing between assignment and start; test_no_shows.py has what follows from it.
        self.limits = limits or ActorLimits(unstarted_dispatches_max=0, dispatch_ack_ms=0)
        self.kernel = KernelOptions(detect_ask_cycles=True, **kernel)
        self.settlements = 0
        self.video_hangs = False
        """From the next start on."""
        self._scope = None

    async def run(self, *, task_status=trio.TASK_STATUS_IGNORED):
        """Be a server until killed."""
        with trio.CancelScope() as self._scope:
            async with trio.open_nursery() as nursery:
                self.video, self.watchers = Video(hangs=self.video_hangs), Watchers()
                store = Port(self.store, self.faults, StoreUnavailableError)
                epochs = await take_every_shard(self.store, "test", "1")
                deps = Deps(
                    store=store,
                    video=Port(self.video, self.faults, VideoUnavailableError),
                    relations=Port(self.relations, self.faults, AuthzUnavailableError),
                    clock=self.clock,
                    ids=self.ids,
                    rng=random.Random(3),
                    limits=self.limits,
                    watchers=self.watchers,
                    owned=OwnedShards(epochs),
                    on_settlement=self._settled,
                )
                actors = build_actors(deps, NoOtherServers(), options=self.kernel)
                self.deps = deps
                self.registry, self.writer, self.pump = actors.registry, actors.writer, actors.pump
                await nursery.start(actors.run)
                self.broker = actors.broker
                task_status.started()
                await trio.sleep_forever()

    def kill(self):
        """Die here; nothing in memory survives."""
        self._scope.cancel()

    def _settled(self):
        self.settlements += 1

    # What a caller does.

    def caller(self, workspace_id, key=None):
        idempotency = None
        if key is not None:
            idempotency = IdempotencyKey(
                workspace_id=workspace_id, method="POST", path=f"/{key}", key=key, body_hash="same"
            )
        return Caller(workspace_id=workspace_id, idempotency=idempotency)

    async def workspace(self, *roles, wallet=WALLET):
        """A new workspace's id."""
        number = self.ids._count
        new = NewWorkspace(wallet_address=wallet, slug=f"w-{number}", name="W", roles=tuple(roles))

        async def prove():
            return new

        return (await self.broker.create_workspace(prove)).value.id

    async def consumer(self):
        return await self.workspace(WorkspaceRole.CONSUMER)

    async def operator(self, availability=Availability.ONLINE, wallet=WALLET):
        workspace_id = await self.workspace(WorkspaceRole.SUPPLIER, wallet=wallet)
        if availability is not Availability.OFFLINE:
            patch = Patch(availability=availability)
            await self.broker.patch_workspace(workspace_id, self.caller(workspace_id), patch)
        return workspace_id

    async def request(self, consumer, key=None, **terms):
        """A new session's id."""
        new = NewSession(
            **{
                "lat": LAT,
                "lng": LNG,
                "max_duration_s": 600,
                "wait_timeout_s": 300,
                "quote_id": None,
                "radius_m": 500,
                "instructions": None,
                "metadata_json": None,
                **terms,
            }
        )
        return (await self.broker.create_session(self.caller(consumer, key), new)).value.terms.id

    async def live(self, consumer, operator, **terms):
        """A session that has just been started."""
        session = await self.request(consumer, **terms)
        await self.broker.dispatch(session, self.caller(consumer))
        await self.broker.start(session, self.caller(operator))
        return session

    async def heartbeat(self, operator, sequence, key=None, **report):
        taken = HeartbeatReport(**{"lat": LAT, "lng": LNG, "accuracy_m": 5.0, "sequence": sequence, **report})
        return await self.broker.heartbeat(operator, taken, self.caller(operator, key).idempotency)

    def frames(self, session, kind=MediaKind.FRAMES, **more):
        event = MediaEvent(ref=f"ref-{session}", session_id=session, kind=kind, at_ms=self.clock.now_ms(), **more)
        self.video.send.send_nowait(event)

    async def film(self, session, operator, seconds, sequence=0):
        """Heartbeats and frames every two seconds, the first now; returns the next sequence."""
        for _ in range(0, seconds, 2):
            await self.heartbeat(operator, sequence)
            self.frames(session)
            await trio.sleep(2)
            sequence += 1
        return sequence

    async def view(self, session, workspace):
        return (await self.broker.reads.read_session(session, workspace)).value

    async def show_funds(self, micro, wallet=WALLET):
        """Let the chain show a balance and an allowance of this much."""
        block = BlockRef(number=1, block_hash="0xb1", parent_hash="0xb0")
        reading = WalletReading(
            address=wallet.lower(), balance_micro=micro, allowance_micro=micro, block_number=block.number
        )
        application = BlockApplication(
            headers=(block,),
            events=(),
            readings=(reading,),
            settled=(),
            head=block,
            confirmed_block=1,
            previous=None,
        )
        await self.ledger.apply_blocks(application, now_ms=self.clock.now_ms())

    async def availability(self, workspace):
        return (await self.broker.reads.read_workspace(workspace)).value.availability

    async def stored(self, session):
        return (await self.store.load_session(session)).session

    async def until(self, holds: Callable[[], Awaitable[bool]], within_s=60.0):
        """Wait, in virtual time, for something that becomes true by itself."""
        with trio.fail_after(within_s):
            while not await holds():  # noqa: ASYNC110  what is waited for is on the disk, which tells nobody
                await trio.sleep(0.05)


async def refusal_of(awaitable):
    """The refusal of a call that must be refused."""
    try:
        answer = await awaitable
    except RefusedError as error:
        return error.refusal
    raise AssertionError(f"not refused: {answer}")
