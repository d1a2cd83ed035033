"""Ports of identity: a store for nonces, API keys and wallet sessions, and a directory of workspaces.

Members have no table: a membership is an edge of the authorization graph (`sightline.ports.relations`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, final

from sightline.domain.access import Environment, KeyLimits, Role, Scope, WalletPrincipal
from sightline.ports.store import IdempotencyRecord


class Purpose(StrEnum):
    """What a nonce may be used for. A nonce of one purpose is refused for any other."""

    LOGIN = "LOGIN"
    CREATE_WORKSPACE = "CREATE_WORKSPACE"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Nonce:
    """One sign-in challenge and the exact text to sign. `address` is lower case."""

    value: str
    address: str
    purpose: Purpose
    message: str
    chain_id: int
    expires_at_ms: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKeyRecord:
    """The stored data of an API key, without the key. `grace_ends_at_ms` is set together with `revoked_at_ms`."""

    key_id: str
    workspace_id: str
    label: str
    prefix: str
    environment: Environment
    scopes: frozenset[Scope]
    created_at_ms: int
    created_by_wallet: str
    last_used_at_ms: int | None = None
    revoked_at_ms: int | None = None
    grace_ends_at_ms: int | None = None
    inert_scopes: frozenset[Scope] = frozenset()
    """Scopes that allowed nothing when the key was minted. They are shown, and still allow nothing."""
    limits: KeyLimits | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WalletSession:
    """One sign-in of a wallet. The session cookie names it by `session_id`; ending it makes the cookie invalid.

    `wallet_address` is in EIP-55 form. `client_ip` and `user_agent` (at most 200 characters) are those of the sign-in.
    """

    session_id: str
    wallet_address: str
    signed_in_at_ms: int
    last_used_at_ms: int
    client_ip: str
    user_agent: str
    ended_at_ms: int | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A wallet's role in a workspace. `wallet_address` is in EIP-55 form."""

    workspace_id: str
    wallet_address: str
    role: Role


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceBrief:
    """The fields of a workspace that lists show. `roles` holds CONSUMER and/or SUPPLIER."""

    id: str
    slug: str
    name: str
    roles: tuple[str, ...]


class IdentityStore(Protocol):
    """Stores nonces, stream tickets, API key records and wallet sessions.

    Every method raises StoreUnavailableError when nothing was changed. A writing method raises OutcomeUnknownError when
    the reply to its commit was lost.
    """

    async def add_nonce(self, nonce: Nonce) -> None:
        """Store a new challenge."""
        ...

    async def take_nonce(self, value: str, *, address: str, purpose: Purpose, now_ms: int) -> Nonce | None:
        """Mark a challenge as used and return it. Of concurrent callers exactly one gets it.

        Returns None if it is used, expired, unknown, or belongs to another address or purpose.
        """
        ...

    async def give_back_nonce(self, value: str) -> None:
        """Mark a used challenge as unused again. Its expiry does not change; an unknown value is ignored."""
        ...

    async def add_ticket(self, digest: bytes, sealed: bytes, *, expires_at_ms: int, now_ms: int) -> None:
        """Store the content of a stream ticket by the digest of the ticket (32 bytes)."""
        ...

    async def take_ticket(self, digest: bytes, *, now_ms: int) -> bytes | None:
        """Delete a stream ticket and return its content. Of concurrent callers exactly one gets it.

        Returns None if it is unknown, used or expired.
        """
        ...

    async def add_key(
        self, record: ApiKeyRecord, digest: bytes, *, limit: int, call: IdempotencyRecord | None = None
    ) -> bool:
        """Store a new key unless its workspace already has `limit` unrevoked keys. Returns whether it was stored.

        The limit holds under concurrent calls. The record of the call is stored in the same transaction as the key.

        Raises:
            CallRecordedError: The call is recorded already.
        """
        ...

    async def key_of(self, digest: bytes) -> ApiKeyRecord | None:
        """Find a key by the digest of its plaintext (32 bytes). Revoked keys are found too."""
        ...

    async def keys_in(self, workspace_id: str) -> tuple[ApiKeyRecord, ...]:
        """List the keys of a workspace, revoked ones included, newest first."""
        ...

    async def revoke_key(self, workspace_id: str, key_id: str, *, now_ms: int, grace_ms: int) -> ApiKeyRecord | None:
        """Revoke a key. Revoking it again changes nothing and returns the same record.

        Returns None if the workspace has no such key.
        """
        ...

    async def mark_keys_used(self, used_at_ms: Mapping[str, int]) -> None:
        """Raise the last use of keys (key id to instant). Never lowers it; ignores unknown keys."""
        ...

    async def add_wallet_session(self, session: WalletSession) -> None:
        """Store a new sign-in."""
        ...

    async def wallet_session(self, session_id: str) -> WalletSession | None:
        """Find a sign-in by id. Ended sign-ins are found too."""
        ...

    async def wallet_sessions_of(self, address: str, *, signed_in_after_ms: int) -> tuple[WalletSession, ...]:
        """List the sign-ins of a wallet after an instant that have not ended, newest first. Address in any case."""
        ...

    async def end_wallet_session(self, session_id: str, *, address: str, now_ms: int) -> WalletSession | None:
        """End a sign-in of this wallet. Ending it again keeps the first end.

        Returns None if the wallet has no such sign-in.
        """
        ...

    async def mark_wallet_sessions_used(self, used_at_ms: Mapping[str, int]) -> None:
        """Raise the last use of sign-ins (session id to instant). Never lowers it; ignores unknown ids."""
        ...


