"""The `restore` command: make a data directory, or fill an external database, from a backup file.

The parts are made in a directory of their own, which is removed last. No server starts while it is there, so none
starts on a restore that was interrupted.
"""

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

import trio

from sightline.bootstrap.maintenance.archive import (
    CHAIN_FILE,
    DATABASE,
    SECRETS_FILE,
    WITHDRAWALS_FILE,
    BackupError,
    Manifest,
    read_archive,
)
from sightline.bootstrap.maintenance.backup import failure_line, open_stopped_database
from sightline.bootstrap.maintenance.chain_checks import settings_of_chain
from sightline.bootstrap.process import kept_parts
from sightline.chain.embedded.copy import find_problem
from sightline.config import Settings
from sightline.config.shell_lines import shell_line
from sightline.ports.identity import Withdrawal
from sightline.storage.database.migrate import known_migrations
from sightline.storage.embedded.dump import PostgresTools
from sightline.storage.postgres.operations.withdrawals import apply_statements
from sightline.system.data_directory import CLUSTER, UNFINISHED_RESTORE, write_parts
from sightline.system.files import sync_directory
from sightline.system.lock import LOCK_NAME, lock_directory
from sightline.system.withdrawal_file import append_withdrawals, merged, read_withdrawals

IGNORED: Final = frozenset({LOCK_NAME, "lost+found", WITHDRAWALS_FILE})
"""Entries of a directory that counts as empty: a new file system has the second, and the third is applied and kept."""
END_SIGN_INS: Final = """
WITH ended AS (UPDATE wallet_session SET ended_at_ms = (extract(epoch FROM clock_timestamp()) * 1000)::bigint
  WHERE ended_at_ms IS NULL RETURNING session_id) SELECT count(*) FROM ended
"""
HAS_TABLE: Final = "SELECT to_regclass('{}') IS NOT NULL"
HAS_TABLES: Final = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'"


class DatabaseFilledError(Exception):
    """The external database was filled, and what must follow failed."""


def run_restore(settings: Settings, source: Path, withdrawals: Sequence[Path] = ()) -> int:
    """Restore a backup into an empty data directory. Returns the exit code.

    Args:
        withdrawals: Files of withdrawals of the servers that used the database until now.
    """
    os.umask(0o077)
    try:
        manifest, applied = trio.run(restore_backup, settings, source, withdrawals)
    except DatabaseFilledError as error:
        sys.stderr.write(
            f"The restore did not finish: {error}. The database of SIGHTLINE_DATABASE_URL is filled, and keys, members "
            "and sign-ins that were ended after the backup may be valid in it: start no server on it. Make an empty "
            f"database, move {settings.withdrawals_path} to another place, remove {settings.data_dir}, and restore "
            "again with --withdrawals and that file.\n"
        )
        return 1
    except Exception as error:  # noqa: BLE001  every failure becomes one line and an exit code
        sys.stderr.write(f"Nothing was restored: {failure_line(error)}\n")
        return 1
    sys.stdout.write(
        f"restored into {settings.data_dir}: state of {manifest.created_at}, migration {manifest.migration}, "
        f"chain head {manifest.chain_head}. {_how_to_start(settings, manifest)}\n"
        + "".join(f"{line}\n" for line in applied)
    )
    return 0


def _how_to_start(settings: Settings, manifest: Manifest) -> str:
    """Return the command that starts a server on the restored directory, with the settings that its chain requires.

    A backup holds no settings; what the first start fixed for good is read from the embedded chain.
    """
    needed = settings_of_chain(settings) if CHAIN_FILE in manifest.sha256 else {}
    start = " ".join([*(f"{name}={value}" for name, value in needed.items()), shell_line(settings, "serve")])
    said = [f"Start the server with `{start}`."]
    if needed:
        said.append(
            f"Keep {' and '.join(needed)} in its settings: the chain was made so, and a start without is refused."
        )
    if manifest.migration not in {migration.name for migration in known_migrations()}:
        said.append(
            "This version does not know that migration. If it refuses to start, install the version of the backup."
        )
    return " ".join(said)


