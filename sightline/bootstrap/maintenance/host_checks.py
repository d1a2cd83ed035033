"""Checks of the host for `sightline doctor`: data directory, disk, ports, open files, TLS files, UDP."""

import resource
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from cryptography import x509

from sightline.bootstrap.failures.errors import StartError
from sightline.bootstrap.listeners.ports import reserve_ports
from sightline.bootstrap.listeners.tls import check_tls_files
from sightline.bootstrap.maintenance.findings import HostFinding, failed, ok, warning
from sightline.bootstrap.process import kept_parts, others_may_read, require_kept_secrets
from sightline.config import Settings
from sightline.ports.clock import Clock
from sightline.system.data_directory import PartMissingError, check_parts
from sightline.system.lock import LOCK_NAME
from sightline.video.options import NetOptions
from sightline.video.rtc.selftest import run_address_check

MEGABYTE: Final = 1_000_000
DISK_AMPLE_MB: Final = 5_000
FILES_NEEDED: Final = 256
FILES_AMPLE: Final = 8_192
CERTIFICATE_DAYS: Final = 21
DAY_S: Final = 86_400


def check_data_directory(settings: Settings, *, is_running: bool) -> Iterator[HostFinding]:
    """Check existence, permissions, parts and free space of the data directory."""
    directory = settings.data_dir.resolve()
    place = next(path for path in (directory, *directory.parents) if path.exists())
    problem = _write_problem(place)
    if problem is not None:
        detail = f"{place} is not writable: {problem}"
        yield failed("data directory", detail, "Change its owner, or set SIGHTLINE_DATA_DIR")
    elif not directory.exists():
        yield ok("data directory", f"{directory} does not exist yet; the first start creates it")
    else:
        yield _parts(settings, directory, is_running=is_running)
        secrets = settings.secrets_path
        if secrets.exists() and others_may_read(secrets) is not None:
            yield failed("secrets", f"{secrets} can be read by other accounts", f"chmod 600 {secrets}")
        try:
            require_kept_secrets(settings)
        except StartError as error:
            problem, _, remedy = str(error).rpartition(". ")
            yield failed("secrets", problem, remedy.rstrip("."))
    free = shutil.disk_usage(place).free // MEGABYTE
    detail = f"{free} MB free on the file system of {place}"
    if free < settings.ready_disk_free_mb:
        yield failed("disk", detail, f"Free at least {settings.ready_disk_free_mb} MB (SIGHTLINE_READY_DISK_FREE_MB)")
    elif free < DISK_AMPLE_MB:
        yield warning("disk", detail, "Heartbeats of 1,000 devices need 8 GB a day: see docs/ops/database.md")
    else:
        yield ok("disk", detail)


def _write_problem(place: Path) -> str | None:
    """Return the error of creating something in a directory; None if that works.

    Permissions do not say: a file system can refuse what they allow, such as /sys, or one that is mounted read-only.
    """
    try:
        with TemporaryDirectory(prefix=".sightline-doctor-", dir=place):
            return None
    except OSError as error:
        return error.strerror or str(error)


def _parts(settings: Settings, directory: Path, *, is_running: bool) -> HostFinding:
    parts = kept_parts(settings)
    try:
        check_parts(directory, parts)
    except PartMissingError as error:
        return failed("data directory", str(error), "See docs/ops/backup.md")
    except OSError as error:
        remedy = "Make it readable for the account of the server, or run the command as that account"
        return failed("data directory", str(error), remedy)
    if parts and not any((directory / part.path).exists() for part in parts):
        return ok("data directory", f"{directory} has no server's data yet; the first start creates it")
    if not is_running:
        return ok("data directory", f"{directory} is complete; no server runs on it")
    pid = (directory / LOCK_NAME).read_text().strip()
    return ok("data directory", f"{directory} is complete; a server runs on it (pid {pid})")


def check_ports(settings: Settings, *, is_running: bool) -> HostFinding:
    """Check that both listeners can bind."""
    if is_running:
        return ok("ports", "not tried: the running server has them")
    try:
        with reserve_ports(settings) as ports:
            return ok("ports", f"{ports.public_port} and {ports.internal_port} (internal) can be bound")
    except StartError as error:
        problem, _, remedy = str(error).partition(". ")
        return failed("ports", problem, remedy.rstrip(".") or "See docs/ops/run.md")


def check_open_files() -> HostFinding:
    """Check the limit of open files, which the server raises to its hard limit."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = FILES_AMPLE if hard == resource.RLIM_INFINITY else hard
    detail = f"at most {'unlimited' if hard == resource.RLIM_INFINITY else hard} open files"
    if count < FILES_NEEDED:
        return failed("open files", detail, "Set LimitNOFILE=65536 in the unit file (ulimit -Hn)")
    if count < FILES_AMPLE:
        return warning("open files", f"{detail}: each connection takes one", "Set LimitNOFILE=65536 in the unit file")
    return ok("open files", detail)


def check_tls(settings: Settings, clock: Clock) -> Iterator[HostFinding]:
    """Check the TLS files and the remaining life of the certificate."""
    if settings.tls_cert is None:
        is_https = (settings.public_url or "").startswith("https:")
        how = "a proxy ends TLS (SIGHTLINE_PUBLIC_URL)" if is_https else "no TLS: keys are sent in clear text"
        is_local = settings.host in ("127.0.0.1", "::1", "localhost")
        if is_https or is_local:
            yield ok("tls", how if is_https else "no TLS; the listener is on loopback")
        else:
            yield warning("tls", how, "Set SIGHTLINE_TLS_CERT and SIGHTLINE_TLS_KEY, or use a proxy")
        return
    try:
        check_tls_files(settings)
        certificate = x509.load_pem_x509_certificates(settings.tls_cert.read_bytes())[0]
    except (StartError, ValueError) as error:
        yield failed("tls", str(error), "Correct SIGHTLINE_TLS_CERT and SIGHTLINE_TLS_KEY")
        return
    now = datetime.fromtimestamp(clock.now_ms() / 1_000, UTC)
    days = (certificate.not_valid_after_utc - now).total_seconds() / DAY_S
    if days < 0 or certificate.not_valid_before_utc > now:
        yield failed("tls", f"the certificate is valid until {certificate.not_valid_after_utc:%F}", "Renew it")
    elif days < CERTIFICATE_DAYS:
        yield warning("tls", f"the certificate ends in {days:.0f} days", "Renew it and restart the server")
    else:
        yield ok("tls", f"the key fits the certificate, which is valid for {days:.0f} more days")


def check_udp(settings: Settings, *, is_running: bool) -> Iterator[HostFinding]:
    """Send a datagram to each address that is sent to clients."""
    if settings.video_backend != "embedded":
        yield ok("udp", f"not needed: media goes to {settings.video_backend}")
        return
    if is_running and settings.video_udp_port_min:
        yield ok("udp", "not tried: the running server has the ports; see media_self_test_failed in its log")
        return
    net = NetOptions(
        bind_addresses=settings.video_bind_addresses,
        advertised_addresses=settings.video_advertised_addresses,
        udp_port_min=settings.video_udp_port_min,
        udp_port_max=settings.video_udp_port_max,
        ipv6=settings.video_ipv6,
    )
    remedy = "Open the UDP ports; set SIGHTLINE_VIDEO_ADVERTISED_ADDRESSES to the public address; see docs/ops/video.md"
    for row in run_address_check(net):
        name = f"{row.bind} as {row.advertised}"
        if row.ok:
            yield ok("udp", f"{name}: a datagram from this host arrives. A firewall in front of it is not tested")
        else:
            yield warning("udp", f"{name}: {row.problem}", remedy)
