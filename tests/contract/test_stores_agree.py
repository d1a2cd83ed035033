"""Both stores answer every operation equally, so that results of the simulation hold for Postgres."""

import random
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sightline.domain.errors import StoreUnavailableError
from sightline.domain.operator.model import Availability
from sightline.domain.session.machine import deadline_ms
from sightline.domain.session.model import Delivery, Ended, MediaCheckpoint, SessionState
from sightline.domain.units import MicroUsdc
from sightline.domain.value import replace
from sightline.ports.relations import SESSION, TupleUpdate, operator_edge
from sightline.ports.store import (
    Committed,
    HeartbeatWrite,
    HoldRequest,
    SessionQuery,
    SessionView,
    SessionWrite,
    ShardLease,
    Store,
    WorkspaceWrite,
)
from sightline.storage.database.bridge import Database
from sightline.storage.postgres.identity import PostgresRelations
from sightline.storage.postgres.money.ledger import PostgresLedger
from sightline.storage.postgres.store import PostgresStore
from simulation.memory.identity import MemoryRelations
from simulation.memory.ledger import MemoryLedger
from simulation.memory.store import MemoryStore
from tests.shards import take_every_shard

from .builders import (
    PAYER,
    T0,
    a_heartbeat,
    a_quote,
    a_session,
    a_settlement,
    a_workspace,
    an_answer,
    an_operator,
    in_phase,
    recorded,
)
from .conftest import TOKEN_KEY

STEPS = 150


