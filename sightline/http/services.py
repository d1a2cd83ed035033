"""The services that the resources call, as bootstrap passes them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias, final

from sightline.actors.service.broker import Broker
from sightline.domain.value import Value, hiding
from sightline.evidence.signing import C2paEvidence
from sightline.http.audit import Audit
from sightline.http.pipeline.stream_tickets import StreamTickets
from sightline.identity.api_keys import ApiKeys, ViewKeys, ViewShares
from sightline.identity.invitations import Invitations
from sightline.identity.members import Members
from sightline.identity.oauth.clients import OAuthClients
from sightline.identity.oauth.grants import Grants
from sightline.identity.sign_in import SignIn
from sightline.identity.wallet_sessions import WalletSessions
from sightline.ports.chain import ChainConfig, PayTestMoney, RpcGuest
from sightline.ports.clock import Clock
from sightline.ports.health import ReadinessCheck
from sightline.ports.ids import Ids
from sightline.ports.ledger import Ledger
from sightline.ports.relations import Relations
from sightline.ports.store import Store
from sightline.ports.video import MediaEvent, VideoBackend
from sightline.webhooks.pushes import PushSubscriptions
from sightline.webhooks.service import WebhookEndpoints

RpcEndpoint: TypeAlias = Callable[[bytes, RpcGuest], Awaitable[bytes]]
"""The guarded JSON-RPC endpoint of the chain: request body to response body. Never raises for invalid input."""


FrameSigning: TypeAlias = Literal["off", "request", "always"]
"""When frames are signed by C2PA: never, when a call asks for it, or always."""


@final
class ResourceOptions(Value, kw_only=True):
    """Settings of the resources."""

    build_sha: str = "unknown"
    keepalive_ms: int = 15_000
    """An event stream sends a comment line after this long without an event."""
    stream_lifetime_ms: int = 3_600_000
    """Maximum duration of a stream; its client reconnects and is authenticated again."""
    streams_max: int = 1_000
    """Maximum concurrent event and frame streams of one workspace."""
    frame_retry_ms: int = 250
    """Delay before the multipart stream looks again when no frame is available."""
    webhook_secret: bytes = b""
    """HMAC key of the video provider's webhooks; empty: webhooks are refused."""
    frame_signing: FrameSigning = "off"
    webhook_skew_ms: int = 300_000
    clip_seconds: int = 0
    """Seconds of received video that are kept for clips; 0: none."""
    faucet_daily_micro: int = 50_000_000
    """Test money that a wallet gets at most on a UTC day; 0: none."""
    media_urls: tuple[str, ...] = ()
    """URLs of an external video engine that the console plays from and publishes to."""
    ca_certificate: bytes | None = None
    """PEM of the authority that issued the listener's certificate; None: it is not an own one."""
    map_tiles_url: str | None = None
    """Template of the tiles of the console's map; None: the built-in map."""
    map_attribution: str = ""
    map_streets_path: Path | None = None
    """PMTiles file with streets; it need not exist."""
    map_postcodes_path: Path | None = None
    """File of postcodes; it need not exist."""
    invoice_issuer: str = "Sightline"
    """Name and address of who issues invoices, lines separated by `|`."""

    __repr__ = hiding("webhook_secret")


@final
class Services(Value, kw_only=True):
    """Services of the public resources."""

    broker: Broker
    store: Store
    """Keeps recorded answers of calls that no actor handles."""
    relations: Relations
    video: VideoBackend
    evidence: C2paEvidence
    ledger: Ledger
    chain: ChainConfig
    rpc: RpcEndpoint | None
    """None when `chain.rpc_url` is a public node."""
    wake_watcher: Callable[[], None]
    """Makes the chain watcher read at once; called when a workspace and its wallet are new."""
    sign_in: SignIn
    wallet_sessions: WalletSessions
    members: Members
    invitations: Invitations
    api_keys: ApiKeys
    oauth_clients: OAuthClients
    grants: Grants
    view_keys: ViewKeys
    shares: ViewShares
    audit: Audit
    webhooks: WebhookEndpoints
    push_subscriptions: PushSubscriptions
    tickets: StreamTickets
    """Also redeemed by the pipeline, which must get the same object."""
    clear_cookies: Callable[[], Sequence[str]]
    """The Set-Cookie headers of a logout."""
    clock: Clock
    ids: Ids
    options: ResourceOptions
    faucet: PayTestMoney | None = None
    """None on an external chain."""


Readiness: TypeAlias = Callable[[], Awaitable[Mapping[str, ReadinessCheck]]]
"""Runs every readiness check; results by name."""


@final
class InternalServices(Value, kw_only=True):
    """Services of the internal listener."""

    store: Store
    forward_media: Callable[[MediaEvent], None]
    """Delivers a media event to its session (`MediaPump.forward`)."""
    readiness: Readiness
    render_metrics: Callable[[], bytes]
    """The metrics in Prometheus' text format."""
    clock: Clock
    options: ResourceOptions
