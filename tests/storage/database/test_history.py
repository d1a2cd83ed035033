"""Which databases are refused: another cluster, an earlier timeline, one that lacks what was committed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from sightline.domain.errors import StoreUnavailableError
from sightline.domain.value import replace
from sightline.storage.database.bridge import Database, DatabaseOptions, open_database
from sightline.storage.database.history import DatabasePosition, HistoryGuard, StaleDatabaseError, read_position
from sightline.storage.database.pool import PoolOptions, primaries_of
from tests.conftest import open_data_directory
from tests.nemesis.parts import ExternalPostgres, on_database

SEEN = DatabasePosition(system_identifier="7", timeline=2, wal_bytes=1_000, take_overs=260, signed=5)
positions = st.builds(
    DatabasePosition, system_identifier=st.just("7"), timeline=st.integers(1, 3), wal_bytes=st.integers(1, 9),
    take_overs=st.integers(0, 9), signed=st.integers(0, 9),
)  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"system_identifier": "8"}, "its system identifier is 8, and 7 was used before"),
        ({"timeline": 1}, "it is on timeline 1, a former primary: timeline 2 was used before"),
        ({"take_overs": 259}, "its shards were taken 259 times, and 260 were seen"),
        ({"signed": 4}, "it has 4 signed transactions, and 5 were seen"),
        ({"wal_bytes": 999}, "its log ends at byte 999, and 1000 was seen"),
        ({"timeline": 3, "signed": 4}, "it has 4 signed transactions, and 5 were seen"),
        (
            {"take_overs": 0, "signed": 0},
            "everything that was stored before is missing: shards were taken 260 times and 5 transactions were signed",
        ),
        (
            {"system_identifier": "8", "take_overs": 0, "signed": 0},
            "were taken 260 times and 5 transactions were signed",
        ),
    ],
)
def test_an_older_or_another_database_differs(changed: dict[str, object], reason: str) -> None:
    found = replace(SEEN, **changed)  # type: ignore[arg-type]  # each value is of its field
    assert (SEEN.difference(found) or "").endswith(reason)


@pytest.mark.parametrize(
    "changed",
    [
        {}, {"wal_bytes": 1_001, "signed": 6, "take_overs": 261},
        # A promoted standby may lack the end of the log after the last commit.
        {"timeline": 3, "wal_bytes": 990},
        # A service that does not say which cluster it is.
        {"system_identifier": None, "timeline": None, "wal_bytes": None},
    ],
)  # fmt: skip
def test_the_same_database_later_does_not_differ(changed: dict[str, object]) -> None:
    assert SEEN.difference(replace(SEEN, **changed)) is None  # type: ignore[arg-type]  # each value is of its field


@given(positions, positions)
def test_the_newest_of_two_positions_differs_from_neither(one: DatabasePosition, two: DatabasePosition) -> None:
    both = one.advanced_by(two)
    assert both == two.advanced_by(one)
    assert one.difference(both) is None
    assert two.difference(both) is None


@dataclass
class Pair:
    """A primary that was replaced by its standby, and still runs."""

    former: ExternalPostgres
    present: ExternalPostgres

    def url(self, *hosts: ExternalPostgres) -> str:
        names = ",".join(str(each.layout.socket_directory) for each in hosts)
        return f"postgresql://postgres@/postgres?host={names}&target_session_attrs=read-write"


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with open_data_directory() as directory:
        directory.chmod(0o711)
        (directory / "primary").mkdir(mode=0o700)
        primary = ExternalPostgres(directory / "primary")
        primary.start()
        standby = trio.run(primary.replicate, directory / "standby")
        dsn = standby.layout.dsn
        try:
            trio.run(on_database, dsn, lambda connection: connection.execute("SELECT pg_promote()"))
            yield Pair(primary, standby)
        finally:
            standby.end()
            primary.end()


def options(url: str, guard: HistoryGuard) -> DatabaseOptions:
    return DatabaseOptions(pool=PoolOptions(dsn=url, connections_min=2, guard=guard))


async def timeline(database: Database) -> int | None:
    return (await database.read(read_position)).timeline


async def test_the_former_primary_is_refused_once_the_present_one_was_seen(pair: Pair) -> None:
    guard = HistoryGuard(None)
    async with open_database(options(pair.url(pair.present), guard)) as database:
        assert await timeline(database) == 2
    with pytest.raises(StoreUnavailableError, match="timeline 1, a former primary") as refused:
        async with open_database(options(pair.url(pair.former), guard)):
            raise AssertionError("the former primary was accepted")
    assert isinstance(refused.value.__cause__, StaleDatabaseError)


async def test_connections_pass_over_the_former_primary_wherever_the_url_names_it(pair: Pair) -> None:
    guard = HistoryGuard(None)
    async with open_database(options(pair.url(pair.present), guard)):
        pass
    for hosts in ((pair.former, pair.present), (pair.present, pair.former)):
        async with open_database(options(pair.url(*hosts), guard)) as database:
            assert await timeline(database) == 2


async def test_the_error_names_the_host_that_is_missing_beside_the_one_that_is_refused(pair: Pair) -> None:
    guard = HistoryGuard(None)
    async with open_database(options(pair.url(pair.present), guard)):
        pass
    gone = "postgresql://postgres@127.0.0.1:1/postgres"
    url = f"postgresql://postgres@/postgres?host={pair.former.layout.socket_directory},127.0.0.1&port=5432,1"
    with pytest.raises(StoreUnavailableError, match="of the other host, it is on timeline 1") as refused:
        async with open_database(options(f"{url}&target_session_attrs=read-write", guard)):
            raise AssertionError(f"{gone} does not exist")
    assert not isinstance(refused.value.__cause__, StaleDatabaseError)


async def test_both_hosts_are_found_to_accept_writes(pair: Pair) -> None:
    found: dict[str, int | None] = {}

    async def ask(pool: PoolOptions) -> None:
        found.update({host: each.timeline for host, each in (await primaries_of(pool, timeout_ms=2_000)).items()})

    async with open_database(options(pair.url(pair.former, pair.present), HistoryGuard(None))) as database:
        await database.host(ask)
    assert found == {str(pair.former.layout.socket_directory): 1, str(pair.present.layout.socket_directory): 2}


async def as_ordinary_role(connection: Any) -> DatabasePosition:
    await connection.execute("SET ROLE ordinary")
    try:
        return await read_position(connection)
    finally:
        await connection.execute("RESET ROLE")


async def test_an_ordinary_role_can_read_where_the_database_is(pair: Pair) -> None:
    async with open_database(options(pair.url(pair.present), HistoryGuard(None))) as database:
        await database.run(lambda connection: connection.execute("CREATE ROLE ordinary LOGIN NOSUPERUSER"))
        assert (await database.read(as_ordinary_role)).timeline == 2
        # A service that grants less than Postgres does.
        await database.run(
            lambda connection: connection.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
        )
        found = await database.read(as_ordinary_role)
    assert (found.system_identifier, found.timeline, found.wal_bytes) == (None, None, None)


async def test_a_database_that_lacks_what_was_committed_is_older(database: Database) -> None:
    before = await database.read(read_position)
    await database.run(
        lambda connection: connection.execute("INSERT INTO relayer_key (relayer, next_nonce) VALUES ('a', 3), ('b', 4)")
    )
    await database.run(lambda connection: connection.execute("SELECT take_shards('host', 'one')"))
    after = await database.read(read_position)
    assert (after.signed, after.take_overs - before.take_overs) == (7, 260)
    assert before.difference(after) is None
    unnamed = {"system_identifier": None, "timeline": None, "wal_bytes": None, "take_overs": before.take_overs + 1}
    assert "its shards were taken" in (after.difference(replace(before, **unnamed)) or "")  # type: ignore[arg-type]  # each value is of its field


async def test_a_database_without_tables_is_another_one(postgres_dsn: str) -> None:
    async with open_database(options(postgres_dsn, HistoryGuard(None))) as empty:
        found = await empty.read(read_position)
    assert (found.take_overs, found.signed) == (0, 0)
    assert replace(SEEN, system_identifier=found.system_identifier, timeline=1).difference(found) is not None
