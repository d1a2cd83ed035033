"""Every SQLSTATE class, raised by a real Postgres at every method of every adapter, has one meaning for the caller.

The calls are made from the methods' type hints, so that a new method is covered when it is added.
"""

import collections.abc
import enum
import inspect
import types
import typing
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
import pytest

from sightline.domain.errors import InvariantError, OutcomeUnknownError, UnavailableError
from sightline.domain.operator.model import Workspace
from sightline.domain.pricing import Quote
from sightline.domain.session.model import Session, SessionState
from sightline.domain.units import MicroUsdc
from sightline.ports.relations import RelationTuple, TupleUpdate, operator_edge
from sightline.ports.store import HeartbeatWrite, SessionWrite, ShardLease
from sightline.storage.database.bridge import Database, DatabaseOptions, open_database
from sightline.storage.database.pool import PoolOptions
from sightline.storage.postgres.identity import PostgresIdentityStore, PostgresRelations
from sightline.storage.postgres.leases import PostgresShardLeases
from sightline.storage.postgres.money.ledger import PostgresLedger
from sightline.storage.postgres.store import PostgresStore
from tests.contract.builders import T0, a_heartbeat, a_quote, a_session, a_settlement, a_workspace, an_id, in_phase
from tests.shards import take_every_shard

from .proxy import At, open_wire

TRY_LATER = (
    *("28000", "28P01", "3D000", "72000", "F0000", "F0001", "HV000", "XX000", "XX001", "XX002"),
    *("53000", "53100", "53200", "53300", "53400", "55000", "55006", "55P02", "55P03", "55P04"),
    *("57000", "57014", "58000", "58030", "58P01", "58P02", "58P03", "25006", "26000", "42501", "ZZ999"),
)
"""The database cannot do it now; nothing was applied."""

CONCURRENCY = ("40000", "40001", "40002", "40P01")
"""Undone by the database: tried again, and unavailable if that does not help."""

CONNECTION = ("08003", "08006", "08007", "40003", "57P01", "57P03", "25P03")
"""The connection is lost: the outcome is unknown if a commit was under way."""

BUG = (
    *("03000", "09000", "0A000", "0B000", "0F000", "0L000", "0P000", "0Z000", "10608"),
    *("20000", "21000", "22000", "22003", "23000", "23502", "23505", "23514", "24000", "25000", "25001", "25P01"),
    *("25P02", "27000", "2B000", "2D000", "2F000", "34000", "38000", "39000", "3B000", "3F000"),
    *("42000", "42601", "42703", "42P01", "42883", "44000", "54000", "P0000", "P0001"),
)
"""The statement or its arguments are wrong; nothing was applied."""

ADAPTERS = (PostgresStore, PostgresShardLeases, PostgresLedger, PostgresIdentityStore, PostgresRelations)
NOT_CALLED = {"PostgresRelations.open", "PostgresRelations.stage"}
"""A constructor, and a method that asks nothing of the database."""

SAMPLES: dict[object, Callable[[], object]] = {
    str: an_id,
    int: lambda: 1,
    float: lambda: 1.0,
    bool: lambda: True,
    bytes: lambda: b"\0" * 32,
    MicroUsdc: lambda: 1,
    Session: a_session,
    Workspace: a_workspace,
    Quote: a_quote,
    HeartbeatWrite: lambda: HeartbeatWrite(ShardLease(7, 0), (a_heartbeat(an_id(), 1),)),
    TupleUpdate: lambda: TupleUpdate(operator_edge(an_id(), an_id())),
    RelationTuple: lambda: operator_edge(an_id(), an_id()),
    typing.Any: lambda: None,
    object: lambda: None,
}


