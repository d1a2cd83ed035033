"""Backup and restore refuse bad input, and then nothing is written."""

import base64
import json
import os
import shutil
import sqlite3
import sys
import tarfile
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from sightline.bootstrap.maintenance.accept_database import run_accept_database
from sightline.bootstrap.maintenance.accept_secrets import run_accept_secrets
from sightline.bootstrap.maintenance.archive import (
    CHAIN_FILE,
    CHAIN_KEYS_FILE,
    DATABASE,
    BackupError,
    file_digest,
    read_archive,
    write_archive,
)
from sightline.bootstrap.maintenance.backup import run_backup
from sightline.bootstrap.maintenance.doctor import run_doctor
from sightline.bootstrap.maintenance.restore import run_restore
from sightline.bootstrap.observability.last_backup import last_backup_ms
from sightline.bootstrap.process import kept_parts, prepare
from sightline.config import Settings
from sightline.domain.value import replace
from sightline.system.data_directory import (
    UNFINISHED_RESTORE,
    OtherAccountError,
    PartMissingError,
    check_parts,
    record_parts,
)
from sightline.system.server_address_file import write_server_addresses
from tests.chain.evm import an_evm

ARCHIVE: Final = Path(__file__).parent / "data" / "0d99db6.backup"
NEWEST: Final = Path(__file__).parent / "data" / "17e87ec.backup"


def cut_off(source: Path, target: Path) -> None:
    target.write_bytes(source.read_bytes()[:30_000])


def with_another_chain(source: Path, target: Path) -> None:
    """Copy an archive with one byte of the chain changed, so that only the checksum can tell."""
    members = target.with_name("members")
    with tarfile.open(source) as archive:
        names = archive.getnames()
        archive.extractall(members)
    chain = bytearray((members / "chain/chain.sqlite").read_bytes())
    chain[5_000] ^= 1
    (members / "chain/chain.sqlite").write_bytes(chain)
    with tarfile.open(target, "w:gz") as archive:
        for name in names:
            archive.add(members / name, arcname=name)


