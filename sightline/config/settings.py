"""Every setting with its type, default and meaning."""

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

import orjson
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    field_validator,
    model_validator,
)

from sightline.config.addresses import (
    check_advertised,
    check_base_url,
    check_host,
    check_host_port,
    check_http_url,
    check_ip_address,
    check_port_range,
    read_networks,
)
from sightline.domain.pricing import CORRIDOR_RANGE_BPS
from sightline.domain.settlement import MAIN_NETWORKS
from sightline.domain.webhooks import RETRY_SECONDS
from sightline.http.budgets import RateLimits
from sightline.identity.cookies import parse_cookie_keys
from sightline.storage.database.url import check_database_url
from sightline.system.secrets import FILE_NAME as SECRETS_FILE
from sightline.video.options import read_ice_servers

DEFAULT_INTERNAL_PORT = 8081
CELL = re.compile(r"(0|-?[1-9][0-9]{0,2}),(0|-?[1-9][0-9]{0,2})", re.ASCII)
ORIGIN = re.compile(r"https?://([a-z0-9.-]+|\[[0-9a-f:]+\])(:[1-9][0-9]{0,4})?", re.ASCII)


def _split_commas(value: object) -> object:
    """Split the comma list of an environment variable; leave lists of a TOML file unchanged."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _read_json(value: object) -> object:
    """Parse the JSON object of an environment variable; leave tables of a TOML file unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not a JSON object ({error})") from None


def _split_urls(value: SecretStr | None) -> tuple[str, ...]:
    return () if value is None else tuple(url.strip() for url in value.get_secret_value().split(",") if url.strip())


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


CommaList = Annotated[tuple[str, ...], BeforeValidator(_split_commas)]
SecondsList = Annotated[tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(_split_commas)]


