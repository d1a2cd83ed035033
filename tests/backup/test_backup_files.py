"""Backup and restore refuse bad input, and then nothing is written."""

import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from sightline.bootstrap.maintenance.archive import read_archive
from sightline.bootstrap.maintenance.backup import run_backup
from sightline.bootstrap.maintenance.restore import DRAFT, run_restore
from sightline.bootstrap.observability.last_backup import last_backup_ms
from sightline.bootstrap.process import kept_parts
from sightline.config import Settings
from sightline.system.data_directory import PartMissingError, check_parts

ARCHIVE: Final = Path(__file__).parent / "data" / "0d99db6.backup"


def cut_off(source: Path, target: Path) -> None:
    target.write_bytes(source.read_bytes()[:30_000])


def with_another_chain(source: Path, target: Path) -> None:
    """Copy an archive with one byte of the chain changed, so that only the checksum can tell."""
    members = target.with_name("members")
    with tarfile.open(source) as archive:
        names = archive.getnames()
        archive.extractall(members, filter="data")
    chain = bytearray((members / "chain/chain.sqlite").read_bytes())
    chain[5_000] ^= 1
    (members / "chain/chain.sqlite").write_bytes(chain)
    with tarfile.open(target, "w:gz") as archive:
        for name in names:
            archive.add(members / name, arcname=name)


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


@pytest.mark.parametrize("spoil", [cut_off, with_another_chain, without_manifest, not_an_archive])
def test_restore_refuses_a_file_that_is_damaged_or_no_backup(
    spoil: Callable[[Path, Path], None], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    spoil(ARCHIVE, tmp_path / "spoilt")
    settings = Settings(data_dir=tmp_path / "data")
    assert run_restore(settings, tmp_path / "spoilt") == 1
    said = capfd.readouterr().err
    assert said.startswith("Nothing was restored: ")
    assert said.count("\n") == 1
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["server.lock"], "the refused file left something"


def test_no_server_starts_on_a_restore_that_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(data_dir=tmp_path / "data")

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sightline.bootstrap.maintenance.restore._move_into_place", full_disk)
    assert run_restore(settings, ARCHIVE) == 1
    assert "No space left" in capfd.readouterr().err
    assert (tmp_path / "data" / DRAFT).exists()
    with pytest.raises(PartMissingError):
        check_parts(tmp_path / "data", kept_parts(settings))
    assert run_restore(settings, ARCHIVE) == 1
    assert "holds a restore that did not finish" in capfd.readouterr().err


def test_a_backup_of_an_embedded_chain_is_refused_with_an_external_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    chain = {
        "chain_id": 1,
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
    assert f"Start the server with {start}." in capfd.readouterr().out, "without the directory another one starts"
    assert run_backup(settings, tmp_path / "again") == 0
    assert (tmp_path / "again").stat().st_mode & 0o777 == 0o600
    assert last_backup_ms(settings.data_dir) is not None
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    one, other = read_archive(ARCHIVE, tmp_path / "one"), read_archive(tmp_path / "again", tmp_path / "other")
    assert (one.chain_head, one.migration) == (other.chain_head, other.migration)
    assert one.sha256["secrets.json"] == other.sha256["secrets.json"]
    assert one.sha256["chain/keys.json"] == other.sha256["chain/keys.json"]


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
