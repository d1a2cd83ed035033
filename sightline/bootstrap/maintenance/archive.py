"""The backup file: a tar file with a manifest, the dump of the database, the chain's file, and the keys.

Members in order: manifest.json, database.dump, secrets.json, with an embedded chain chain/chain.sqlite and
chain/keys.json, and the root that signs frames. The manifest has the SHA-256 of every other member.
"""

import hashlib
import os
import shutil
import tarfile
import zlib
from pathlib import Path
from typing import Final, final

import orjson
from msgspec.structs import asdict

from sightline.domain.value import Value
from sightline.system.files import sync_directory

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
DATABASE: Final = "database.dump"
SECRETS_FILE: Final = "secrets.json"
CHAIN_FILE: Final = "chain/chain.sqlite"
CHAIN_KEYS_FILE: Final = "chain/keys.json"
EVIDENCE_FILES: Final = ("evidence/root_key.pem", "evidence/root.pem")
WITHDRAWALS_FILE: Final = "withdrawals.jsonl"
MEMBERS: Final = (DATABASE, SECRETS_FILE, CHAIN_FILE, CHAIN_KEYS_FILE, WITHDRAWALS_FILE, *EVIDENCE_FILES)


class BackupError(Exception):
    """A backup or a restore cannot be made; the message is one line that says what to do."""


@final
class Manifest(Value, kw_only=True):
    """What a backup file holds."""

    format: int
    created_at: str
    """ISO 8601, UTC."""
    version: str
    """Version of Sightline that wrote the file."""
    migration: str
    """Newest migration of the database."""
    chain_head: int | None
    """Newest block of the embedded chain; None with an external chain."""
    sha256: dict[str, str]
    """Digest of each member by name."""


def write_archive(target: Path, manifest: Manifest, source: Path) -> None:
    """Write the members below `source` into a new file. It appears complete or not at all.

    Raises:
        OSError: The file cannot be written, or exists already.
    """
    partial = target.with_name(f".{target.name}.partial")
    partial.unlink(missing_ok=True)
    (source / MANIFEST).write_bytes(orjson.dumps(asdict(manifest)))
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            with tarfile.open(fileobj=out, mode="w:gz", compresslevel=6) as archive:
                for name in (MANIFEST, *manifest.sha256):
                    archive.add(source / name, arcname=name, filter=_anonymous)
            out.flush()
            os.fsync(out.fileno())
        os.link(partial, target)  # unlike a rename, fails if the target exists
    finally:
        partial.unlink(missing_ok=True)
    sync_directory(target.parent)


def read_archive(source: Path, into: Path) -> Manifest:
    """Extract a backup file into a directory and verify every member.

    Raises:
        BackupError: The file is not a backup, is damaged, or was written by a newer version.
    """
    try:
        with tarfile.open(source, mode="r:gz") as archive:
            manifest = _read_manifest(archive)
            for name in manifest.sha256:
                _extract(archive, name, into / name)
    except (tarfile.TarError, zlib.error, EOFError, OSError, ValueError, KeyError) as error:
        reason = "a part of it is missing" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise BackupError(f"{source} is not a complete Sightline backup: {reason}. Use another backup.") from error
    for name, digest in manifest.sha256.items():
        path = into / name
        path.chmod(0o600)
        if file_digest(path) != digest:
            raise BackupError(f"{source} is damaged: {name} differs from its checksum. Use another backup.")
    return manifest


def _extract(archive: tarfile.TarFile, name: str, target: Path) -> None:
    """Write the content of a member, whose name is one of `MEMBERS`. Nothing else of it is used: it may be hostile."""
    member = archive.extractfile(name)
    if member is None:
        raise ValueError(f"{name} is no file")
    target.parent.mkdir(exist_ok=True)
    with member, target.open("xb") as out:
        shutil.copyfileobj(member, out)


def _read_manifest(archive: tarfile.TarFile) -> Manifest:
    member = archive.extractfile(MANIFEST)
    if member is None:
        raise ValueError("no manifest")
    content = orjson.loads(member.read())
    try:
        if content["format"] > FORMAT:
            raise ValueError(f"format {content['format']} needs a newer version of Sightline")
        manifest = Manifest(**content)
        unknown = set(manifest.sha256) - set(MEMBERS)
    except (TypeError, AttributeError) as error:
        raise ValueError(f"its manifest is of another form: {error}") from error
    if unknown or DATABASE not in manifest.sha256 or SECRETS_FILE not in manifest.sha256:
        raise ValueError(f"unexpected members: {', '.join(sorted(manifest.sha256))}")
    return manifest


def file_digest(path: Path) -> str:
    """SHA-256 of a file in hex."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out the accounts of this machine."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o600
    return member
