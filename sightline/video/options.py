"""Options of the video backends."""

from typing import Final, final

from sightline.domain.value import Value, hiding


@final
class IceServer(Value, kw_only=True):
    """A STUN or TURN server that clients are told to use (Link header, RFC 9725 section 4.6)."""

    url: str
    username: str = ""
    credential: str = ""

    __repr__ = hiding("username", "credential")


ICE_SCHEMES: Final = ("stun:", "stuns:", "turn:", "turns:")


def read_ice_servers(text: str) -> tuple[IceServer, ...]:
    """Parse servers from a setting: separated by blanks, each a URL or URL|username|credential.

    Raises:
        ValueError: An entry is neither; the message does not repeat its credential.
    """
    servers: list[IceServer] = []
    for entry in text.split():
        url, *rest = entry.split("|")
        if not url.startswith(ICE_SCHEMES) or url in ICE_SCHEMES or len(rest) not in (0, 2) or set(entry) & set('<>"'):
            raise ValueError(f"not an ICE server: {url}")
        username, credential = rest or ("", "")
        servers.append(IceServer(url=url, username=username, credential=credential))
    return tuple(servers)


@final
class NetOptions(Value, kw_only=True):
    """Where media sockets are bound and which addresses are advertised."""

    bind_addresses: tuple[str, ...] = ()
    """Local addresses to bind; empty means every interface."""
    advertised_addresses: tuple[str, ...] = ()
    """Public addresses, or host names that are resolved at each offer, instead of the bound ones, in the same order
    (1:1 NAT); empty means the bound ones."""
    loopback: bool = True
    """Also offer 127.0.0.1, for clients on this machine. Browsers ignore it."""
    ipv6: bool = False
    """Also offer IPv6 addresses."""
    private_candidates: bool = False
    """Send connectivity checks to loopback, link-local and private addresses that an offer names. Clients there connect
    all the same, because they check first; only ICE-lite peers at such addresses need it."""
    udp_port_min: int = 0
    """First UDP port of the range for media; 0 means any free port. One socket per peer and address."""
    udp_port_max: int = 0
    """Last UDP port of the range, inclusive."""
    tcp_port: int = 0
    """TCP port for clients whose UDP is blocked; 0 means any free port, -1 none. A worker is told the open one."""
    ufrag_prefix: str = ""
    """First characters of the ICE username fragments of one worker, by which its TCP connections find it."""


@final
class Options(Value, kw_only=True):
    """Options of the embedded backend."""

    secret: bytes
    """Secret of at least 16 bytes from which the tokens in publish and play URLs derive.

    A new secret changes all URLs.
    """
    public_url: str
    """Scheme and authority of publish and play URLs, without a trailing slash."""
    workers: int = 0
    """Worker processes; 0 means one per core."""
    net: NetOptions = NetOptions()
    ice_servers: tuple[IceServer, ...] = ()
    """ICE servers sent to clients with a valid token; the server itself needs none."""
    turn_secret: str = ""
    """Secret shared with the TURN servers (coturn: static-auth-secret). TURN servers without a username of their own
    then get short-lived credentials."""
    turn_ttl_s: int = 3_600
    """How long such credentials are valid."""
    handshake_ms: int = 10_000
    """A peer that is not connected within this time is dropped."""
    stale_ms: int = 2_000
    """A publisher without a packet, or without a complete frame, for this long is reported."""
    lost_ms: int = 10_000
    """A publisher without a packet for this long is dropped."""
    takeover_grace_ms: int = 5_000
    """A publisher that reconnects within this time is not reported as disconnected."""
    viewers_max: int = 64
    """Maximum number of viewers of one input, connected and connecting."""
    peers_max: int = 400
    """Maximum number of peers of one worker."""
    publisher_places: int = 100
    """Part of `peers_max` reserved for publishers."""
    connecting_max: int = 24
    """Maximum number of viewers of one input that are not connected yet."""
    connecting_per_address_max: int = 48
    """Maximum number of viewers from one client address that are not connected yet, over all inputs of a worker."""
    publish_bitrate_max_bps: int = 0
    """What a publisher may send, bits per second (b= lines of the answer; REMB where transport-wide congestion control
    was not negotiated); 0 means as much as its congestion control allows."""
    gop_max_bytes: int = 8_000_000
    gop_max_ms: int = 12_000
    """A longer or larger group of pictures is not cached: new viewers then wait for a keyframe."""
    picture_max_width: int = 3_840
    picture_max_height: int = 2_160
    """Largest picture that is decoded, either way round; larger video is forwarded, and has no frames."""
    clip_seconds: int = 0
    """How many seconds of received video are kept for clips; 0 means none."""
    clip_max_bytes: int = 16_000_000
    """Memory for them of one input."""
    worker_memory_mb: int = 2_048
    """Resident memory at which a worker is restarted; 0 means no limit."""
    warm_ms: int = 3_000
    """How long decoding continues after a poll."""
    poll_key_ms: int = 900
    """Minimum interval of keyframes requested just before a steady slow poll; 0 means never, for uplinks that
    a keyframe a second would overload."""
    request_timeout_ms: int = 15_000
    """Timeout of a request to a worker, in addition to the wait that the caller asked for."""
    recheck_ms: int = 15_000
    """Interval at which the access of connected viewers is checked again."""
    worker_check_ms: int = 15_000
    """Interval of health checks of a worker, and their timeout; a worker that fails one is replaced."""

    __repr__ = hiding("secret", "turn_secret")

    @property
    def clips_max_bytes(self) -> int:
        """Memory for clips of all inputs of one worker: a quarter of the worker's."""
        return (self.worker_memory_mb or 1 << 20) * 250_000

    @property
    def decoders_max_bytes(self) -> int:
        """Memory that the decoders of one worker may need together: half of the worker's."""
        return (self.worker_memory_mb or 1 << 20) * 500_000