class Settings(BaseModel):
    """The settings of a server. Created by `load_settings`, which records the source of each value."""

    model_config = ConfigDict(extra="forbid")
    _config_file: Path | None = PrivateAttr(None)

    # Listeners.
    host: str = Field("127.0.0.1", description="Address that the public listener binds.")
    port: int = Field(8080, ge=0, le=65535, description="Port of the public listener; 0 chooses a free one.")
    public_url: str | None = Field(
        None,
        description="URL (scheme and authority) under which callers reach the server; default: http(s)://HOST:PORT.",
    )
    allowed_hosts: CommaList = Field(
        (),
        description="Names that the Host header of a request may have besides the bound address, loopback and the host "
        "of PUBLIC_URL; comma list, * allows every name. A listener bound to 0.0.0.0 or :: allows every IP address.",
    )
    cors_origins: CommaList = Field(
        (),
        description="Origins of web pages elsewhere that may call /api/v1, /rpc, /mcp and OAuth with an API key or "
        "a token, such as https://app.example.com; comma list. Cookies stay same-origin.",
    )
    internal_host: str = Field(
        "127.0.0.1", description="Address of the internal listener (metrics, readiness, webhooks). Keep it private."
    )
    internal_port: int | None = Field(
        None, ge=0, le=65535, description="Port of the internal listener; default: 8081, or a free one when PORT is 0."
    )
    internal_token: SecretStr | None = Field(
        None,
        description="Bearer token that calls of the internal listener need, except signed webhooks; default: none.",
    )
    tls_cert: Path | None = Field(None, description="Certificate chain (PEM file) of the public listener; enables TLS.")
    tls_key: Path | None = Field(None, description="Private key (PEM file) of the public listener.")
    tls_auto: bool = Field(
        False,
        description="TLS for devices on the same network (--tls auto): an authority in the data directory issues "
        "the certificate, and devices get it at /ca.crt. HOST is then 0.0.0.0 by default.",
    )
    strict_transport_seconds: int = Field(
        31_536_000, ge=0, description="Strict-Transport-Security max-age in seconds; 0 disables the header."
    )
    trusted_proxies: CommaList = Field(
        (),
        description="Addresses and networks (172.16.0.0/12) of reverse proxies whose X-Forwarded-For and "
        "X-Forwarded-Proto are used; comma list.",
    )
    drain_seconds: float = Field(
        10.0, ge=0, description="Seconds that calls in flight get to finish when the server stops."
    )
    startup_timeout_seconds: float = Field(
        30.0, gt=0, description="Seconds to retry an unreachable database at start before giving up."
    )
    build_sha: str = Field("unknown", description="Build identifier shown by GET /api/v1/health.")

    # Logs and readiness.
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Lowest level that is logged.")

    traces_endpoint: str | None = Field(
        None,
        description="URL to which OpenTelemetry traces are sent by OTLP over HTTP, for example "
        "http://127.0.0.1:4318/v1/traces (extra: traces); default: no traces.",
    )
    traces_ratio: float = Field(1.0, ge=0, le=1, description="Share of the requests that are traced.")
    log_heartbeat_every: int = Field(
        100,
        ge=0,
        description="Log one in N successful heartbeat calls; 1 logs all, 0 none. Refused ones are always logged.",
    )
    ready_disk_free_mb: int = Field(
        256, ge=0, description="Not ready when the data directory's file system has fewer free megabytes."
    )
    ready_parked_actors: int = Field(10, ge=0, description="Not ready when more actors than this are parked.")
    ready_relayer_lag_seconds: int = Field(
        300, ge=1, description="Not ready when the relayer has not completed a round for this long."
    )
    ready_watcher_lag_seconds: int = Field(
        60, ge=1, description="Not ready when the watcher has not read the chain for this long."
    )

    # Data.
    data_dir: Path = Field(
        Path("sightline-data"),
        validate_default=True,
        description="Data directory: embedded database, embedded chain, secrets, logs. A relative path is of the "
        "current directory.",
    )
    database_url: SecretStr | None = Field(
        None,
        description="URL of an external Postgres; default: the embedded one. With a standby: "
        "postgresql://USER:PASSWORD@HOST1,HOST2/DATABASE?target_session_attrs=read-write.",
    )
    database_account: str = Field(
        "nobody", description="System account of the embedded Postgres when the server runs as root."
    )
    database_pool: int = Field(
        12,
        ge=2,
        le=200,
        description="Maximum number of database connections, of each worker if there are several (then 40 / WORKERS by "
        "default, at least 4).",
    )
    heartbeat_keep_days: int = Field(30, ge=1, description="Days that heartbeats are kept, besides today.")
    history_keep_days: int = Field(
        400,
        ge=30,
        description="Days that closed sessions, their events, used quotes and revoked keys are kept.",
    )

    audit_keep_days: int = Field(400, ge=30, description="Days that entries of the audit log are kept.")
    secrets_file: Path | None = Field(
        None,
        description="File with the server's secrets, the same for all servers of a database; default: secrets.json in "
        "DATA_DIR. It is written if it does not exist.",
    )

    # Other servers on the same database.
    workers: int = Field(
        1,
        ge=1,
        le=16,
        description="Server processes on this machine. More than 1: a supervisor runs database, chain and NATS server, "
        "unless they are external, and so many workers.",
    )
    withdrawals_file: Path | None = Field(
        None,
        description="Append-only file of revoked keys, changed members, suspensions and ended sign-ins, which a "
        "restore applies again. Default: withdrawals.jsonl in DATA_DIR.",
    )
    nats_url: SecretStr | None = Field(
        None,
        description="URLs of the NATS servers that connect several servers of one database (nats:// or tls://), comma "
        "list. A token or USER:PASSWORD may be part of a URL. Default: this server is alone.",
    )
    nats_ca: Path | None = Field(
        None, description="Certificate authority of the NATS servers (PEM file); default: the public ones."
    )
    nats_cert: Path | None = Field(None, description="Client certificate (PEM file) for the NATS servers.")
    nats_key: Path | None = Field(None, description="Private key (PEM file) of NATS_CERT.")
    nats_credentials: Path | None = Field(None, description="Credentials file for the NATS servers, as nsc writes it.")
    nats_allow_insecure: bool = Field(
        False,
        description="Accept NATS servers on other machines without TLS or without a credential. Frames between servers "
        "are encrypted, but whoever reaches such NATS servers can delay, drop and count them.",
    )
    cluster: str = Field(
        "sightline",
        pattern=r"^[A-Za-z0-9_-]{1,40}$",
        description="Name in the NATS subjects: services with different names can share NATS servers. Each "
        "reads only its own frames, because they are encrypted under its secrets.",
    )

    # Identity.
    cookie_keys: SecretStr | None = Field(
        None,
        description="Cookie keys as KID:BASE64, comma list; the first signs, all verify. Default: `k1`, the "
        "`cookie_key` of DATA_DIR/secrets.json. See SECURITY.md.",
    )
    spicedb_endpoint: str | None = Field(
        None,
        description="HOST:PORT of a SpiceDB for the relations graph (extra: spicedb); default: the embedded graph.",
    )
    spicedb_key: SecretStr | None = Field(None, description="Preshared key of SpiceDB.")
    spicedb_tls: bool = Field(True, description="Connect to SpiceDB by TLS.")
    spicedb_ca: Path | None = Field(
        None, description="Certificate authority of SpiceDB (PEM file); default: the public ones."
    )

    # Chain.
    chain_rpc_url: SecretStr | None = Field(
        None,
        description="JSON-RPC URL of an external chain, or a comma list of several; default: the embedded test chain.",
    )
    chain_id: int | None = Field(
        None,
        ge=1,
        description="Chain id that the external chain must report, or that the embedded one gets at its first start "
        "(default 84532001). Main networks are refused.",
    )
    chain_name: str | None = Field(None, description="Name of the chain shown by GET /api/v1/config.")
    chain_public_rpc_url: str | None = Field(
        None, description="JSON-RPC URL shown to callers; default: this server's own /rpc, which forwards reads."
    )
    chain_start_block: int = Field(
        0, ge=0, description="Block in which the settlement contract was deployed; the watcher starts there."
    )
    chain_explorer_url: str | None = Field(None, description="Block explorer URL shown to callers.")
    chain_usdc_address: str | None = Field(
        None, description="Address of the USDC contract; required with CHAIN_RPC_URL."
    )
    chain_settlement_address: str | None = Field(
        None, description="Address of the settlement contract; required with CHAIN_RPC_URL."
    )
    chain_relayer_key: SecretStr | None = Field(None, description="Private key of the relayer, 32 bytes in hex.")
    chain_relayer_keystore: Path | None = Field(
        None, description="Encrypted keystore file with the relayer's key, instead of CHAIN_RELAYER_KEY."
    )
    chain_relayer_password: SecretStr | None = Field(None, description="Password of the keystore file.")
    chain_relayer_signer_url: str | None = Field(
        None,
        description="JSON-RPC URL of a process that has the relayer's key and no other one, such as Web3Signer; "
        "instead of CHAIN_RELAYER_KEY or _KEYSTORE.",
    )
    chain_meter_key: SecretStr | None = Field(
        None,
        description="Private key of the meter, 32 bytes in hex, not the relayer's; FUNDS_POLICY=escrow with "
        "CHAIN_RPC_URL needs it or CHAIN_METER_SIGNER_URL.",
    )
    chain_meter_signer_url: str | None = Field(
        None,
        description="JSON-RPC URL of a process that has the meter's key and no other one, such as Web3Signer.",
    )
    chain_refund_key: SecretStr | None = Field(
        None,
        description="Private key of the account that pays refunds, 32 bytes in hex; embedded chain: the fee receiver.",
    )
    chain_faucet_daily_micro: int = Field(
        50_000_000,
        ge=0,
        description="Embedded chain: micro-USDC that POST /wallet/faucet gives to a wallet on a UTC day; 0: none.",
    )
    chain_free_settle_seconds: int = Field(
        600, ge=0, description="Sessions without a charge are settled together, at most this often, in seconds."
    )
    chain_max_fee_gwei: int = Field(
        500,
        ge=1,
        description="Maximum fee per gas of a transaction, in gwei; transactions wait while the chain's fees are above "
        "it.",
    )
    chain_confirmations: int | None = Field(
        None,
        ge=0,
        description="Blocks on top of a settlement before it is CONFIRMED; default: embedded 0, external 5 on Base "
        "Sepolia, OP Sepolia and Sepolia, else 2.",
    )

    # Video.
    video_workers: int = Field(
        0, ge=0, le=64, description="Video worker processes on this machine; 0: one per processor."
    )
    video_bind_addresses: CommaList = Field(
        (), description="Local addresses for media, comma list; default: every interface."
    )
    video_advertised_addresses: CommaList = Field(
        (),
        description="Public addresses sent in SDP instead of the bound ones, comma list (NAT, containers). A host name "
        "is resolved at each offer.",
    )
    video_udp_port_min: int = Field(0, ge=0, le=65535, description="First UDP port for media; 0: any free port.")
    video_udp_port_max: int = Field(0, ge=0, le=65535, description="Last UDP port for media.")
    video_tcp_port: int = Field(
        0,
        ge=-1,
        le=65535,
        description="TCP port for media of clients whose UDP is blocked; 0: any free port; -1: none.",
    )
    video_ipv6: bool = Field(False, description="Offer the machine's IPv6 addresses for media too.")
    video_poll_key_ms: int = Field(
        900,
        ge=0,
        description="Minimum milliseconds between keyframes requested for clients that poll frames slowly; 0: never.",
    )
    video_picture_max: str = Field(
        "3840x2160",
        pattern=r"^[1-9]\d{1,4}x[1-9]\d{1,4}$",
        description="Largest video that is decoded for frames, WIDTHxHEIGHT, either way round: the area counts. Larger "
        "video is forwarded to viewers only.",
    )
    video_clip_seconds: int = Field(
        0,
        ge=0,
        le=30,
        description="Seconds of received video that are kept in memory for clips, at most 16 MB for each session; 0: "
        "none.",
    )
    video_worker_memory_mb: int = Field(
        2048, ge=0, description="Resident memory in MB at which a video worker is restarted; 0: no limit."
    )
    video_backend: Literal["embedded", "mediamtx", "cloudflare"] = Field(
        "embedded", description="Media server: the embedded one, MediaMTX or Cloudflare Stream."
    )
    video_mediamtx_url: str | None = Field(None, description="MediaMTX WebRTC URL as clients reach it.")
    video_mediamtx_api_url: str | None = Field(None, description="MediaMTX API URL as this server reaches it.")
    video_cloudflare_account: str | None = Field(None, description="Cloudflare Stream account id.")
    video_cloudflare_token: SecretStr | None = Field(
        None, description="Cloudflare API token with Stream edit permission."
    )
    video_cloudflare_hook_secret: SecretStr | None = Field(
        None, description="Secret of the Cloudflare notification destination."
    )
    video_ice_servers: SecretStr | None = Field(
        None, description="STUN and TURN servers for clients, separated by blanks: URL or URL|USERNAME|CREDENTIAL."
    )

    video_turn_secret: SecretStr | None = Field(
        None,
        description="Secret shared with the TURN servers (coturn: static-auth-secret): those without a username in "
        "VIDEO_ICE_SERVERS get short-lived credentials.",
    )
    video_turn_ttl_seconds: int = Field(3600, ge=60, description="Lifetime of short-lived TURN credentials.")
    video_publish_bitrate_max_bps: int = Field(
        0, ge=0, description="Bits per second that a publisher may send; 0: as much as its congestion control allows."
    )
    frame_signing: Literal["off", "request", "always"] = Field(
        "off",
        description="Sign JPEG frames by C2PA content credentials: off, request (calls with signed=1), or always. "
        "Needs pip install 'sightline-live[c2pa]'.",
    )
    frame_signing_key: Path | None = Field(
        None,
        description="P-256 private key (PEM file) that signs frames; default: a key issued by a root in the data "
        "directory.",
    )
    frame_signing_cert: Path | None = Field(
        None, description="Certificate chain (PEM file) of FRAME_SIGNING_KEY, the signing certificate first."
    )
    video_private_candidates: bool = Field(
        False,
        description="Send ICE checks to loopback, link-local and private addresses that clients name. Only ICE-lite "
        "clients at such addresses need it.",
    )

    # Console.
    map_tiles_url: str | None = Field(
        None,
        pattern=r"^https?://[^\s;,/]+/\S*\{z\}\S*$",
        description="Raster tiles with streets for the console's map, for example https://tiles.example.org/{z}/{x}/{y}.png;"
        " default: the built-in map (land, borders, cities), which needs no network.",
    )
    map_attribution: str = Field("", max_length=200, description="Credit that the owner of the tiles requires.")
    map_streets_file: Path | None = Field(
        None,
        description="PMTiles file with streets for the console's map, as `sightline map get-ready` installs it; "
        "default: map/streets.pmtiles in the data directory.",
    )

    # Rules of the business.
    funds_policy: Literal["advisory", "enforced", "escrow"] = Field(
        "advisory",
        description="enforced: refuse a session whose hold the wallet, or a limit that it set on the contract, does "
        "not cover. advisory: accept it. escrow: as enforced, and the payer signs each hold, which the contract "
        "SessionEscrow takes before the session starts.",
    )
    dispatch_mode: Literal["prefer", "literal", "strict"] = Field(
        "prefer",
        description="Which operators dispatch chooses from. prefer: nearby ones, else any; strict: only those that "
        "cover the point, are free and were seen lately; literal: all. See docs/api.md.",
    )
    accept_policy: Literal["open", "verified"] = Field(
        "open",
        description="open: every SUPPLIER may accept a session. verified: it must be ONLINE, seen within "
        "SEEN_WITHIN_SECONDS, and cover the point.",
    )
    operator_assignments_max: int = Field(
        3, ge=1, description="Sessions assigned to an operator and not started, up to which it may accept another."
    )
    consumer_dispatches_max: int = Field(
        3,
        ge=0,
        description="Dispatched sessions of one consumer workspace that are not started, up to which it may dispatch "
        "another; three abandoned ones in 10 minutes cause a pause of 60 seconds. 0: no limit.",
    )
    dispatch_ack_seconds: int = Field(
        10,
        ge=0,
        le=120,
        description="Seconds in which a dispatched operator must acknowledge (by a call about the session, an event "
        "stream, a heartbeat), before the session is dispatched to the next. 0: no limit.",
    )
    unfunded_sessions_max: int = Field(
        1,
        ge=0,
        description="Open sessions of one wallet that does not cover their holds, while FUNDS_POLICY is advisory. "
        "0: no limit.",
    )
    unpaid_opens_max: int = Field(
        10,
        ge=0,
        description="With FUNDS_POLICY=escrow: sessions of one payer in 24 hours that may be opened on the chain and "
        "end without a charge, since the service pays their gas. 0: no limit.",
    )
    base_rate_micro_usdc: int = Field(1000, ge=1, description="Base price of one second in micro-USDC.")
    platform_fee_bps: int = Field(
        1500, ge=0, le=3000, description="Platform fee on each charge, in basis points (1500 is 15 %)."
    )
    invoice_issuer: str = Field(
        "Sightline",
        min_length=1,
        max_length=400,
        description="Name and address of who issues statements and invoices, as printed on their PDF; lines are "
        "separated by |.",
    )
    minimum_seconds: int = Field(
        1,
        ge=0,
        le=10,
        description="Least seconds that a session is charged if position and video were proved together at least once. "
        "Never more than its duration, rounded up.",
    )
    corridors: Annotated[dict[str, int], BeforeValidator(_read_json)] = Field(
        default_factory=dict,
        description="Price multipliers in basis points, 5000 to 30000, by one-degree cell, named by its south-west "
        'corner, as JSON: {"52,13": 12000} is 1.2 times from 52 to 53 degrees north and 13 to 14 degrees east.',
    )
    quote_ttl_seconds: int = Field(120, ge=1, description="Seconds that a quote is valid.")
    start_timeout_seconds: int = Field(
        120, ge=1, description="Seconds an operator has to start an ASSIGNED session before it ends as START_TIMEOUT."
    )
    drone_start_timeout_seconds: int = Field(300, ge=1, description="The same for drones.")
    silence_seconds: int = Field(
        10, ge=1, description="Seconds without a heartbeat or without media that pause the meter."
    )
    silence_grace_seconds: int = Field(
        2, ge=0, description="A pause for silence is dated back to the last proof plus this many seconds."
    )
    pause_max_seconds: int = Field(60, ge=1, description="Length of one pause, in seconds, that ends the session.")
    paused_total_max_seconds: int = Field(
        180, ge=1, description="Total of all pauses, in seconds, that ends the session."
    )
    outside_fixes: int = Field(2, ge=1, description="Consecutive fixes outside the fence that pause the meter.")
    accuracy_max_meters: float = Field(
        100.0, gt=0, description="A fix with a larger accuracy radius, in metres, proves no position."
    )
    coarse_fixes: int = Field(5, ge=1, description="Consecutive inaccurate fixes that count as a stale location.")
    seen_within_seconds: int = Field(
        60, ge=1, description="Dispatch prefers operators whose last heartbeat is at most this many seconds old."
    )
    session_idle_minutes: int = Field(
        720, ge=1, description="Minutes without a request after which a wallet's sign-in ends. A cookie lives 12 hours."
    )
    signature_age_minutes: int = Field(
        720, ge=1, description="Age of the sign-in, in minutes, up to which members may be changed and keys minted."
    )
    webhook_retry_seconds: SecondsList = Field(
        RETRY_SECONDS,
        max_length=20,
        description="Seconds between the attempts to deliver a webhook, comma list; after the last one it has failed.",
    )
    webhook_allow_loopback: bool = Field(
        False, description="For development: deliver webhooks and pushes also to http and https URLs of this machine."
    )
    push_contact: str | None = Field(
        None,
        pattern=r"^(mailto:|https://)\S+$",
        description="mailto: or https: URL at which push services reach you; default: PUBLIC_URL if that is https.",
    )
    rate_limits: bool = Field(True, description="Limit the request rate of each caller.")
    rate_budgets: str = Field(
        "",
        description=(
            "Changed rate limits, comma-separated, written class=per_second/burst, for example frame=20/40,auth=1/20. "
            "Classes: default, list, frame, frames, location, quote, create, auth, failed, signalling, chain."
        ),
    )

    @field_validator("data_dir")
    @classmethod
    def _make_absolute(cls, value: Path) -> Path:
        """Make the path absolute: messages then say which directory a command has used."""
        try:
            return value.absolute()
        except FileNotFoundError:
            raise ValueError(
                f"{value} is of the current directory, which was removed: write an absolute path"
            ) from None

    @field_validator("cors_origins")
    @classmethod
    def _check_origins(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        """Refuse what no browser sends as Origin: such a value would never match."""
        for value in values:
            if not ORIGIN.fullmatch(value):
                raise ValueError(f"{value!r} is not an origin: write https://HOST or https://HOST:PORT, in lower case")
        return values

    @field_validator("host", "internal_host")
    @classmethod
    def _check_host(cls, value: str) -> str:
        """Refuse what no listener can bind."""
        return check_host(value)

    @field_validator("public_url")
    @classmethod
    def _check_public_url(cls, value: str | None) -> str | None:
        """Refuse what callers cannot reach: cookies, sign-in and media URLs are made of it."""
        return None if value is None else check_base_url(value)

    @field_validator("allowed_hosts")
    @classmethod
    def _check_allowed_hosts(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        """Refuse what no Host header has without its port: such a value would never match."""
        return tuple(value if value == "*" else check_host(value) for value in values)

    @field_validator(
        "chain_public_rpc_url",
        "chain_explorer_url",
        "chain_meter_signer_url",
        "chain_relayer_signer_url",
        "traces_endpoint",
        "video_mediamtx_url",
        "video_mediamtx_api_url",
    )
    @classmethod
    def _check_http_url(cls, value: str | None) -> str | None:
        """Refuse what is no URL of an HTTP server."""
        return None if value is None else check_http_url(value)

    @field_validator("chain_rpc_url")
    @classmethod
    def _check_rpc_url(cls, value: SecretStr | None) -> SecretStr | None:
        """As `_check_http_url`, for a comma list of URLs that may hold keys."""
        if value is not None:
            urls = [url.strip() for url in value.get_secret_value().split(",")]
            for url in urls:
                check_http_url(url)
            if len(set(urls)) < len(urls):
                raise ValueError("an endpoint is named twice: two answers of one endpoint prove nothing")
        return value

    @field_validator("spicedb_endpoint")
    @classmethod
    def _check_host_port(cls, value: str | None) -> str | None:
        return None if value is None else check_host_port(value)

    @field_validator("chain_id")
    @classmethod
    def _check_chain_id(cls, value: int | None) -> int | None:
        """Refuse main networks, for the embedded chain too: what a wallet signs for it could be repeated there."""
        if value in MAIN_NETWORKS:
            raise ValueError(
                f"{value} is a main network, and Sightline settles on test networks only: name a test network's id, or "
                "none for the embedded chain"
            )
        return value

    @field_validator("chain_usdc_address", "chain_settlement_address")
    @classmethod
    def _check_contract(cls, value: str | None) -> str | None:
        if value is None:
            return None
        from sightline_client.keccak import checked_address  # a start on the embedded chain does without it

        return checked_address(value)

    @field_validator("video_ice_servers")
    @classmethod
    def _check_ice_servers(cls, value: SecretStr | None) -> SecretStr | None:
        """Parse the servers once, so that an error names the setting."""
        if value is not None:
            read_ice_servers(value.get_secret_value())
        return value

    @field_validator("video_bind_addresses")
    @classmethod
    def _check_media_addresses(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        """Refuse names: media sockets need IP addresses."""
        return tuple(check_ip_address(value) for value in values)

    @field_validator("video_advertised_addresses")
    @classmethod
    def _check_advertised_addresses(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        """Refuse what nobody can send to. Whether a host name has an address is found out at the start."""
        return tuple(check_advertised(value) for value in values)

    @field_validator("corridors")
    @classmethod
    def _check_corridors(cls, values: dict[str, int]) -> dict[str, int]:
        """Refuse cells outside of the world, and multipliers outside of the range that a price is limited to."""
        low, high = CORRIDOR_RANGE_BPS
        for cell, bps in values.items():
            found = CELL.fullmatch(cell)
            if found is None or abs(int(found[1])) > 90 or abs(int(found[2])) > 180:
                raise ValueError(
                    f"{cell!r} is not a cell: write the whole degrees of its south-west corner, as in 52,13 or -34,151"
                )
            if not low <= bps <= high:
                raise ValueError(f"{bps} of {cell} must be {low} to {high}; 10000 changes nothing")
        return values

    @field_validator("trusted_proxies")
    @classmethod
    def _check_proxies(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        """Parse the networks once, so that an error names the setting."""
        read_networks(values)
        return values

    @field_validator("cookie_keys")
    @classmethod
    def _check_cookie_keys(cls, value: SecretStr | None) -> SecretStr | None:
        """Parse the keys once, so that an error names the setting."""
        if value is not None:
            parse_cookie_keys(value.get_secret_value())
        return value

    @field_validator("rate_budgets")
    @classmethod
    def _check_budgets(cls, value: str) -> str:
        """Parse the budgets once, so that an error names the setting."""
        RateLimits.parse(value)
        return value

    @field_validator("database_url")
    @classmethod
    def _check_database_url(cls, value: SecretStr | None) -> SecretStr | None:
        """Refuse what cannot lead to a database that accepts writes."""
        if value is not None:
            check_database_url(value.get_secret_value())
        return value

    @field_validator("nats_url")
    @classmethod
    def _check_nats_url(cls, value: SecretStr | None) -> SecretStr | None:
        """Refuse what is no URL of a NATS server. The message does not repeat the value, which may hold a token."""
        for url in _split_urls(value):
            parts = urlsplit(url)
            if parts.scheme not in ("nats", "tls") or not parts.hostname:
                raise ValueError("each URL must begin with nats:// or tls:// and name a host")
            check_host(parts.hostname)
            if parts.port == 0:  # of an impossible port it raises a ValueError
                raise ValueError("port 0 cannot be reached")
        return value

    @model_validator(mode="after")
    def _complete(self) -> Self:
        """Choose the internal port, and refuse a setting that requires another one that is not set.

        With `port` 0 the internal port is chosen too, so that two servers can start side by side.
        """
        if self.internal_port is None:
            self.internal_port = 0 if self.port == 0 else DEFAULT_INTERNAL_PORT
        if self.port == self.internal_port != 0 and (
            self.host == self.internal_host or {self.host, self.internal_host} & {"0.0.0.0", "::"}  # noqa: S104  compared
        ):
            raise ValueError(
                f"SIGHTLINE_PORT and SIGHTLINE_INTERNAL_PORT are both {self.port}: the internal listener needs a port "
                "of its own."
            )
        if self.internal_token is None and not _is_loopback(self.internal_host):
            raise ValueError(
                f"SIGHTLINE_INTERNAL_HOST {self.internal_host} can be reached from other machines: set "
                "SIGHTLINE_INTERNAL_TOKEN, or keep the host at 127.0.0.1."
            )
        if self.tls_auto:
            if self.tls_cert is not None or self.tls_key is not None:
                raise ValueError("SIGHTLINE_TLS_AUTO cannot be combined with SIGHTLINE_TLS_CERT and SIGHTLINE_TLS_KEY.")
            if "host" not in self.model_fields_set:
                self.host = "0.0.0.0"  # noqa: S104  phones on the network shall reach it
        try:
            check_port_range(self.video_udp_port_min, self.video_udp_port_max)
        except ValueError as error:
            raise ValueError(f"SIGHTLINE_VIDEO_UDP_PORT_MIN and SIGHTLINE_VIDEO_UDP_PORT_MAX: {error}.") from None
        if self.silence_grace_seconds > self.silence_seconds:
            raise ValueError(
                "SIGHTLINE_SILENCE_GRACE_SECONDS is above SIGHTLINE_SILENCE_SECONDS: a pause is never dated ahead."
            )
        media_server = self.video_backend
        requirements = (
            (
                "SIGHTLINE_VIDEO_BACKEND=mediamtx",
                media_server == "mediamtx",
                ("video_mediamtx_url", "video_mediamtx_api_url"),
            ),
            (
                "SIGHTLINE_VIDEO_BACKEND=cloudflare",
                media_server == "cloudflare",
                ("video_cloudflare_account", "video_cloudflare_token"),
            ),
            (
                "FRAME_SIGNING_KEY",
                self.frame_signing_key is not None or self.frame_signing_cert is not None,
                ("frame_signing_key", "frame_signing_cert"),
            ),
            ("NATS", self.nats_cert is not None or self.nats_key is not None, ("nats_cert", "nats_key")),
            ("TLS", self.tls_cert is not None or self.tls_key is not None, ("tls_cert", "tls_key")),
            (
                "SIGHTLINE_CHAIN_RPC_URL",
                self.chain_rpc_url is not None,
                ("chain_id", "chain_usdc_address", "chain_settlement_address"),
            ),
        )
        for what, is_wanted, names in requirements:
            missing = [f"SIGHTLINE_{name.upper()}" for name in names if getattr(self, name) is None]
            if is_wanted and missing:
                raise ValueError(f"{what} needs {' and '.join(missing)}.")
        has_relayer_key = self.chain_relayer_key is not None or self.chain_relayer_keystore is not None
        if self.chain_rpc_url is not None and has_relayer_key == (self.chain_relayer_signer_url is not None):
            raise ValueError(
                "SIGHTLINE_CHAIN_RPC_URL needs the relayer's key in one place: SIGHTLINE_CHAIN_RELAYER_KEY, "
                "SIGHTLINE_CHAIN_RELAYER_KEYSTORE or SIGHTLINE_CHAIN_RELAYER_SIGNER_URL."
            )
        meters = [each for each in (self.chain_meter_key, self.chain_meter_signer_url) if each is not None]
        if self.chain_rpc_url is not None and self.funds_policy == "escrow" and len(meters) != 1:
            raise ValueError(
                "FUNDS_POLICY=escrow with SIGHTLINE_CHAIN_RPC_URL needs the meter's key: SIGHTLINE_CHAIN_METER_KEY or "
                "SIGHTLINE_CHAIN_METER_SIGNER_URL."
            )
        return self

    @property
    def config_file(self) -> Path | None:
        """The settings file that the command line named, absolute."""
        return self._config_file

    def named_by(self, config_file: Path | None) -> Self:
        """Return these settings as those of a settings file that the command line named."""
        named = self.model_copy()
        named._config_file = None if config_file is None else config_file.absolute()  # noqa: SLF001  its own class
        return named

    @property
    def is_https(self) -> bool:
        """Return whether callers use HTTPS: with the listener's own TLS, or through a proxy."""
        return self.tls_auto or self.tls_cert is not None or (self.public_url or "").lower().startswith("https:")

    @property
    def push_contact_url(self) -> str | None:
        """URL at which push services reach who runs the server, if one is known."""
        own = self.public_url or ""
        return self.push_contact or (own if own.lower().startswith("https:") else None)

    @property
    def strict_transport_s(self) -> int | None:
        """max-age of Strict-Transport-Security in seconds; None if the header must not be sent."""
        # With the own authority a browser that has not installed it must be able to go on.
        return self.strict_transport_seconds or None if self.is_https and not self.tls_auto else None

    @property
    def secrets_path(self) -> Path:
        """The file that holds the server's secrets."""
        return self.secrets_file or self.data_dir / SECRETS_FILE

    @property
    def withdrawals_path(self) -> Path:
        """The file of withdrawals."""
        return self.withdrawals_file or self.data_dir / "withdrawals.jsonl"

    @property
    def streets_path(self) -> Path:
        """The file of the map's streets, which need not exist."""
        return self.map_streets_file or self.data_dir / "map" / "streets.pmtiles"

    @property
    def postcodes_path(self) -> Path:
        """The file of postcodes beside that of the streets, which need not exist."""
        return self.streets_path.with_name("postcodes.txt.gz")

    @property
    def nats_servers(self) -> tuple[str, ...]:
        """URLs of the NATS servers; empty if this server is alone."""
        return _split_urls(self.nats_url)