def sample(hint: Any) -> Any:
    """A value of a type that the database can be sent."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in SAMPLES:
        return SAMPLES[hint]()
    if origin in {typing.Union, types.UnionType}:
        return sample(arguments[0])
    if origin is tuple:
        return (sample(arguments[0]),) if arguments[1:] == (...,) else tuple(map(sample, arguments))
    if origin in {collections.abc.Sequence, collections.abc.Collection, list}:
        return [sample(arguments[0])]
    if origin in {collections.abc.Set, frozenset, set}:
        return frozenset([sample(arguments[0])])
    if origin in {collections.abc.Mapping, dict}:
        return {sample(arguments[0]): sample(arguments[1])}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return next(iter(hint))
    assert issubclass(hint, msgspec.Struct), f"no sample of {hint}"
    needed = [field for field in msgspec.structs.fields(hint) if field.required]
    return hint(**{field.name: sample(field.type) for field in needed})


def call_of(adapter: object, name: str) -> Awaitable[object]:
    method = getattr(adapter, name)
    hints = typing.get_type_hints(method)
    positional, named = [], {}
    for parameter in inspect.signature(method).parameters.values():
        value = sample(hints[parameter.name])
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            named[parameter.name] = value
        else:
            positional.append(value)
    return typing.cast("Awaitable[object]", method(*positional, **named))


def methods() -> Iterator[tuple[type, str]]:
    for adapter in ADAPTERS:
        for name, _ in inspect.getmembers(adapter, inspect.iscoroutinefunction):
            if not name.startswith("_") and f"{adapter.__name__}.{name}" not in NOT_CALLED:
                yield adapter, name


async def opened(adapter: Any, database: Database) -> Any:
    if adapter is PostgresRelations:
        return await PostgresRelations.open(database, token_key=b"k" * 32)
    if adapter is PostgresStore:
        store = PostgresStore(database)
        await take_every_shard(store, "test", "one")
        return store
    return adapter(database)


async def outcome_of(call: Awaitable[object]) -> type[BaseException] | None:
    """The kind of error by which the caller decides; None if it returned."""
    try:
        await call
    except UnavailableError:
        return UnavailableError
    except OutcomeUnknownError:
        return OutcomeUnknownError
    except InvariantError:
        return InvariantError
    return None


def through(dsn: str) -> DatabaseOptions:
    return DatabaseOptions(pool=PoolOptions(dsn=dsn, connections_min=1, connections_max=2), deadline_ms=20_000)


@pytest.mark.parametrize(
    ("adapter", "name"), [pytest.param(*each, id=f"{each[0].__name__}.{each[1]}") for each in methods()]
)
async def test_every_sqlstate_at_every_method_is_unavailable_unknown_or_a_bug(
    database_dsn: str, adapter: Any, name: str
) -> None:
    async with open_wire(database_dsn) as wire, open_database(through(wire.dsn)) as database:
        subject = await opened(adapter, database)
        for sqlstate in (*TRY_LATER, *CONCURRENCY, *CONNECTION, *BUG):
            wire.refuse(sqlstate, At.STATEMENT)
            before = wire.refused
            outcome = await outcome_of(call_of(subject, name))
            wire.accept()
            assert wire.refused > before, "the method asked nothing of the database"
            if sqlstate in BUG:
                assert outcome is InvariantError, sqlstate
            elif sqlstate in CONNECTION:
                # A statement that commits itself is in doubt; a read or a transaction before its COMMIT is not.
                assert outcome in {UnavailableError, OutcomeUnknownError}, sqlstate
                is_in_doubt = wire.refused - before == 1
                assert (outcome is OutcomeUnknownError) == is_in_doubt, sqlstate
            else:
                assert outcome is UnavailableError, sqlstate
        await database.ping()
        assert database.statistics().in_flight == 0
        assert database.statistics().connections_open == database.statistics().connections_idle


async def test_every_sqlstate_at_the_commit_of_a_transaction_says_whether_it_is_in_doubt(database_dsn: str) -> None:
    ended = in_phase(a_session(), SessionState.ENDED)
    write = SessionWrite(
        lease=ShardLease(3, 1), session=ended, at_ms=T0, due_at_ms=None, release_hold=True, settle=a_settlement(ended)
    )
    async with open_wire(database_dsn) as wire, open_database(through(wire.dsn)) as database:
        store = PostgresStore(database)
        await take_every_shard(store, "test", "one")
        for sqlstate in (*TRY_LATER, *CONCURRENCY, *CONNECTION, *BUG):
            wire.refuse(sqlstate, At.COMMIT)
            outcome = await outcome_of(store.write_session(write))
            wire.accept()
            if sqlstate in BUG:
                assert outcome is InvariantError, sqlstate
            else:
                assert outcome is (OutcomeUnknownError if sqlstate in CONNECTION else UnavailableError), sqlstate
        assert await store.load_session(ended.id) is None
        assert wire.refused
