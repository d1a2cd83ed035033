"""Metrics of what a server needs from its host and its operators: disk, backups, certificate."""

import shutil
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from cryptography import x509

from sightline.bootstrap.observability.last_backup import last_backup_ms
from sightline.config import Settings
from sightline.http.metrics import MetricFamily


def host_metrics(settings: Settings) -> Iterator[MetricFamily]:
    """Read the values; one that cannot be read is left out."""
    try:
        free = shutil.disk_usage(settings.data_dir).free
    except OSError:
        pass
    else:
        yield MetricFamily("disk_free_bytes", "Free bytes on the disk of the data directory", free)
    made_at_ms = last_backup_ms(settings.data_dir)
    if made_at_ms is not None:
        yield MetricFamily(
            "backup_timestamp_seconds",
            "When `sightline backup` last wrote a file of this directory",
            made_at_ms / 1_000,
        )
    if settings.tls_cert is not None:
        try:
            ends_s = _not_after_s(settings.tls_cert, settings.tls_cert.stat().st_mtime_ns)
        except (OSError, ValueError):
            return
        yield MetricFamily("tls_not_after_seconds", "When the certificate of the public listener ends", ends_s)


@lru_cache(maxsize=2)
def _not_after_s(certificate: Path, _modified_ns: int) -> float:
    """The end of the first certificate of a file, read again when the file has changed."""
    return x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc.timestamp()
