"""Everything the resources call, as bootstrap hands it to them.

The services of the identity and chain rooms are named here by what is needed of them, since rooms of one floor do not
import each other.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, final

from sightline.actors.service.broker import Broker
from sightline.domain.access import Role, WalletPrincipal
from sightline.ports.chain import ChainConfig
from sightline.ports.clock import Clock
from sightline.ports.health import ReadinessCheck
from sightline.ports.identity import ApiKeyRecord, Member, Purpose, WalletSession, WorkspaceBrief
from sightline.ports.ids import Ids
from sightline.ports.ledger import Ledger
from sightline.ports.relations import Relations
from sightline.ports.store import Store
from sightline.ports.video import MediaEvent, VideoBackend


class Challenge(Protocol):
    """A text to sign."""

    @property
    def nonce(self) -> str:
        """Names the challenge."""
        ...

    @property
    def message(self) -> str:
        """The EIP-4361 text."""
        ...

    @property
    def expires_at_ms(self) -> int:
        """Until when it is good."""
        ...


class Membership(Protocol):
    """A workspace that a wallet can access."""

    @property
    def workspace(self) -> WorkspaceBrief:
        """Which one."""
        ...

    @property
    def role(self) -> Role:
        """As what."""
        ...


class SignedIn(Protocol):
    """A wallet session."""

    @property
    def principal(self) -> WalletPrincipal:
        """Whom it stands for."""
        ...

    @property
    def set_cookie(self) -> str:
        """The Set-Cookie header that carries it: a secret of the client's."""
        ...

    @property
    def memberships(self) -> Sequence[Membership]:
        """The wallet's workspaces."""
        ...


class SignIn(Protocol):
    """Turns signatures into sessions."""

    async def challenge(self, address: str, purpose: Purpose) -> Challenge:
        """Compose a text for the wallet to sign."""
        ...

    async def login(
        self, address: str, nonce: str, signature: str, *, client_ip: str = "", user_agent: str = ""
    ) -> SignedIn:
        """Open a wallet session."""
        ...

    async def select(self, principal: WalletPrincipal, workspace_id: str) -> SignedIn:
        """Choose the workspace the session acts for."""
        ...

    async def prove(self, address: str, nonce: str, signature: str, purpose: Purpose) -> str:
        """Check a signature and use its nonce up; returns the address in EIP-55 form."""
        ...

    async def give_back(self, nonce: str) -> None:
        """Make a nonce good again whose proof led to nothing because a dependency was down."""
        ...


class Members(Protocol):
    """Members of workspaces."""

    async def members_of(self, workspace_id: str) -> Sequence[Member]:
        """Owners first."""
        ...

    async def memberships_of(self, address: str) -> Sequence[Membership]:
        """The workspaces of a wallet, by slug."""
        ...

    async def add(self, workspace_id: str, address: str, role: str) -> Member:
        """Make a wallet a member, or give it another role."""
        ...

    async def remove(self, workspace_id: str, address: str) -> Member:
        """Take a member away."""
        ...


class WalletSessions(Protocol):
    """The sign-ins of wallets."""

    async def open_of(self, wallet_address: str) -> Sequence[WalletSession]:
        """The open sign-ins of a wallet, newest first."""
        ...

    async def end(self, wallet_address: str, session_id: str) -> WalletSession:
        """End a sign-in."""
        ...


class MintedKey(Protocol):
    """A fresh key."""

    @property
    def record(self) -> ApiKeyRecord:
        """What is kept of it."""
        ...

    @property
    def plaintext(self) -> str:
        """The key itself: given once, kept nowhere."""
        ...


class ApiKeys(Protocol):
    """API keys of workspaces."""

    async def mint(
        self, workspace_id: str, *, created_by: str, label: str, environment: str, scopes: Sequence[str]
    ) -> MintedKey:
        """Make a key."""
        ...

    async def keys_in(self, workspace_id: str) -> Sequence[ApiKeyRecord]:
        """List keys, newest first."""
        ...

    async def revoke(self, workspace_id: str, key_id: str) -> ApiKeyRecord:
        """Revoke a key."""
        ...


RpcEndpoint: TypeAlias = Callable[[bytes], Awaitable[bytes]]
"""The chain's guarded JSON-RPC endpoint: body in, body out, never raises for what a caller sends."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceOptions:
    """Settings of the resources."""

    build_sha: str = "unknown"
    keepalive_ms: int = 15_000
    """A comment line goes down an event stream that was silent for so long."""
    stream_lifetime_ms: int = 3_600_000
    """A stream is ended after so long, so that its credential is checked again."""
    streams_max: int = 1_000
    """Event and frame streams that one workspace may hold open."""
    frame_retry_ms: int = 250
    """How long the multipart stream waits where there is no frame to give."""
    webhook_secret: bytes = field(default=b"", repr=False)
    """Signs the video provider's webhooks; empty: none are accepted."""
    webhook_skew_ms: int = 300_000


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Deps:
    """What the public resources call."""

    broker: Broker
    store: Store
    """For the answers of calls whose effect is not an actor's."""
    relations: Relations
    video: VideoBackend
    ledger: Ledger
    chain: ChainConfig
    rpc: RpcEndpoint | None
    """None where `chain.rpc_url` is a public node."""
    wake_watcher: Callable[[], None]
    """Called when a wallet is new, so that it is read at once."""
    sign_in: SignIn
    members: Members
    api_keys: ApiKeys
    wallet_sessions: WalletSessions
    clear_cookies: Callable[[], Sequence[str]]
    """The Set-Cookie headers of a logout."""
    clock: Clock
    ids: Ids
    options: ResourceOptions


Readiness: TypeAlias = Callable[[], Awaitable[Mapping[str, ReadinessCheck]]]
"""Runs every readiness check; results by name."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class InternalDeps:
    """What the internal listener calls."""

    store: Store
    forward_media: Callable[[MediaEvent], None]
    """Takes a fact about an input's media to its session (`MediaPump.forward`)."""
    readiness: Readiness
    render_metrics: Callable[[], bytes]
    """The metrics in Prometheus' text format."""
    clock: Clock
    options: ResourceOptions
