"""Checks of database and NATS for `sightline doctor`."""

from collections.abc import AsyncIterator, Iterator
from typing import Final

import trio

from sightline.bootstrap.database import SECRETS_REMEDY
from sightline.bootstrap.database_mark import read_mark
from sightline.bootstrap.failures.errors import StartError
from sightline.bootstrap.maintenance.findings import HostFinding, failed, ok, warning
from sightline.bootstrap.membership.bus import NATS_ADVICE, unprotected_nats
from sightline.config import Settings
from sightline.domain.errors import SightlineError
from sightline.ports.clock import Clock
from sightline.storage.database.bridge import DatabaseOptions, open_database
from sightline.storage.database.history import read_position
from sightline.storage.database.migrate import known_migrations
from sightline.storage.database.pool import PoolOptions
from sightline.storage.database.url import urls_of_hosts
from sightline.storage.embedded.dump import DumpError, PostgresTools, embedded_dsn
from sightline.storage.postgres.operations.secrets_check import stored_fingerprint
from sightline.system.secrets import stored_secrets

VERSION_MIN: Final = 15
CLOCK_WARNING_S: Final = 2.0
CLOCK_FAILED_S: Final = 60.0
DATABASE_TIMEOUT_S: Final = 10.0
FACTS: Final = """
SELECT current_setting('server_version_num')::int / 10000, (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
  current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_standby_names'),
  to_regclass('schema_migration') IS NOT NULL
"""
MIGRATIONS: Final = "SELECT coalesce(max(number), 0) FROM schema_migration"


async def check_database(settings: Settings, clock: Clock, *, is_running: bool) -> AsyncIterator[HostFinding]:
    """Check version, durability, schema and clock of the database."""
    setting, has_standby = "SIGHTLINE_DATABASE_URL", False
    if settings.database_url is not None:
        url = settings.database_url.get_secret_value()
        tools, has_standby = PostgresTools(url), len(urls_of_hosts(url)) > 1
    elif is_running:
        tools = PostgresTools(embedded_dsn(settings.data_dir.resolve() / "postgres"))
    else:
        # The embedded database answers only while a server runs.
        yield ok(
            "database",
            "embedded; it is checked when the server runs, and so is whether mark and secrets are of this database",
        )
        return
    try:
        with trio.fail_after(DATABASE_TIMEOUT_S):
            before_ms = clock.now_ms()
            version, at_ms, fsync, full_page, standbys, has_schema = (await tools.query(FACTS)).split("|")
            newest = int(await tools.query(MIGRATIONS)) if has_schema == "t" else 0
            after_ms = clock.now_ms()
    except DumpError as error:
        yield failed("database", str(error), f"Start it, or correct {setting}")
        return
    except trio.TooSlowError:
        yield failed("database", f"no answer within {DATABASE_TIMEOUT_S:g} s", f"Start it, or correct {setting}")
        return
    if int(version) < VERSION_MIN:
        yield failed("database", f"Postgres {version}", f"Use Postgres {VERSION_MIN} or newer")
    else:
        yield ok("database", f"Postgres {version}")
    for name, value in (("fsync", fsync), ("full_page_writes", full_page)):
        if value != "on":
            yield failed("durability", f"{name} is {value}: acknowledged data can be lost", f"Set {name} = on")
    if has_standby and not standbys:
        advice = "Set synchronous_standby_names (Patroni: synchronous_mode)"
        yield failed("durability", "commits do not wait for the standby: a failover loses acknowledged data", advice)
    known = max(migration.number for migration in known_migrations())
    if newest > known:
        yield failed("schema", f"migration {newest:04} is newer than this version", "Run the newer version")
    elif newest < known:
        yield ok("schema", f"migration {newest:04}; the next start brings it to {known:04}")
    else:
        yield ok("schema", f"migration {newest:04}, as this version")
    yield clock_finding(before_ms, int(at_ms), after_ms)
    yield await check_mark(settings)
    async for finding in check_secrets(settings):
        yield finding


async def check_mark(settings: Settings) -> HostFinding:
    """Compare the database with the mark beside the data: an older one, or another one, refuses the start."""
    remedy = "Connect to the present primary, or run `sightline reconcile --accept-database` if this one is meant"
    try:
        seen = read_mark(settings.data_dir.resolve())
        if seen is None:
            return ok("database mark", "none yet; the first start writes it")
        with trio.fail_after(DATABASE_TIMEOUT_S):
            async with open_database(DatabaseOptions(pool=_pool(settings))) as database:
                difference = seen.difference(await database.read(read_position))
    except (StartError, SightlineError) as error:
        return failed("database mark", str(error), remedy)
    except trio.TooSlowError:
        return failed("database mark", f"no answer within {DATABASE_TIMEOUT_S:g} s", "Start the database")
    if difference is not None:
        return failed("database mark", f"the start would refuse this database: {difference}", remedy)
    return ok("database mark", "the database is not older than what this data directory has seen")


async def check_secrets(settings: Settings) -> AsyncIterator[HostFinding]:
    """Compare the secrets with those that the servers of the database use: others refuse the start."""
    path = settings.secrets_path
    try:
        secrets = stored_secrets(path)
    except ValueError as error:
        yield failed("secrets", str(error), SECRETS_REMEDY)
        return
    try:
        with trio.fail_after(DATABASE_TIMEOUT_S):
            async with open_database(DatabaseOptions(pool=_pool(settings))) as database:
                stored = await stored_fingerprint(database)
    except (SightlineError, trio.TooSlowError):
        return  # the mark's check says it
    if stored is None or secrets is None:
        return
    if stored != secrets.fingerprint:
        yield failed("secrets", f"a start is refused: {path} is not of this database", SECRETS_REMEDY)
    else:
        yield ok("secrets", f"{path} is of this database")


def _pool(settings: Settings) -> PoolOptions:
    if settings.database_url is not None:
        dsn = settings.database_url.get_secret_value()
    else:
        dsn = embedded_dsn(settings.data_dir.resolve() / "postgres")
    return PoolOptions(dsn=dsn, application_name="sightline doctor", connections_min=1, connections_max=1)


def check_nats(settings: Settings) -> Iterator[HostFinding]:
    """Check that not everybody can use the NATS servers between the servers of this service."""
    reason = unprotected_nats(settings)
    if reason is not None and settings.nats_allow_insecure:
        yield warning("nats", reason, "SIGHTLINE_NATS_ALLOW_INSECURE accepts it")
    elif reason is not None:
        yield failed("nats", reason, NATS_ADVICE)
    elif settings.nats_servers:
        yield ok("nats", "protected by TLS and a credential, or on loopback")


def clock_finding(before_ms: int, database_ms: int, after_ms: int) -> HostFinding:
    """Judge the clock of the database, which was read between two readings of this machine's clock."""
    off_s = max(before_ms - database_ms, database_ms - after_ms, 0) / 1_000
    detail = f"differs from the database's by {off_s:.1f} s"
    if off_s > CLOCK_FAILED_S:
        return failed("clock", detail, "Run NTP on both machines: leases and deadlines depend on it")
    if off_s > CLOCK_WARNING_S:
        return warning("clock", detail, "Run NTP on both machines")
    return ok("clock", detail)
