"""Connect to the NATS servers that the settings name."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sightline.bootstrap.start_errors import check_setting
from sightline.bus.nats import NatsBus, NatsOptions, client_tls, open_nats_bus
from sightline.config import Settings


@asynccontextmanager
async def open_bus(settings: Settings, incarnation: str) -> AsyncIterator[NatsBus]:
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
        tls=_tls(settings),
        credentials=settings.nats_credentials,
        start_timeout_s=settings.startup_timeout_seconds,
    )
    async with open_nats_bus(options) as bus:
        yield bus


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if settings.nats_ca is None and settings.nats_cert is None:
        return None
    with check_setting("SIGHTLINE_NATS_CA, SIGHTLINE_NATS_CERT or SIGHTLINE_NATS_KEY"):
        return client_tls(settings.nats_ca, settings.nats_cert, settings.nats_key)
