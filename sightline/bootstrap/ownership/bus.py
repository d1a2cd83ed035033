"""Connect to the NATS servers that the settings name."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sightline.bootstrap.start_errors import check_setting
from sightline.bus.nats import NatsBus, NatsOptions, open_nats_bus
from sightline.config import Settings


@asynccontextmanager
async def open_bus(settings: Settings, incarnation: str) -> AsyncIterator[NatsBus]:
    """Connect to NATS, and stay connected until the block ends.

    Raises:
        BusUnavailableError: No NATS server answered.
        StartError: A certificate cannot be read.
    """
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
    with check_setting("SIGHTLINE_NATS_CA"):
        context = ssl.create_default_context(cafile=settings.nats_ca)
    if settings.nats_cert is not None:
        with check_setting("SIGHTLINE_NATS_CERT and SIGHTLINE_NATS_KEY"):
            context.load_cert_chain(settings.nats_cert, settings.nats_key)
    return context
