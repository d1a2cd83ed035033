"""Settings: every one with a documented default, read from SIGHTLINE_* environment variables."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from sightline.actors.deps import Limits
from sightline.domain.geofence import FenceLimits
from sightline.domain.metering import MeterLimits
from sightline.domain.session.model import SessionLimits
from sightline.domain.units import SECOND_MS, MicroUsdc


class Settings(BaseSettings):
    """All settings of a server. `sightline config` prints them; secrets are masked."""

    model_config = SettingsConfigDict(env_prefix="SIGHTLINE_", extra="ignore")

    # Where it listens.
    host: str = Field("127.0.0.1", description="Address of the public listener")
    port: int = Field(8080, ge=0, le=65535, description="Port of the public listener; 0 takes any free one")
    public_url: str | None = Field(
        None, description="Scheme and authority that callers use; default http(s)://HOST:PORT"
    )
    internal_host: str = Field("127.0.0.1", description="Address of the listener for metrics, readiness, webhooks")
    internal_port: int = Field(8081, ge=0, le=65535, description="Its port; 0 takes any free one")
    tls_cert: Path | None = Field(None, description="Certificate chain (PEM) of the public listener; unset: no TLS")
    tls_key: Path | None = Field(None, description="Private key (PEM) of the public listener")
    strict_transport_seconds: int = Field(
        31_536_000, ge=0, description="How long browsers shall come by https only, where callers do (HSTS); 0: unsaid"
    )
    trusted_proxies: tuple[str, ...] = Field((), description="Peers whose X-Forwarded-For and -Proto are believed")
    drain_seconds: float = Field(10.0, ge=0, description="How long calls in flight may finish at a stop")
    build_sha: str = Field("unknown", description="Build identifier that /health reports")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level that is logged")

    # Where it keeps things.
    data_dir: Path = Field(Path("sightline-data"), description="Everything that is kept: database, chain, secrets")
    database_url: SecretStr | None = Field(None, description="Postgres to use in place of the embedded one")
    database_account: str = Field("nobody", description="Account of the embedded Postgres when we run as root")
    database_pool: int = Field(12, ge=2, le=200, description="Connections to the database")
    heartbeat_keep_days: int = Field(30, ge=1, description="Full days of heartbeats kept behind today")

    # Identity.
    cookie_keys: SecretStr | None = Field(
        None,
        description="kid:base64,...; the first signs, all verify. Default: one key kept in the data directory",
    )
    spicedb_endpoint: str | None = Field(
        None, description="HOST:PORT of a SpiceDB in place of the embedded relations graph (extra: spicedb)"
    )
    spicedb_key: SecretStr | None = Field(None, description="Its preshared key")
    spicedb_tls: bool = Field(True, description="Whether it is spoken to by TLS")
    spicedb_ca: Path | None = Field(None, description="Its certificate authority (PEM), if not a public one")

    # Chain.
    chain_rpc_url: SecretStr | None = Field(None, description="JSON-RPC endpoint in place of the embedded chain")
    chain_id: int | None = Field(None, description="Its chain id; required with chain_rpc_url")
    chain_name: str | None = Field(None, description="Its name as shown by /config")
    chain_public_rpc_url: str | None = Field(
        None, description="What callers are shown as rpcUrl; default: this server's own guarded endpoint"
    )
    chain_start_block: int = Field(0, ge=0, description="Block in which the settlement contract was deployed")
    chain_explorer_url: str | None = Field(None, description="Its block explorer")
    chain_usdc_address: str | None = Field(None, description="USDC contract; required with chain_rpc_url")
    chain_settlement_address: str | None = Field(None, description="Settlement contract; required with chain_rpc_url")
    chain_relayer_key: SecretStr | None = Field(None, description="Private key of the relayer, hex")
    chain_relayer_keystore: Path | None = Field(
        None, description="Encrypted keystore file with the relayer's key, in place of chain_relayer_key"
    )
    chain_relayer_password: SecretStr | None = Field(None, description="Password of that keystore")
    chain_confirmations: int | None = Field(None, ge=0, description="Blocks on top of a settlement until CONFIRMED")

    # Video.
    video_workers: int = Field(0, ge=0, le=64, description="Video worker processes; 0: one per core")
    video_bind_addresses: tuple[str, ...] = Field((), description="Local addresses for media; default every interface")
    video_advertised_addresses: tuple[str, ...] = Field((), description="Public addresses in place of the bound ones")
    video_udp_port_min: int = Field(0, ge=0, le=65535, description="First UDP port for media; 0: any")
    video_udp_port_max: int = Field(0, ge=0, le=65535, description="Last UDP port for media")
    video_poll_key_ms: int = Field(
        900, ge=0, description="How often a steady slow poller of frames may cost the publisher a keyframe; 0: never"
    )
    video_backend: Literal["embedded", "mediamtx", "cloudflare"] = Field(
        "embedded", description="Who carries the media"
    )
    video_mediamtx_url: str | None = Field(None, description="MediaMTX's WebRTC listener as clients reach it")
    video_mediamtx_api_url: str | None = Field(None, description="Its API as this server reaches it")
    video_cloudflare_account: str | None = Field(None, description="Account of Cloudflare Stream")
    video_cloudflare_token: SecretStr | None = Field(None, description="API token with Stream edit permission")
    video_cloudflare_hook_secret: SecretStr | None = Field(None, description="Secret of its notification destination")
    video_ice_servers: SecretStr | None = Field(
        None, description="STUN and TURN servers that clients are told, blank-separated: URL or URL|username|credential"
    )

    # Rules.
    funds_policy: Literal["advisory", "enforced"] = Field("advisory", description="Whether uncovered holds are refused")
    dispatch_mode: Literal["prefer", "literal", "strict"] = Field("prefer", description="How operators are chosen")
    base_rate_micro_usdc: int = Field(1000, ge=1, description="Base price of a second, micro-USDC")
    platform_fee_bps: int = Field(1500, ge=0, le=3000, description="Platform's part of a charge, basis points")
    corridors: dict[str, int] = Field(
        default_factory=dict, description='Price multiplier in basis points by one-degree cell, e.g. {"52,13": 12000}'
    )
    quote_ttl_seconds: int = Field(120, ge=1, description="How long a quote is good")
    start_timeout_seconds: int = Field(120, ge=1, description="ASSIGNED until START_TIMEOUT")
    drone_start_timeout_seconds: int = Field(300, ge=1, description="The same for drones")
    silence_seconds: int = Field(10, ge=1, description="Silence of heartbeats or media that opens a pause")
    silence_grace_seconds: int = Field(2, ge=0, description="Such a pause is dated back to the last proof plus this")
    pause_max_seconds: int = Field(60, ge=1, description="One pause that ends the session")
    paused_total_max_seconds: int = Field(180, ge=1, description="Pauses in all that end the session")
    outside_fixes: int = Field(2, ge=1, description="Fixes outside the fence in a row that pause")
    accuracy_max_meters: float = Field(100.0, gt=0, description="A fix less accurate than this proves nothing")
    coarse_fixes: int = Field(5, ge=1, description="Such fixes in a row that count as stale")
    seen_within_seconds: int = Field(60, ge=1, description="How recently an operator of the first tier was seen")
    rate_limits: bool = Field(True, description="Whether callers are rate limited")
    failed_credentials_per_minute: int = Field(
        60, ge=1, description="Refused credentials of one address until it is told to wait; good ones are never refused"
    )

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        """Refuse settings that lack another one, before anything is started."""
        needs = {
            "video_backend mediamtx": (
                self.video_backend == "mediamtx",
                ("video_mediamtx_url", "video_mediamtx_api_url"),
            ),
            "video_backend cloudflare": (
                self.video_backend == "cloudflare",
                ("video_cloudflare_account", "video_cloudflare_token"),
            ),
            "TLS": (self.tls_cert is not None or self.tls_key is not None, ("tls_cert", "tls_key")),
        }
        for what, (is_wanted, names) in needs.items():
            missing = [name for name in names if getattr(self, name) is None]
            if is_wanted and missing:
                raise ValueError(f"{what} needs {' and '.join(missing)}")
        return self

    @property
    def is_https(self) -> bool:
        """Whether callers reach the public listener by https: its own TLS, or that of what stands before it."""
        return self.tls_cert is not None or (self.public_url or "").lower().startswith("https:")

    @property
    def strict_transport_s(self) -> int | None:
        """The max-age of Strict-Transport-Security; None where it must not be sent."""
        return self.strict_transport_seconds or None if self.is_https else None

    def limits(self) -> Limits:
        """The rules as the actors take them."""
        meter = MeterLimits(
            silence_ms=self.silence_seconds * SECOND_MS,
            grace_ms=self.silence_grace_seconds * SECOND_MS,
            pause_max_ms=self.pause_max_seconds * SECOND_MS,
            paused_total_max_ms=self.paused_total_max_seconds * SECOND_MS,
        )
        fence = FenceLimits(
            accuracy_max_m=self.accuracy_max_meters,
            outside_fixes=self.outside_fixes,
            coarse_fixes=self.coarse_fixes,
        )
        session = SessionLimits(
            start_timeout_ms=self.start_timeout_seconds * SECOND_MS,
            drone_start_timeout_ms=self.drone_start_timeout_seconds * SECOND_MS,
            meter=meter,
            fence=fence,
        )
        return Limits(
            session=session,
            platform_fee_bps=self.platform_fee_bps,
            base_rate=MicroUsdc(self.base_rate_micro_usdc),
            corridors=self.corridors,
            quote_ttl_ms=self.quote_ttl_seconds * SECOND_MS,
            dispatch_mode=self.dispatch_mode,
            seen_within_ms=self.seen_within_seconds * SECOND_MS,
            funds_policy=self.funds_policy,
        )
