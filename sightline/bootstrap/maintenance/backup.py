"""The `backup` command: one file with database, embedded chain and keys, as of one instant.

The instant: the embedded chain is kept from mining while the database exports a snapshot and the chain's file is opened
for reading. Every transaction of the relayer is stored in the database before it is sent, so the copy is a state that a
`kill -9` at that instant would leave: neither side can know more than the other has stored. With an external chain the
database can only be older than the chain, see docs/ops/backup.md.
"""

import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

import trio

from sightline.bootstrap.failures.errors import leaves_of
from sightline.bootstrap.maintenance.archive import (
    CHAIN_FILE,
    CHAIN_KEYS_FILE,
    DATABASE,
    EVIDENCE_FILES,
    FORMAT,
    SECRETS_FILE,
    WITHDRAWALS_FILE,
    BackupError,
    Manifest,
    file_digest,
    write_archive,
)
from sightline.bootstrap.observability.last_backup import note_backup
from sightline.chain.embedded.copy import ChainSnapshot, damage_line, find_problem, hold_mining, open_chain_snapshot
from sightline.config import Settings
from sightline.storage.embedded.dump import DumpError, PostgresTools, embedded_dsn
from sightline.storage.embedded.server import EmbeddedPostgresOptions, run_embedded_postgres
from sightline.system.children import ChildFailedError
from sightline.system.clock import SystemClock
from sightline.system.data_directory import (
    CLUSTER,
    RESTORE,
    OtherAccountError,
    PartMissingError,
    check_parts,
    require_own_account,
)
from sightline.system.lock import DataDirectoryInUseError, lock_directory
from sightline.system.secrets import stored_secrets

NEWEST_MIGRATION: Final = "SELECT max(name) FROM schema_migration"


def run_backup(settings: Settings, target: Path) -> int:
    """Write a backup of a data directory, whose server may be running. Returns the exit code."""
    os.umask(0o077)
    target = target.absolute()
    try:
        manifest = trio.run(write_backup, settings, target)
    except Exception as error:  # noqa: BLE001  every failure becomes one line and an exit code
        cause = leaves_of(error)[0]
        damage = damage_line(settings.data_dir / CHAIN_FILE, cause) if isinstance(cause, sqlite3.Error) else None
        sys.stderr.write(f"No backup was written: {damage or failure_line(error)}\n")
        return 1
    size = target.stat().st_size
    sys.stdout.write(f"{target}: {size} bytes, migration {manifest.migration}, chain head {manifest.chain_head}\n")
    return 0


def failure_line(error: Exception) -> str:
    """Return the first cause in one line.

    Raises:
        Exception: The cause is not one that this command expects: a defect.
    """
    cause = leaves_of(error)[0]
    expected = (
        BackupError,
        DumpError,
        ChildFailedError,
        PartMissingError,
        OtherAccountError,
        DataDirectoryInUseError,
        OSError,
        sqlite3.Error,
    )
    if not isinstance(cause, expected):
        raise error
    return " ".join(str(cause).split())


async def write_backup(settings: Settings, target: Path) -> Manifest:
    """Write a backup file. `target` appears complete or not at all.

    Raises:
        BackupError: The target exists, or the data directory holds no server's data.
        OtherAccountError, PartMissingError: It is another account's, or its database is missing.
        DumpError, sqlite3.Error, OSError: A part cannot be read or the file cannot be written.
    """
    directory = _checked_directory(settings, target)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        async with _open_tools(settings, directory) as tools:
            manifest = await _collect(settings, directory, tools, draft)
        await trio.to_thread.run_sync(write_archive, target, manifest, draft)
        note_backup(directory, SystemClock().now_ms())
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return manifest


def _checked_directory(settings: Settings, target: Path) -> Path:
    if target.exists():
        raise BackupError(f"{target} already exists. Choose another name, or remove it.")
    if not target.parent.is_dir():
        raise BackupError(f"{target.parent} is no directory. Create it, or name a file in another one.")
    directory = settings.data_dir.resolve()
    if not settings.secrets_path.exists():
        raise BackupError(
            f"{settings.secrets_path.parent} has no {settings.secrets_path.name}. Set SIGHTLINE_DATA_DIR (--data-dir) "
            "to a server's directory, or SIGHTLINE_SECRETS_FILE."
        )
    try:
        stored_secrets(settings.secrets_path)
    except ValueError as error:
        raise BackupError(f"{settings.secrets_path} is damaged ({error}). Put the right file back.") from error
    require_own_account(directory)
    if settings.database_url is None:
        check_parts(directory, (CLUSTER,))  # an embedded database that is missing would be made, empty
    return directory


