"""Metrics of disk, backups and certificate: read from real files, and left out where there are none."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sightline.bootstrap.observability.host_metrics import host_metrics
from sightline.bootstrap.observability.last_backup import note_backup
from sightline.config import Settings
from tests.http.server.certificate import write_certificate


def values(settings: Settings) -> dict[str, object]:
    return {family.name: family.values for family in host_metrics(settings)}


def settings_of(directory: Path) -> Settings:
    tls = write_certificate(directory)
    return Settings(data_dir=directory, tls_cert=Path(tls.cert_file), tls_key=Path(tls.key_file))


def test_a_server_without_backup_and_certificate_has_its_free_disk_only(tmp_path: Path) -> None:
    read = values(Settings(data_dir=tmp_path))
    assert read.keys() == {"disk_free_bytes"}
    assert read["disk_free_bytes"] == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.1)


def test_a_directory_that_cannot_be_read_has_no_figures(tmp_path: Path) -> None:
    assert values(Settings(data_dir=tmp_path / "gone")) == {}


def test_the_last_backup_and_the_end_of_the_certificate_are_shown(tmp_path: Path) -> None:
    note_backup(tmp_path, 1_790_000_000_500)
    read = values(settings_of(tmp_path))
    assert read["backup_timestamp_seconds"] == 1_790_000_000.5
    ends = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=36_500)
    assert read["tls_not_after_seconds"] == ends.timestamp()


def test_a_damaged_mark_and_certificate_are_left_out(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    (tmp_path / "cert.pem").write_text("no certificate")
    (tmp_path / "last_backup").write_text("yesterday")
    assert values(settings).keys() == {"disk_free_bytes"}
