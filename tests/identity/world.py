"""The identity package on in-memory stores, with a clock that the test moves and a chain without contracts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from eth_account import Account
from eth_account.messages import encode_defunct
from eth_account.signers.local import LocalAccount

from sightline.domain.access import Role
from sightline.domain.operator.model import Workspace, WorkspaceRole
from sightline.domain.units import HOUR_MS
from sightline.identity.api_keys import ApiKeys
from sightline.identity.authenticate import Authenticator
from sightline.identity.cookies import CookieCodec, CookieKey
from sightline.identity.invitations import Invitations
from sightline.identity.key_codec import KeyHasher
from sightline.identity.members import Members
from sightline.identity.sign_in import Challenge, SignIn, SignInOptions
from sightline.identity.signatures import SignatureVerifier
from sightline.identity.wallet_sessions import WalletSessionOptions, WalletSessions
from sightline.ports.chain import CALL_GAS_DEFAULT, ChainUnavailableError
from sightline.ports.relations import TupleUpdate, member_edge
from simulation.memory.identity import MemoryIdentityStore, MemoryRelations
from simulation.memory.invitations import MemoryInvitations

IDLE_MS = 4 * HOUR_MS


class Given(dict[str, str]):
    """Request headers given as a mapping."""


@dataclass
class HandClock:
    """A clock that stops until the test moves it."""

    at_ms: int = 1_800_000_000_000

    def now_ms(self) -> int:
        return self.at_ms


@dataclass
class CountingIds:
    """Ids that differ on every call and are equal in every run."""

    count: int = 0

    def uuid(self) -> str:
        self.count += 1
        return f"00000000-0000-4000-8000-{self.count:012}"

    def token_bytes(self, count: int) -> bytes:
        self.count += 1
        return sha256(str(self.count).encode()).digest()[:count]


@dataclass
class PlainChain:
    """A chain without contracts that can be made unavailable."""

    is_down: bool = False
    calls: int = 0

    async def call(
        self, to: str | None, data: bytes, *, gas_cap: int = CALL_GAS_DEFAULT, block: str = "latest"
    ) -> bytes:
        self.calls += 1
        if self.is_down:
            raise ChainUnavailableError
        return b""

    async def code(self, address: str, *, block: str = "latest") -> bytes:
        return await self.call(address, b"")


def a_workspace(workspace_id: str, slug: str, owner: str) -> Workspace:
    return Workspace(
        id=workspace_id,
        slug=slug,
        name=slug.title(),
        wallet_address=owner,
        roles=(WorkspaceRole.CONSUMER,),
        created_at_ms=0,
        created_by_wallet=owner,
    )


@dataclass
class Directory:
    """An in-memory directory of workspaces."""

    workspaces: dict[str, Workspace] = field(default_factory=dict)

    async def by_ids(self, workspace_ids: Sequence[str]) -> tuple[Workspace, ...]:
        return tuple(self.workspaces[each] for each in workspace_ids if each in self.workspaces)


class World:
    """The services of the identity package, connected as in the server."""

    def __init__(self) -> None:
        self.clock, self.ids, self.chain, self.directory = HandClock(), CountingIds(), PlainChain(), Directory()
        self.store = MemoryIdentityStore()
        self.relations = MemoryRelations(token_key=b"t" * 32)
        self.cookies = CookieCodec([CookieKey("k1", b"c" * 32)], audience="here", is_https=False)
        self.hasher = KeyHasher(b"p" * 32)
        self.sessions = WalletSessions(self.store, self.clock, self.ids, WalletSessionOptions(idle_timeout_ms=IDLE_MS))
        self.authenticator = Authenticator(self.store, self.cookies, self.sessions, self.hasher, self.clock)
        self.keys = ApiKeys(self.store, self.hasher, self.clock, self.ids)
        self.members = Members(self.relations, self.directory.by_ids)
        self.invitations = Invitations(
            MemoryInvitations(self.relations), self.members, self.relations, self.directory.by_ids, self.clock, self.ids
        )
        self.sign_in = SignIn(
            self.store,
            self.members,
            SignatureVerifier(self.chain),
            self.sessions,
            self.cookies,
            self.clock,
            self.ids,
            SignInOptions(domain="localhost:8080", uri="http://localhost:8080", chain_id=31337),
        )

    def wallet(self, number: int = 1) -> LocalAccount:
        account: LocalAccount = Account.from_key(sha256(f"wallet {number}".encode()).digest())
        return account

    def sign(self, account: LocalAccount, challenge: Challenge) -> str:
        return "0x" + bytes(account.sign_message(encode_defunct(text=challenge.message)).signature).hex()

    async def joins(self, workspace_id: str, owner: str, address: str, role: str) -> None:
        """Invite a wallet, which accepts."""
        invited = await self.invitations.invite(workspace_id, address, role, invited_by=owner)
        assert invited.invitation is not None
        await self.invitations.accept(address, invited.invitation.id)

    async def workspace(self, owner: str, slug: str = "roof-cam") -> str:
        """Create a workspace with its owner's edge; returns its id."""
        workspace = a_workspace(self.ids.uuid(), slug, owner)
        self.directory.workspaces[workspace.id] = workspace
        await self.relations.write([TupleUpdate(member_edge(workspace.id, owner, Role.OWNER))])
        return workspace.id