@asynccontextmanager
async def _open_tools(settings: Settings, directory: Path) -> AsyncIterator[PostgresTools]:
    """Reach the database: the external one, that of the running server, or one started for the backup."""
    if settings.database_url is not None:
        yield PostgresTools(settings.database_url.get_secret_value())
        return
    with ExitStack() as stack:
        try:
            stack.enter_context(lock_directory(directory))
        except DataDirectoryInUseError:
            yield PostgresTools(embedded_dsn(directory / "postgres"))
            return
        async with open_stopped_database(settings, directory / "postgres", directory / "log") as tools:
            yield tools


@asynccontextmanager
async def open_stopped_database(settings: Settings, cluster: Path, logs: Path) -> AsyncIterator[PostgresTools]:
    """Run the embedded Postgres of this directory until the block ends. The caller holds the data directory's lock."""
    async with trio.open_nursery() as nursery:
        options = EmbeddedPostgresOptions(
            directory=cluster, log_path=logs / "postgres.log", run_as=settings.database_account
        )
        yield PostgresTools(await nursery.start(run_embedded_postgres, options))
        nursery.cancel_scope.cancel()


async def _require_matching_secrets(tools: PostgresTools, copy: Path, path: Path) -> None:
    """Refuse a file of secrets that are not those of the database: no server would start on such a backup."""
    if not await tools.query("SELECT to_regclass('secrets_fingerprint')"):
        return  # of a version before it was stored
    secrets, stored = stored_secrets(copy), await tools.query("SELECT fingerprint FROM secrets_fingerprint")
    if secrets is not None and stored and stored != secrets.fingerprint:
        raise BackupError(
            f"The secrets in {path} are not those of the database, and no server would start on this backup. Put the "
            "right file back. If it was replaced on purpose, run `sightline secrets accept` first."
        )


async def _collect(settings: Settings, directory: Path, tools: PostgresTools, draft: Path) -> Manifest:
    shutil.copyfile(settings.secrets_path, draft / SECRETS_FILE)
    with ExitStack() as stack:
        mining = ExitStack()
        stack.enter_context(mining)
        has_chain = settings.chain_rpc_url is None
        if has_chain:
            mining.enter_context(hold_mining(directory / CHAIN_FILE))
        async with tools.open_snapshot() as snapshot:
            chain: ChainSnapshot | None = None
            if has_chain:
                chain = stack.enter_context(open_chain_snapshot(directory / CHAIN_FILE))
            mining.close()
            if chain is not None:
                (draft / CHAIN_FILE).parent.mkdir()
                shutil.copyfile(directory / CHAIN_KEYS_FILE, draft / CHAIN_KEYS_FILE)
                chain.write(draft / CHAIN_FILE)
                # Pages are copied as they are, and the server may not have read the damaged ones.
                if (problem := find_problem(draft / CHAIN_FILE)) is not None:
                    file = directory / CHAIN_FILE
                    raise BackupError(
                        f"The file of the embedded chain is damaged, {file}: {problem}. To get it back, {RESTORE}. "
                        "Keep the backups that you have."
                    )
            await tools.dump(snapshot, draft / DATABASE)
    await _require_matching_secrets(tools, draft / SECRETS_FILE, settings.secrets_path)
    evidence = tuple(name for name in EVIDENCE_FILES if (directory / name).exists())
    for name in evidence:
        (draft / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(directory / name, draft / name)
    if settings.withdrawals_path.exists():
        shutil.copyfile(settings.withdrawals_path, draft / WITHDRAWALS_FILE)
        evidence = (WITHDRAWALS_FILE, *evidence)
    members = (DATABASE, SECRETS_FILE, *((CHAIN_FILE, CHAIN_KEYS_FILE) if has_chain else ()), *evidence)
    return Manifest(
        format=FORMAT,
        created_at=datetime.fromtimestamp(SystemClock().now_ms() // 1_000, UTC).isoformat(),
        version=version("sightline-live"),
        migration=await tools.query(NEWEST_MIGRATION),
        chain_head=None if chain is None else chain.head,
        sha256={name: file_digest(draft / name) for name in members},
    )
