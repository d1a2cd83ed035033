"""The contract of every authorization graph, tested on memory, Postgres and SpiceDB."""

import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from random import Random

import pytest
import trio

from sightline.domain.access import Role
from sightline.domain.consistency import ConsistencyTokens
from sightline.identity.spicedb import SpiceDbOptions, open_spicedb
from sightline.ports.relations import (
    CONSUMER_WORKSPACE,
    OPERATOR_WORKSPACE,
    SESSION,
    WORKSPACE,
    PreconditionFailedError,
    Relations,
    RelationTuple,
    TupleUpdate,
    consumer_edge,
    member_edge,
    operator_edge,
    session_ref,
    wallet_ref,
    workspace_ref,
)
from sightline.storage.database.bridge import DatabaseOptions, open_database
from sightline.storage.database.pool import PoolOptions
from sightline.storage.postgres.identity import PostgresRelations
from simulation.memory.identity import MemoryRelations

TOKEN_KEY = b"t" * 32
CONSUMER = "11111111-1111-4111-8111-111111111111"
OPERATOR = "22222222-2222-4222-8222-222222222222"
SESSION_ID = "33333333-3333-4333-8333-333333333333"
ALICE = "0x52908400098527886E0F7030069857D2E4169EE7"
BOB = "0x8617E340B3D01FA5F11F306F4090FD50E238070D"