class World:
    """A small number of each object, so that operations conflict; ids and choices come from the seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.workspaces = {each: a_workspace(id=each, slug=f"slug-{n % 4}") for n, each in enumerate(self._ids(6))}
        self.sessions = {
            each: a_session(
                id=each,
                consumer_workspace_id=self.dice.choice(list(self.workspaces)),
                created_at_ms=T0 + self.dice.randrange(5),
                lat=52.5 + self.dice.randrange(5) / 100,
                wait_timeout_s=self.dice.choice([5, 300]),
            )
            for each in self._ids(8)
        }
        self.quotes = {each: a_quote(id=each) for each in self._ids(4)}
        self.epoch = 1
        self.sequence = 0

    def _ids(self, count: int) -> list[str]:
        return [str(uuid.UUID(int=self.dice.getrandbits(128), version=4)) for _ in range(count)]

    def lease(self) -> ShardLease:
        stale = self.dice.random() < 0.1
        return ShardLease(self.dice.randrange(4), self.epoch - stale)

    def maybe(self, value: Any, chance: float = 0.3) -> Any:
        return value if self.dice.random() < chance else None

    def session_write(self) -> SessionWrite:
        session = self.dice.choice(list(self.sessions.values()))
        workspace_id = self.dice.choice(list(self.workspaces))
        moved = in_phase(session, self.dice.choice(list(SessionState)), an_operator(workspace_id))
        moved, events = recorded(replace(moved, version=max(0, session.version - (self.dice.random() < 0.15))))
        edge = operator_edge(session.id, workspace_id)
        hold = HoldRequest(payer_address=PAYER, amount=MicroUsdc(50), is_enforced=self.dice.random() < 0.2)
        ends = isinstance(moved.phase, Ended)
        return SessionWrite(
            lease=self.lease(),
            session=moved,
            at_ms=T0,
            due_at_ms=T0 + 7 if moved.state is SessionState.LIVE else deadline_ms(moved),
            events=events if self.dice.random() < 0.5 else (),
            take_hold=self.maybe(hold),
            charge_hold=MicroUsdc(20) if ends else None,
            release_hold=moved.state is SessionState.CANCELLED,
            settle=a_settlement(moved) if ends else None,
            consume_quote=self.maybe(self.dice.choice(list(self.quotes)), 0.2),
            tuples=(TupleUpdate(edge, present=self.dice.random() < 0.7),) if self.dice.random() < 0.4 else (),
            idempotency=self.maybe(an_answer(f"k-{self.dice.randrange(30)}")),
        )

    def workspace_write(self) -> WorkspaceWrite:
        workspace = self.dice.choice(list(self.workspaces.values()))
        changed = replace(workspace, availability=self.dice.choice(list(Availability)))
        version = max(0, workspace.version - (self.dice.random() < 0.15))
        return WorkspaceWrite(
            lease=self.lease(),
            workspace=replace(changed, version=version),
            at_ms=T0,
            idempotency=self.maybe(an_answer(f"k-{self.dice.randrange(30)}"), 0.2),
        )

    def query(self) -> SessionQuery:
        return SessionQuery(
            workspace_id=self.dice.choice(list(self.workspaces)),
            view=self.maybe(self.dice.choice(list(SessionView)), 0.8),
            now_ms=T0 + self.dice.choice([0, 6_000]),
            limit=self.dice.choice([1, 3, 100]),
            states=frozenset(self.dice.sample(list(SessionState), self.dice.randrange(3))),
            created_after_ms=self.maybe(T0 + 1),
            created_before_ms=self.maybe(T0 + 3),
            coverage=self.maybe((52.51, 13.404954, self.dice.choice([500.0, 2_500.0]))),
        )

    def learn(self, write: SessionWrite | WorkspaceWrite, result: object) -> None:
        """Record what is stored now."""
        if isinstance(result, Committed) and isinstance(write, SessionWrite):
            self.sessions[write.session.id] = replace(write.session, version=result.version)
        elif isinstance(result, Committed) and isinstance(write, WorkspaceWrite):
            self.workspaces[write.workspace.id] = replace(write.workspace, version=result.version)


def an_act(world: World) -> Callable[[Store], Awaitable[Any]]:
    """Choose an operation to run on both stores."""
    roll = world.dice.random()
    if roll < 0.05:
        world.epoch += 1
        return lambda store: take_every_shard(store, "test", "x")
    if roll < 0.15:
        quote = world.dice.choice(list(world.quotes.values()))
        return lambda store: store.insert_quote(quote)
    if roll < 0.30:
        world.sequence += 1
        batch = [
            HeartbeatWrite(
                world.lease(),
                (a_heartbeat(world.dice.choice(list(world.workspaces)), world.sequence, T0 + 4_000 + world.sequence),),
                tuple(an_answer(f"k-{world.dice.randrange(30)}") for _ in range(world.dice.randrange(3))),
            )
            for _ in range(2)
        ]
        return lambda store: store.append_heartbeats(batch)
    if roll < 0.35:
        delivery = world.dice.choice([None, Delivery(T0, T0 + world.dice.randrange(100))])
        checkpoint = MediaCheckpoint(proved_at_ms=T0 + world.dice.randrange(100), delivery=delivery)
        checkpoints = {world.dice.choice(list(world.sessions)): checkpoint}
        return lambda store: store.checkpoint_media(checkpoints)
    if roll < 0.40:
        record = an_answer(f"k-{world.dice.randrange(30)}")
        return lambda store: store.record_idempotent(record)
    query = world.query()
    return lambda store: store.list_sessions(query)


async def answered(call: Awaitable[Any]) -> Any:
    """Return the answer, or the type of the error."""
    try:
        return await call
    except StoreUnavailableError as error:
        return type(error)


def comparable(result: Any) -> Any:
    """Convert to what must be equal: revisions may have gaps, and tuples compare as lists."""
    if isinstance(result, Committed):
        return (result.version, result.revision is None)
    return list(result) if isinstance(result, tuple | list) else result


async def everything(store: Store, world: World) -> list[Any]:
    """Read everything that a store returns."""
    found: list[Any] = [await store.load_session(each) for each in world.sessions]
    found += [await store.session_events(each) for each in world.sessions]
    found += [await store.load_workspace(each) for each in world.workspaces]
    found += [await store.latest_heartbeat(each) for each in world.workspaces]
    found += [await store.load_quote(each) for each in world.quotes]
    answers = [await store.find_idempotent(an_answer(f"k-{number}").key) for number in range(30)]
    found += [each and replace(each, revision=each.revision is not None) for each in answers]
    found.append(await store.unfinished_sessions())
    found.append(sorted([each.id for each in await store.suppliers()]))
    return found


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_is_asked_of_both_is_answered_the_same(database: Database, seed: int) -> None:
    world = World(seed)
    graphs = MemoryRelations(token_key=TOKEN_KEY), await PostgresRelations.open(database, token_key=TOKEN_KEY)
    ledgers = MemoryLedger(), PostgresLedger(database)
    memory, postgres = MemoryStore(relations=graphs[0], ledger=ledgers[0]), PostgresStore(database)
    for store in (memory, postgres):
        await take_every_shard(store, "test", "first")
    outcomes: set[str] = set()
    for number in range(STEPS):
        write: SessionWrite | WorkspaceWrite | None = None
        if world.dice.random() < 0.6:
            write = world.session_write() if world.dice.random() < 0.7 else world.workspace_write()
        act = the_write(write) if write is not None else an_act(world)
        first, second = await act(memory), await act(postgres)
        assert comparable(first) == comparable(second), f"step {number}: {write}"
        if write is not None:
            world.learn(write, first)
            outcomes.add(str(getattr(first, "why", "committed")))
    assert await everything(memory, world) == await everything(postgres, world)
    edges = [await graph.read(resource_type=SESSION) for graph in graphs]
    assert edges[0] == edges[1]
    for session_id in world.sessions:
        settlements = [await ledger.settlement(session_id) for ledger in ledgers]
        assert [each and each.payload for each in settlements] == [settlements[0] and settlements[0].payload] * 2
    for workspace_id in world.workspaces:
        wallets = [await ledger.wallet(workspace_id) for ledger in ledgers]
        assert (wallets[0] and wallets[0].held_micro) == (wallets[1] and wallets[1].held_micro)
    assert {"committed", "FENCED", "VERSION"} <= outcomes


def the_write(write: SessionWrite | WorkspaceWrite) -> Callable[[Store], Awaitable[Any]]:
    if isinstance(write, SessionWrite):
        return lambda store: store.write_session(write)
    return lambda store: store.write_workspace(write)
