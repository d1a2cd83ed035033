"""Options of the listeners, of the request pipeline and of the resources."""

import resource
from typing import Final

from sightline.bootstrap.listeners.own_tls import CA, FOLDER
from sightline.config import Settings
from sightline.http.budgets import RateLimits
from sightline.http.pipeline.listener_access import AllowedHosts, ListenerAccess
from sightline.http.pipeline.options import PipelineOptions
from sightline.http.server import Limits as HttpLimits
from sightline.http.services import ResourceOptions
from sightline.system.secrets import Secrets

DESCRIPTORS_RESERVED: Final = 64
"""Descriptors reserved for the event loop, files, chain connections, children and their pipes; idle use is about 40."""
INTERNAL_CONNECTIONS_MAX: Final = 16
PEER_CONNECTIONS_MAX: Final = 512
"""Connections on which other servers read frames; one for each of their callers that waits for a frame."""
CONNECTIONS_MIN: Final = 16


def resource_options(settings: Settings, secrets: Secrets) -> ResourceOptions:
    """Build the options of the HTTP resources."""
    media_url = settings.video_mediamtx_url
    return ResourceOptions(
        build_sha=settings.build_sha,
        webhook_secret=secrets.webhook_secret,
        media_urls=() if media_url is None else (media_url,),
        ca_certificate=(settings.data_dir / FOLDER / CA).read_bytes() if settings.tls_auto else None,
        map_tiles_url=settings.map_tiles_url,
        map_attribution=settings.map_attribution,
        map_streets_path=settings.streets_path,
        map_postcodes_path=settings.postcodes_path,
        invoice_issuer=settings.invoice_issuer,
        frame_signing=settings.frame_signing,
        clip_seconds=settings.video_clip_seconds,
        faucet_daily_micro=settings.chain_faucet_daily_micro,
        streams_max=share_of_worker(settings, ResourceOptions().streams_max),
    )


def edge_options(settings: Settings) -> PipelineOptions:
    """Build the options of the public listener's request pipeline."""
    return PipelineOptions(
        public_url=settings.public_url,
        strict_transport_s=settings.strict_transport_s,
        access=ListenerAccess(hosts=public_hosts(settings)),
        rate_limits=RateLimits.parse(settings.rate_budgets, is_enabled=settings.rate_limits),
        log_heartbeat_every=settings.log_heartbeat_every,
    )


def public_hosts(settings: Settings) -> AllowedHosts:
    """The hosts that a Host header may name at the public listener."""
    return AllowedHosts.of(settings.host, settings.public_url, settings.allowed_hosts)


def internal_limits(settings: Settings) -> HttpLimits:
    """Limits of the internal listener."""
    return HttpLimits(connections_max=_internal_connections(settings))


def public_limits(settings: Settings) -> HttpLimits:
    """Limits of the public listener; each worker gets an equal share of those that hold for all.

    Descriptors are left for database, chain and child processes. Without this reserve many clients could take the last
    one, and a child process that ended could not be restarted.
    """
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    reserve = DESCRIPTORS_RESERVED + _internal_connections(settings) + settings.database_pool
    if settings.nats_url is not None:
        reserve += PEER_CONNECTIONS_MAX  # to other servers
    whole = HttpLimits()
    return HttpLimits(
        connections_max=max(CONNECTIONS_MIN, min(share_of_worker(settings, whole.connections_max), soft - reserve)),
        connections_per_ip_max=share_of_worker(settings, whole.connections_per_ip_max),
    )


def share_of_worker(settings: Settings, limit: int) -> int:
    """What one of the workers of a machine may use of a limit that holds for all of them."""
    return max(1, limit // settings.workers)


def _internal_connections(settings: Settings) -> int:
    return INTERNAL_CONNECTIONS_MAX + (PEER_CONNECTIONS_MAX if settings.nats_url is not None else 0)
