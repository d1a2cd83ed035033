"""Connect to the NATS servers that the settings name, and refuse those that anybody can read or use."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from sightline.bootstrap.failures.errors import StartError, check_setting
from sightline.cluster.bus.nats import NatsBus, NatsOptions, client_tls, open_nats_bus
from sightline.config import Settings
from sightline.system.secrets import Secrets

NATS_ADVICE: Final = (
    "Use tls://TOKEN@HOST:4222 in SIGHTLINE_NATS_URL, with SIGHTLINE_NATS_CA for an authority of your own; or set "
    "SIGHTLINE_NATS_ALLOW_INSECURE=true if only the servers of this service can reach NATS"
)


@asynccontextmanager
async def open_bus(settings: Settings, secrets: Secrets, incarnation: str) -> AsyncIterator[NatsBus]:
    """Connect to NATS, and stay connected until the block ends.

    Raises:
        BusUnavailableError: No NATS server answered.
        StartError: A file of the settings cannot be read.
    """
    if settings.nats_credentials is not None:
        with check_setting("SIGHTLINE_NATS_CREDENTIALS"):
            settings.nats_credentials.read_bytes()
    options = NatsOptions(
        servers=settings.nats_servers,
        cluster=settings.cluster,
        incarnation=incarnation,
        key=secrets.servers_key,
        tls=_tls(settings),
        credentials=settings.nats_credentials,
        start_timeout_s=settings.startup_timeout_seconds,
    )
    async with open_nats_bus(options) as bus:
        yield bus


def require_protected_nats(settings: Settings) -> None:
    """Refuse NATS servers on other machines without TLS or without a credential.

    Raises:
        StartError: They are not protected, and SIGHTLINE_NATS_ALLOW_INSECURE is not set.
    """
    if (reason := unprotected_nats(settings)) is not None and not settings.nats_allow_insecure:
        raise StartError(f"{reason}. {NATS_ADVICE}.")


def unprotected_nats(settings: Settings) -> str | None:
    """What NATS servers on other machines lack; None if nothing. On loopback they need neither TLS nor credential."""
    for url in settings.nats_servers:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if is_loopback(host):
            continue
        has_tls = parts.scheme == "tls" or settings.nats_ca is not None or settings.nats_cert is not None
        has_files = settings.nats_credentials is not None or settings.nats_cert is not None
        lacks = [] if has_tls else ["TLS"]
        lacks += [] if has_files or parts.username else ["credential"]
        if lacks:
            missing = " and no ".join(lacks)
            return f"The NATS server {host} of SIGHTLINE_NATS_URL is on another machine, and has no {missing}"
    return None


def is_loopback(host: str) -> bool:
    """Whether a host of a URL is this machine, by its text."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if settings.nats_ca is None and settings.nats_cert is None:
        return None
    with check_setting("SIGHTLINE_NATS_CA, SIGHTLINE_NATS_CERT or SIGHTLINE_NATS_KEY"):
        return client_tls(settings.nats_ca, settings.nats_cert, settings.nats_key)