class WorkspaceDirectory(Protocol):
    """Looks up workspaces by id."""

    async def by_ids(self, workspace_ids: Sequence[str]) -> tuple[WorkspaceBrief, ...]:
        """Return those that exist and are not deleted, in any order."""
        ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """A text for a wallet to sign (EIP-4361), identified by its nonce."""

    nonce: str
    message: str
    expires_at_ms: int


@final
@dataclass(frozen=True, slots=True)
class Membership:
    """A workspace that a wallet can access, and the wallet's role in it."""

    workspace: WorkspaceBrief
    role: Role


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SignedIn:
    """An opened wallet session."""

    principal: WalletPrincipal
    set_cookie: str = field(repr=False)
    """The Set-Cookie header that carries the session. It is a secret of the client."""
    memberships: tuple[Membership, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class MintedKey:
    """A new API key. The plaintext is returned once and not stored."""

    record: ApiKeyRecord
    plaintext: str = field(repr=False)


class SignInService(Protocol):
    """Opens sessions for wallets that prove their key by a signature."""

    async def challenge(self, address: str, purpose: Purpose) -> Challenge:
        """Compose a text for the wallet to sign."""
        ...

    async def login(
        self, address: str, nonce: str, signature: str, *, client_ip: str = "", user_agent: str = ""
    ) -> SignedIn:
        """Open a wallet session."""
        ...

    async def select(self, principal: WalletPrincipal, workspace_id: str) -> SignedIn:
        """Select the workspace that the session acts for."""
        ...

    async def prove(self, address: str, nonce: str, signature: str, purpose: Purpose) -> str:
        """Verify a signature and use its nonce up. Returns the address in EIP-55 form."""
        ...

    async def give_back(self, nonce: str) -> None:
        """Make a used nonce valid again after a dependency failed before the proof had any effect."""
        ...


class WalletSessionService(Protocol):
    """Lists and ends the sign-ins of wallets."""

    async def open_of(self, wallet_address: str) -> Sequence[WalletSession]:
        """List the open sign-ins of a wallet, newest first."""
        ...

    async def end(self, wallet_address: str, session_id: str) -> WalletSession:
        """End a sign-in."""
        ...


class MemberService(Protocol):
    """Lists and changes the members of workspaces."""

    async def members_of(self, workspace_id: str) -> Sequence[Member]:
        """List members, owners first."""
        ...

    async def memberships_of(self, address: str) -> Sequence[Membership]:
        """List the workspaces of a wallet, by slug."""
        ...

    async def add(self, workspace_id: str, address: str, role: str) -> Member:
        """Make a wallet a member, or change its role."""
        ...

    async def remove(self, workspace_id: str, address: str) -> Member:
        """Remove a member; returns the member as it was."""
        ...


class ApiKeyService(Protocol):
    """Mints, lists and revokes the API keys of workspaces."""

    async def mint(
        self, workspace_id: str, *, created_by: str, label: str, environment: str, scopes: Sequence[str],
        limits: KeyLimits | None = None, call: IdempotencyRecord | None = None,
    ) -> MintedKey:  # fmt: skip
        """Create a key."""
        ...

    async def keys_in(self, workspace_id: str) -> Sequence[ApiKeyRecord]:
        """List keys, newest first."""
        ...

    async def revoke(self, workspace_id: str, key_id: str) -> ApiKeyRecord:
        """Revoke a key."""
        ...