def with_another_byte(source: Path, target: Path) -> None:
    """Copy an archive with one byte changed in the middle, where gzip notices."""
    changed = bytearray(source.read_bytes())
    changed[len(changed) // 2] ^= 0xFF
    target.write_bytes(changed)


def with_a_link(source: Path, target: Path) -> None:
    """Copy an archive in which the database is a link to a file of this machine."""
    with tarfile.open(source) as archive, tarfile.open(target, "w:gz") as spoilt:
        for member in archive:
            if member.name == DATABASE:
                member.type, member.linkname, member.size = tarfile.SYMTYPE, "/etc/hostname", 0
                spoilt.addfile(member)
            else:
                spoilt.addfile(member, archive.extractfile(member))


def without_manifest(_source: Path, target: Path) -> None:
    with tarfile.open(target, "w:gz") as archive:
        archive.add(__file__, arcname="other")


def not_an_archive(_source: Path, target: Path) -> None:
    target.write_text("text")


def test_restore_refuses_a_directory_with_content(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "precious").write_text("kept")
    assert run_restore(Settings(data_dir=tmp_path / "data"), ARCHIVE) == 1
    assert "is not empty (it has precious)" in capfd.readouterr().err
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["precious"]


@pytest.mark.parametrize(
    "spoil", [cut_off, with_another_byte, with_another_chain, with_a_link, without_manifest, not_an_archive]
)
def test_restore_refuses_a_file_that_is_damaged_or_no_backup(
    spoil: Callable[[Path, Path], None], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    spoil(ARCHIVE, tmp_path / "spoilt")
    settings = Settings(data_dir=tmp_path / "data")
    assert run_restore(settings, tmp_path / "spoilt") == 1
    said = capfd.readouterr().err
    assert said.startswith("Nothing was restored: ")
    assert said.count("\n") == 1
    left = sorted(path.name for path in (tmp_path / "data").rglob("*"))
    assert left == [UNFINISHED_RESTORE, "server.lock"], "the refused file left something"


def test_after_a_backup_that_was_refused_no_server_starts_empty_and_another_backup_is_restored(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(data_dir=tmp_path / "data")
    assert run_restore(settings, tmp_path / "mistyped") == 1
    assert "No such file" in capfd.readouterr().err
    with pytest.raises(PartMissingError, match="holds a restore that failed or did not finish"):
        check_parts(tmp_path / "data", kept_parts(settings))
    assert run_restore(settings, ARCHIVE) == 0
    check_parts(tmp_path / "data", kept_parts(settings))


def test_a_changed_byte_anywhere_in_a_backup_is_told_or_changes_nothing(tmp_path: Path) -> None:
    whole = ARCHIVE.read_bytes()
    right = read_archive(ARCHIVE, tmp_path / "right")
    told = 0
    for at in range(0, len(whole), len(whole) // 150):
        changed = bytearray(whole)
        changed[at] ^= 0xFF
        (tmp_path / "spoilt").write_bytes(changed)
        try:
            assert read_archive(tmp_path / "spoilt", tmp_path / str(at)) == right
        except BackupError as error:
            assert str(error).endswith("Use another backup.")  # noqa: PT017  most changes are told, not all
            told += 1
    assert told > 140


def test_no_server_starts_while_the_files_of_a_backup_are_read(tmp_path: Path) -> None:
    """As after a kill: the list of parts is not there yet."""
    (tmp_path / UNFINISHED_RESTORE).mkdir()
    with pytest.raises(PartMissingError, match="holds a restore that failed or did not finish"):
        check_parts(tmp_path, kept_parts(Settings(data_dir=tmp_path)))


def test_no_server_starts_on_a_restore_that_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(data_dir=tmp_path / "data")

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sightline.bootstrap.maintenance.restore._move_into_place", full_disk)
    assert run_restore(settings, ARCHIVE) == 1
    assert "No space left" in capfd.readouterr().err
    assert (tmp_path / "data" / UNFINISHED_RESTORE).exists()
    with pytest.raises(PartMissingError):
        check_parts(tmp_path / "data", kept_parts(settings))
    assert run_restore(settings, ARCHIVE) == 1
    assert "holds a restore that did not finish" in capfd.readouterr().err


def test_a_backup_of_an_embedded_chain_is_refused_with_an_external_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    chain = {
        "chain_id": 11_155_111,
        "chain_usdc_address": f"0x{1:040x}",
        "chain_settlement_address": f"0x{2:040x}",
        "chain_relayer_key": "00",
    }
    settings = Settings.model_validate({"data_dir": tmp_path / "data", "chain_rpc_url": "http://127.0.0.1:1", **chain})
    assert run_restore(settings, ARCHIVE) == 1
    assert "holds an embedded chain" in capfd.readouterr().err


def test_a_backup_of_a_stopped_server_is_the_data_that_was_restored(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(data_dir=tmp_path / "data of today")
    assert run_restore(settings, ARCHIVE) == 0
    start = f"`sightline serve --data-dir '{settings.data_dir}'`"
    said = capfd.readouterr().out
    assert f"Start the server with {start}." in said, "without the directory another one starts"
    assert "This version does not know" not in said
    assert run_backup(settings, tmp_path / "again") == 0
    assert (tmp_path / "again").stat().st_mode & 0o777 == 0o600
    assert last_backup_ms(settings.data_dir) is not None
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    one, other = read_archive(ARCHIVE, tmp_path / "one"), read_archive(tmp_path / "again", tmp_path / "other")
    assert (one.chain_head, one.migration) == (other.chain_head, other.migration)
    assert one.sha256["secrets.json"] == other.sha256["secrets.json"]
    assert one.sha256["chain/keys.json"] == other.sha256["chain/keys.json"]


@pytest.mark.parametrize(
    ("chain", "settings", "said"),
    [
        ({"is_escrow": True}, {"funds_policy": "enforced"}, "SIGHTLINE_FUNDS_POLICY=escrow "),
        ({"is_escrow": True}, {"funds_policy": "escrow"}, ""),
        ({"is_escrow": False}, {"funds_policy": "escrow"}, "SIGHTLINE_FUNDS_POLICY=advisory "),
        ({"is_escrow": True, "chain_id": 7}, {}, "SIGHTLINE_CHAIN_ID=7 SIGHTLINE_FUNDS_POLICY=escrow "),
    ],
)
def test_restore_names_the_settings_without_which_a_start_is_refused(
    chain: dict[str, int], settings: dict[str, str], said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "members").mkdir()
    manifest = read_archive(ARCHIVE, tmp_path / "members")
    for name in (CHAIN_FILE, CHAIN_KEYS_FILE):
        (tmp_path / "members" / name).unlink()
    an_evm(tmp_path / "members/chain", **chain).machine.store.close()
    changed = manifest.sha256 | {
        name: file_digest(tmp_path / "members" / name) for name in (CHAIN_FILE, "chain/keys.json")
    }
    archive = tmp_path / "escrow.backup"
    write_archive(archive, replace(manifest, sha256=changed, migration="9999_later.sql"), tmp_path / "members")
    asked = Settings.model_validate({"data_dir": tmp_path / "data", **settings})
    assert run_restore(asked, archive) == 0
    out = capfd.readouterr().out
    assert f"Start the server with `{said}sightline serve --data-dir {asked.data_dir}`." in out
    assert ("a start without is refused" in out) == bool(said)
    assert "This version does not know that migration." in out


def damage_a_table(chain: Path) -> None:
    """Overwrite a page of the chain's file that holds no block: what reads the newest block does not notice."""
    with closing(sqlite3.connect(chain)) as opened:
        (page,) = opened.execute("SELECT rootpage FROM sqlite_master WHERE name = 'kv'").fetchone()
        (size,) = opened.execute("PRAGMA page_size").fetchone()
    whole = bytearray(chain.read_bytes())
    whole[(page - 1) * size : (page - 1) * size + 64] = b"damaged." * 8
    chain.write_bytes(bytes(whole))


def test_a_damaged_chain_is_not_backed_up_and_the_backup_of_before_stays(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(data_dir=tmp_path / "data")
    assert run_restore(settings, ARCHIVE) == 0
    damage_a_table(settings.data_dir / CHAIN_FILE)
    before = last_backup_ms(settings.data_dir)
    capfd.readouterr()
    assert run_backup(settings, tmp_path / "again") == 1
    said = capfd.readouterr().err
    assert f"The file of the embedded chain is damaged, {settings.data_dir / CHAIN_FILE}" in said
    assert "Keep the backups that you have." in said
    assert not (tmp_path / "again").exists()
    assert last_backup_ms(settings.data_dir) == before


def test_a_backup_of_a_damaged_chain_is_refused_in_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "members").mkdir()
    manifest = read_archive(ARCHIVE, tmp_path / "members")
    damage_a_table(tmp_path / "members" / CHAIN_FILE)
    changed = manifest.sha256 | {CHAIN_FILE: file_digest(tmp_path / "members" / CHAIN_FILE)}
    archive = tmp_path / "damaged.backup"
    write_archive(archive, replace(manifest, sha256=changed), tmp_path / "members")
    settings = Settings(data_dir=tmp_path / "data")
    assert run_restore(settings, archive) == 1
    said = capfd.readouterr().err
    assert len(said.splitlines()) == 1
    assert f"Nothing was restored: The chain in {archive} is damaged" in said
    assert run_restore(settings, ARCHIVE) == 0


def test_a_directory_with_a_space_is_restored_and_backed_up(capfd: pytest.CaptureFixture[str]) -> None:
    # A short path: Postgres has its socket in the directory only if the path of a socket there is not too long.
    with tempfile.TemporaryDirectory(prefix="my ") as place:
        settings = Settings(data_dir=Path(place) / "data")
        assert run_restore(settings, ARCHIVE) == 0, capfd.readouterr().err
        assert run_backup(settings, Path(place) / "again") == 0, capfd.readouterr().err


def test_backup_refuses_to_replace_a_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data").mkdir()
    shutil.copyfile(ARCHIVE, tmp_path / "yesterday")
    assert run_backup(Settings(data_dir=tmp_path / "data"), tmp_path / "yesterday") == 1
    assert "already exists" in capfd.readouterr().err
    assert (tmp_path / "yesterday").read_bytes() == ARCHIVE.read_bytes()


def test_backup_names_the_directory_that_its_file_cannot_be_in(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(data_dir=tmp_path / "data")
    assert run_restore(settings, ARCHIVE) == 0
    (tmp_path / "file").write_text("")
    for parent in (tmp_path / "missing", tmp_path / "file"):
        assert run_backup(settings, parent / "backup") == 1
        said = capfd.readouterr().err
        assert f"{parent} is no directory" in said
        assert ".backup." not in said


def test_backup_refuses_a_directory_without_data(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_backup(Settings(data_dir=tmp_path / "nothing"), tmp_path / "new") == 1
    assert "has no secrets.json" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_lost_database_is_not_backed_up_and_no_empty_one_is_made(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(data_dir=tmp_path / "data")
    assert run_restore(settings, ARCHIVE) == 0
    record_parts(settings.data_dir, kept_parts(settings))
    shutil.rmtree(tmp_path / "data" / "postgres")
    for run in (
        lambda: run_backup(settings, tmp_path / "new"),
        lambda: run_accept_secrets(settings, lambda _: True),
        lambda: run_accept_database(settings, lambda _: True),
    ):
        capfd.readouterr()
        assert run() == 1
        said = capfd.readouterr().err
        assert "postgres/cluster/PG_VERSION is missing, which held all workspaces" in said
        assert said.count("\n") == 1
        assert not (tmp_path / "data" / "postgres").exists()


def test_secrets_that_are_not_those_of_the_database_are_not_backed_up(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(data_dir=tmp_path / "data")
    assert run_restore(settings, NEWEST) == 0
    stored = json.loads(settings.secrets_path.read_text())
    settings.secrets_path.write_text(json.dumps(stored | {"key_pepper": base64.b64encode(b"n" * 32).decode()}))
    assert run_backup(settings, tmp_path / "new") == 1
    assert "are not those of the database, and no server would start on this backup" in capfd.readouterr().err
    assert not (tmp_path / "new").exists()
    assert run_accept_secrets(settings, lambda _: True) == 0
    assert run_backup(settings, tmp_path / "new") == 0


def test_root_changes_nothing_in_the_directory_of_another_account(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(data_dir=tmp_path / "data")
    assert run_restore(settings, ARCHIVE) == 0
    write_server_addresses(settings.data_dir, url="http://127.0.0.1:9", internal_url="http://127.0.0.1:9")
    if os.getuid() == 0:
        os.chown(settings.data_dir / "server.json", 65_534, 65_534)
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    def owners() -> dict[Path, int]:
        return {path: path.lstat().st_uid for path in settings.data_dir.rglob("*")}

    def serve() -> int:
        with pytest.raises(OtherAccountError) as refused, prepare(settings):
            pass
        sys.stderr.write(f"{refused.value}\n")
        return 1

    before = owners()
    for run in (
        serve,
        lambda: run_backup(settings, tmp_path / "new"),
        lambda: run_accept_secrets(settings, lambda _: True),
        lambda: run_doctor(settings, as_json=False, say=lambda line: sys.stderr.write(f"{line}\n")),
    ):
        capfd.readouterr()
        assert run() == 1
        said = capfd.readouterr().err
        assert "could not read what root writes there" in said
        assert "setpriv --reuid=" in said
        assert owners() == before