async def restore_backup(
    settings: Settings, source: Path, withdrawals: Sequence[Path] = ()
) -> tuple[Manifest, Sequence[str]]:
    """Restore a backup file, end all sign-ins in it, and apply the withdrawals that it lacks.

    Returns:
        The manifest, and what was ended and applied, for people.

    Raises:
        BackupError: The directory or the external database is not empty, or the file does not fit the settings.
        DumpError, OSError: A part cannot be restored.
        DatabaseFilledError: The external database was filled, and the restore did not finish.
    """
    directory = _empty_directory(settings.data_dir)
    missing = [str(path) for path in withdrawals if not path.is_file()]
    if missing:
        raise BackupError(f"{missing[0]} is not a file (--withdrawals).")
    with lock_directory(directory):
        _require_empty(directory)
        draft = directory / UNFINISHED_RESTORE
        draft.mkdir(exist_ok=True)
        try:
            manifest = await trio.to_thread.run_sync(read_archive, source, draft)
            _require_same_chain(settings, manifest)
            await _require_whole_chain(source, draft / CHAIN_FILE, manifest)
        except BaseException:
            # It stays, empty: a script that goes on and starts a server must not start an empty service here.
            shutil.rmtree(draft)
            draft.mkdir()
            raise
        # A backup of an earlier version lacks the parts that did not exist then; the first start creates them.
        write_parts(
            directory, [part for part in kept_parts(settings) if part is CLUSTER or part.path in manifest.sha256]
        )
        # What was true before the backup, at the place of this server, and what the caller gives.
        known = [draft / WITHDRAWALS_FILE, settings.withdrawals_path, *withdrawals]
        entries = merged(*[await trio.to_thread.run_sync(read_withdrawals, path) for path in known])
        _keep_withdrawals(settings.withdrawals_path, entries)
        applied = await _restore_database(settings, draft, directory, entries)
        with _after_the_database(settings):
            _move_into_place(draft, directory)
    newer = sum(datetime.fromisoformat(manifest.created_at).timestamp() * 1_000 < entry.at_ms for entry in entries)
    if not newer:
        known_none = "No revocation, removal or suspension from after the backup is known."
        again = (
            f"If the old server had some, remove {directory} and restore again with "
            f"--withdrawals OLD/{WITHDRAWALS_FILE}."
        )
        applied.append(known_none if withdrawals else f"{known_none} {again}")
    return manifest, applied


def _keep_withdrawals(path: Path, entries: Sequence[Withdrawal]) -> None:
    """Append what the file lacks; it is never replaced."""
    known = frozenset(read_withdrawals(path))
    new = [entry for entry in entries if entry not in known]
    if new:
        append_withdrawals(path, new)


def _empty_directory(path: Path) -> Path:
    directory = path.resolve()
    _require_empty(directory)
    return directory


def _require_empty(directory: Path) -> None:
    entries = [] if not directory.exists() else sorted(path.name for path in directory.iterdir())
    found = [name for name in entries if name not in IGNORED]
    if found == [UNFINISHED_RESTORE] and not any((directory / UNFINISHED_RESTORE).iterdir()):
        return  # an earlier restore was refused before it wrote anything
    if UNFINISHED_RESTORE in found:
        raise BackupError(
            f"{directory} holds a restore that did not finish. Move its {WITHDRAWALS_FILE}, if it has one, to another "
            "place, remove the directory, and restore again with --withdrawals and that file."
        )
    if found:
        raise BackupError(f"{directory} is not empty (it has {found[0]}). Restore into a new directory (--data-dir).")


def _require_same_chain(settings: Settings, manifest: Manifest) -> None:
    if settings.chain_rpc_url is None and CHAIN_FILE not in manifest.sha256:
        raise BackupError("The backup belongs to an external chain. Set the same SIGHTLINE_CHAIN_* as the server had.")
    if settings.chain_rpc_url is not None and CHAIN_FILE in manifest.sha256:
        raise BackupError("The backup holds an embedded chain. Restore it without SIGHTLINE_CHAIN_RPC_URL.")


async def _require_whole_chain(source: Path, chain: Path, manifest: Manifest) -> None:
    if CHAIN_FILE not in manifest.sha256:
        return
    if (problem := await trio.to_thread.run_sync(find_problem, chain)) is not None:
        raise BackupError(f"The chain in {source} is damaged: {problem}. Use another backup.")


async def _restore_database(
    settings: Settings, draft: Path, directory: Path, withdrawals: Sequence[Withdrawal]
) -> list[str]:
    if settings.database_url is None:
        async with open_stopped_database(settings, draft / "postgres", directory / "log") as tools:
            await tools.restore(draft / DATABASE)
            return await _take_away(tools, withdrawals)
    tools = PostgresTools(settings.database_url.get_secret_value())
    if await tools.query(HAS_TABLES) != "0":
        raise BackupError("The database of SIGHTLINE_DATABASE_URL is not empty. Restore into a new database.")
    await tools.restore(draft / DATABASE)
    with _after_the_database(settings):
        return await _take_away(tools, withdrawals)


@contextmanager
def _after_the_database(settings: Settings) -> Iterator[None]:
    """Name what fails in the block as a failure after the external database was filled."""
    try:
        yield
    except Exception as error:
        if settings.database_url is None:
            raise
        raise DatabaseFilledError(failure_line(error)) from error


async def _take_away(tools: PostgresTools, withdrawals: Sequence[Withdrawal]) -> list[str]:
    """End all sign-ins, and apply withdrawals; returns what was done."""
    said = []
    if await tools.query(HAS_TABLE.format("wallet_session")) == "t":
        said.append(f"sign-ins ended: {await tools.query(END_SIGN_INS)}; everybody signs in again")
    if not withdrawals:
        return said
    if await tools.query(HAS_TABLE.format("invitation")) != "t":  # the database of an earlier version
        return [*said, f"{len(withdrawals)} withdrawals are applied when the server starts"]
    return said + [f"withdrawals: {await tools.query(statement)}" for statement in apply_statements(withdrawals)]


def _move_into_place(draft: Path, directory: Path) -> None:
    (draft / DATABASE).unlink()
    for name in ("chain", "evidence", SECRETS_FILE, "postgres"):
        if (draft / name).exists():
            (draft / name).rename(directory / name)
            sync_directory(directory)
    shutil.rmtree(draft)
