"""Choose and open the video backend that the settings name."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sightline.bootstrap.options.core import video_options
from sightline.cluster.membership import ServiceMember
from sightline.cluster.video.backend import ClusterBackend, open_cluster_backend
from sightline.cluster.video.peers import RemoteVideoPeers
from sightline.config import Settings
from sightline.ports.clock import Clock
from sightline.ports.ids import Ids
from sightline.ports.video import LocalVideo, WatchAccess
from sightline.system.secrets import Secrets
from sightline.video.embedded import open_embedded
from sightline.video.external.cloudflare import Cloudflare, CloudflareOptions
from sightline.video.external.engine import Engine, open_external
from sightline.video.external.mediamtx import MediaMtx, MediaMtxOptions
from sightline.video.worker_template import WorkerTemplate


def external_engine(settings: Settings, secrets: Secrets, clock: Clock, access: WatchAccess) -> Engine | None:
    """Create the adapter of the external media server; None if embedded. `Settings` has checked what it needs."""
    if settings.video_backend == "mediamtx":
        assert settings.video_mediamtx_url is not None
        assert settings.video_mediamtx_api_url is not None
        options = MediaMtxOptions(
            media_url=settings.video_mediamtx_url.rstrip("/"),
            api_url=settings.video_mediamtx_api_url.rstrip("/"),
            secret=secrets.video_secret,
        )
        return MediaMtx(options, clock=clock, access=access)
    if settings.video_backend == "cloudflare":
        token, hook = settings.video_cloudflare_token, settings.video_cloudflare_hook_secret
        assert settings.video_cloudflare_account is not None
        assert token is not None
        return Cloudflare(
            CloudflareOptions(
                account_id=settings.video_cloudflare_account,
                api_token=token.get_secret_value(),
                webhook_secret="" if hook is None else hook.get_secret_value(),
            )
        )
    return None


@asynccontextmanager
async def open_video_backend(
    settings: Settings,
    secrets: Secrets,
    public_url: str,
    template: WorkerTemplate,
    *,
    clock: Clock,
    access: WatchAccess,
) -> AsyncIterator[LocalVideo]:
    """Run the chosen video backend until the block ends. It asks `access` who may watch."""
    options = video_options(settings, secrets, public_url)
    engine = external_engine(settings, secrets, clock, access)
    if engine is None:
        async with open_embedded(options, template, clock=clock, access=access) as embedded:
            yield embedded
    else:
        async with open_external(engine, options, template, clock=clock) as external:
            yield external


@asynccontextmanager
async def join_video(
    own: LocalVideo, membership: ServiceMember, *, secrets: Secrets, clock: Clock, ids: Ids
) -> AsyncIterator[ClusterBackend]:
    """Join the video of this server with that of the other servers of its service."""
    peers = RemoteVideoPeers(membership.peers, membership.owned.owns)
    url, secret = membership.server.url, secrets.servers_key
    async with open_cluster_backend(own, peers, url=url, secret=secret, clock=clock, ids=ids) as video:
        yield video
