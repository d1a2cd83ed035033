"""Build the options of the bus from the settings."""

from sightline.bootstrap.start_errors import check_setting
from sightline.bus.nats import NatsOptions, client_tls
from sightline.config import Settings


def nats_options(settings: Settings, incarnation: str) -> NatsOptions:
    """Build the options of the NATS client. SIGHTLINE_NATS_URL must be set.

    Raises:
        StartError: A file of the TLS settings cannot be used.
    """
    tls = None
    if settings.nats_ca is not None or settings.nats_cert is not None:
        with check_setting("SIGHTLINE_NATS_CA, SIGHTLINE_NATS_CERT or SIGHTLINE_NATS_KEY"):
            tls = client_tls(settings.nats_ca, settings.nats_cert, settings.nats_key)
    if settings.nats_credentials is not None:
        with check_setting("SIGHTLINE_NATS_CREDENTIALS"):
            settings.nats_credentials.read_bytes()
    return NatsOptions(
        servers=settings.nats_servers,
        cluster=settings.cluster,
        incarnation=incarnation,
        tls=tls,
        credentials=settings.nats_credentials,
        start_timeout_s=settings.startup_timeout_seconds,
    )