def running(program: str, *arguments: str) -> Iterator[str]:
    """Run a server program of this folder as a child process; yields its address."""
    command = [sys.executable, str(Path(__file__).with_name(program)), *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin
    assert process.stdout
    try:
        word, _, address = process.stdout.readline().decode().strip().partition(" ")
        assert word == "ready"
        yield address
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


@pytest.fixture(scope="module")
def servicer_address() -> Iterator[str]:
    """Address of the test server of SpiceDB's protobuf definition."""
    yield from running("spicedb_servicer.py")


@pytest.fixture(scope="module")
def spicedb_address() -> Iterator[str]:
    """Address of SpiceDB itself."""
    library = Path(__file__).parents[2] / ".interop" / "spicedb" / "libspicedb.so"
    assert library.exists(), "scripts/interop_spicedb.sh brings it"
    yield from running("spicedb_library.py", str(library))


@asynccontextmanager
async def in_memory(address: str) -> AsyncIterator[Relations]:
    yield MemoryRelations(token_key=TOKEN_KEY)


@asynccontextmanager
async def on_postgres(address: str) -> AsyncIterator[Relations]:
    async with open_database(DatabaseOptions(pool=PoolOptions(dsn=address))) as database:
        yield await PostgresRelations.open(database, token_key=TOKEN_KEY)


@asynccontextmanager
async def in_spicedb(address: str) -> AsyncIterator[Relations]:
    """An adapter to a shared server, with the edges of earlier tests deleted."""
    options = SpiceDbOptions(endpoint=address, preshared_key="a preshared key", is_tls=False, deadline_ms=5_000)
    async with open_spicedb(options, token_key=TOKEN_KEY) as relations:
        for resource_type in (SESSION, WORKSPACE):
            if edges := await relations.read(resource_type=resource_type):
                await relations.write(gone(*edges))
        yield relations


Opener = Callable[[str], AbstractAsyncContextManager[Relations]]
GRAPHS: dict[str, tuple[Opener, str | None]] = {
    "memory": (in_memory, None),
    "postgres": (on_postgres, "database_dsn"),
    "spicedb servicer": (in_spicedb, "servicer_address"),
    "spicedb": (in_spicedb, "spicedb_address"),
}


@pytest.fixture(
    params=[pytest.param(each, marks=[pytest.mark.interop] if each == "spicedb" else []) for each in GRAPHS]
)
def graph(request: pytest.FixtureRequest) -> tuple[Opener, str]:
    """How the graph under test is opened, and its address."""
    opener, fixture = GRAPHS[request.param]
    return opener, request.getfixturevalue(fixture) if fixture else ""


@pytest.fixture
async def relations(graph: tuple[Opener, str]) -> AsyncIterator[Relations]:
    opener, address = graph
    async with opener(address) as opened:
        yield opened


def put(*edges: RelationTuple) -> list[TupleUpdate]:
    return [TupleUpdate(edge) for edge in edges]


def gone(*edges: RelationTuple) -> list[TupleUpdate]:
    return [TupleUpdate(edge, present=False) for edge in edges]


async def stands(relations: Relations, edge: RelationTuple, at_least: str | None = None) -> bool:
    return await relations.check(edge.resource, edge.relation, edge.subject, at_least=at_least)


ASSIGNED = operator_edge(SESSION_ID, OPERATOR)
REQUESTED = consumer_edge(SESSION_ID, CONSUMER)


async def test_an_edge_stands_from_its_writing_to_its_removal(relations: Relations) -> None:
    assert not await stands(relations, ASSIGNED)
    token = await relations.write(put(ASSIGNED))
    assert await stands(relations, ASSIGNED, token)
    token = await relations.write(gone(ASSIGNED))
    assert not await stands(relations, ASSIGNED, token)


async def test_writing_and_removing_twice_is_no_error(relations: Relations) -> None:
    await relations.write(put(ASSIGNED))
    await relations.write(put(ASSIGNED))
    assert await stands(relations, ASSIGNED)
    await relations.write(gone(ASSIGNED))
    await relations.write(gone(ASSIGNED))
    assert not await stands(relations, ASSIGNED)


async def test_an_edge_says_nothing_about_its_neighbours(relations: Relations) -> None:
    await relations.write(put(ASSIGNED))
    resource, subject = session_ref(SESSION_ID), workspace_ref(OPERATOR)
    assert not await relations.check(resource, CONSUMER_WORKSPACE, subject)
    assert not await relations.check(resource, OPERATOR_WORKSPACE, workspace_ref(CONSUMER))
    assert not await relations.check(session_ref(CONSUMER), OPERATOR_WORKSPACE, subject)


async def test_one_write_puts_and_removes(relations: Relations) -> None:
    viewer, admin = (member_edge(CONSUMER, ALICE, role) for role in (Role.VIEWER, Role.ADMIN))
    await relations.write(put(viewer))
    await relations.write([*put(admin), *gone(viewer)])
    assert await relations.read(resource_type=WORKSPACE, resource_id=CONSUMER) == (admin,)


async def test_edges_are_read_by_resource_in_order(relations: Relations) -> None:
    await relations.write(put(ASSIGNED, REQUESTED, member_edge(CONSUMER, ALICE, Role.OWNER)))
    assert await relations.read(resource_type=SESSION, resource_id=SESSION_ID) == (REQUESTED, ASSIGNED)
    assert await relations.read(resource_type=SESSION, resource_id=CONSUMER) == ()


async def test_edges_are_read_by_subject_in_order(relations: Relations) -> None:
    of_alice = [member_edge(OPERATOR, ALICE, Role.ADMIN), member_edge(CONSUMER, ALICE, Role.OWNER)]
    await relations.write(put(*of_alice, member_edge(CONSUMER, BOB, Role.ADMIN)))
    read = await relations.read(resource_type=WORKSPACE, subject=wallet_ref(ALICE))
    assert read == tuple(sorted(of_alice))


async def test_edges_are_read_by_resource_and_subject(relations: Relations) -> None:
    wanted = member_edge(CONSUMER, ALICE, Role.OWNER)
    others = (member_edge(CONSUMER, BOB, Role.OWNER), member_edge(OPERATOR, ALICE, Role.OWNER))
    await relations.write(put(wanted, *others))
    read = await relations.read(resource_type=WORKSPACE, resource_id=CONSUMER, subject=wallet_ref(ALICE))
    assert read == (wanted,)


async def test_an_address_is_one_wallet_in_any_case(relations: Relations) -> None:
    await relations.write(put(member_edge(CONSUMER, ALICE, Role.OWNER)))
    assert await relations.check(workspace_ref(CONSUMER), "owner", wallet_ref(ALICE.lower()))


async def test_a_required_edge_lets_the_write_through_only_while_it_stands(relations: Relations) -> None:
    alice, bob = (member_edge(CONSUMER, who, Role.OWNER) for who in (ALICE, BOB))
    await relations.write(put(alice, bob))
    await relations.write(gone(alice), requires=(bob,))
    with pytest.raises(PreconditionFailedError):
        await relations.write([*gone(bob), *put(ASSIGNED)], requires=(alice, bob))
    assert await stands(relations, bob)
    assert not await stands(relations, ASSIGNED)


async def test_of_two_writes_that_undo_each_others_requirement_one_wins(relations: Relations) -> None:
    owners = [member_edge(CONSUMER, who, Role.OWNER) for who in (ALICE, BOB)]
    for _ in range(10):
        await relations.write(put(*owners))
        lost = 0

        async def leave(mine: RelationTuple, other: RelationTuple) -> None:
            nonlocal lost
            try:
                await relations.write(gone(mine), requires=(other,))
            except PreconditionFailedError:
                lost += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(leave, *owners)
            nursery.start_soon(leave, *reversed(owners))
        assert lost == 1
        assert len(await relations.read(resource_type=WORKSPACE, resource_id=CONSUMER)) == 1


# The token has a valid signature but the store does not know it: the store was created anew, or restored from a backup.
OUTLIVED = [
    ConsistencyTokens(backend="z1", store_id="spicedb", key=TOKEN_KEY).encode("GgYKBENJR04="),
    ConsistencyTokens(backend="m1", store_id="memory", key=TOKEN_KEY).encode("999999"),
]


@pytest.mark.parametrize("token", ["", "p1.MQ.AAAA", "not a token", "z1..", "\x00", "é" * 2000, *OUTLIVED])
async def test_a_foreign_or_malformed_token_reads_fully_consistent(relations: Relations, token: str) -> None:
    await relations.write(put(ASSIGNED))
    assert await stands(relations, ASSIGNED, token)
    assert not await stands(relations, REQUESTED, token)
    assert await relations.read(resource_type=SESSION, resource_id=SESSION_ID, at_least=token) == (ASSIGNED,)


async def test_every_write_gives_a_token_of_its_own(relations: Relations) -> None:
    tokens = [await relations.write(put(edge)) for edge in (ASSIGNED, REQUESTED)]
    assert tokens[0] != tokens[1]
    for token in tokens:
        assert token.isascii()
        assert 8 <= len(token) <= 512


async def test_staged_edges_stand_at_once_or_with_the_commit(relations: Relations) -> None:
    """The caller of `stage` writes `in_commit` in its own transaction.

    In this test that transaction is a separate write.
    """
    staged = await relations.stage(put(ASSIGNED))
    assert bool(staged.in_commit) != bool(staged.token)
    if staged.in_commit:
        assert not await stands(relations, ASSIGNED)
        await relations.write(staged.in_commit)
    assert await stands(relations, ASSIGNED, staged.token)


async def test_what_was_staged_at_once_can_be_undone(relations: Relations) -> None:
    staged = await relations.stage(put(ASSIGNED))
    if staged.undo:
        await relations.write(staged.undo)
    assert not await stands(relations, ASSIGNED)


async def test_a_session_has_the_operator_that_was_staged_last(relations: Relations) -> None:
    """A crash between staging an edge that is written at once and the commit of its row leaves the edge.

    The next operator replaces it.
    """
    left_behind = operator_edge(SESSION_ID, CONSUMER)
    if (await relations.stage(put(left_behind))).in_commit:
        assert not await stands(relations, left_behind)
    staged = await relations.stage(put(ASSIGNED))
    if staged.in_commit:
        await relations.write(staged.in_commit)
    assert await relations.read(resource_type=SESSION, resource_id=SESSION_ID) == (ASSIGNED,)


@pytest.mark.parametrize("seed", range(3))
async def test_any_history_of_writes_reads_as_a_set_of_edges_would(relations: Relations, seed: int) -> None:
    choice = Random(seed)
    universe = [ASSIGNED, REQUESTED, operator_edge(SESSION_ID, CONSUMER)]
    universe += [member_edge(ws, who, role) for ws in (CONSUMER, OPERATOR) for who in (ALICE, BOB) for role in Role]
    model: set[RelationTuple] = set()
    for _ in range(25):
        edges = choice.sample(universe, choice.randint(1, 4))
        updates = [TupleUpdate(edge, present=choice.random() < 0.6) for edge in edges]
        requires = choice.sample(universe, choice.randint(0, 1))
        try:
            token = await relations.write(updates, requires=requires)
        except PreconditionFailedError:
            assert not model.issuperset(requires)
            continue
        assert model.issuperset(requires)
        model |= {update.edge for update in updates if update.present}
        model -= {update.edge for update in updates if not update.present}
        for resource_type in (SESSION, WORKSPACE):
            expected = tuple(sorted(edge for edge in model if edge.resource.type == resource_type))
            assert await relations.read(resource_type=resource_type, at_least=token) == expected
        asked = choice.choice(universe)
        assert await stands(relations, asked, token) == (asked in model)
