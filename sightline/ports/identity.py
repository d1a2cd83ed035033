"""What identity needs of others: a store for nonces and API keys, and the names of workspaces.

Members have no table: they are edges of the authorization graph (`sightline.ports.relations`), so that
there is one truth.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, final

from sightline.domain.access import Environment, Role, Scope


class Purpose(StrEnum):
    """What a nonce may be used for; one purpose never serves another."""

    LOGIN = "LOGIN"
    CREATE_WORKSPACE = "CREATE_WORKSPACE"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Nonce:
    """One challenge, with the exact text that has to be signed. `address` is lower case."""

    value: str
    address: str
    purpose: Purpose
    message: str
    chain_id: int
    expires_at_ms: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKeyRecord:
    """What is known of a key; never the key. `grace_ends_at_ms` is set with `revoked_at_ms`."""

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
    """A workspace as it is named in lists. `roles` are CONSUMER and SUPPLIER."""

    id: str
    slug: str
    name: str
    roles: tuple[str, ...]


class IdentityStore(Protocol):
    """Where nonces and key records are kept.

    Every method raises StoreUnavailableError when surely nothing was done, and a writing one
    OutcomeUnknownError when the answer to its commit was lost.
    """

    async def add_nonce(self, nonce: Nonce) -> None:
        """Keep a fresh challenge."""
        ...

    async def take_nonce(self, value: str, *, address: str, purpose: Purpose, now_ms: int) -> Nonce | None:
        """Use up a challenge: of any number of callers one gets it.

        None if used, expired, unknown or another's.
        """
        ...

    async def give_back_nonce(self, value: str) -> None:
        """Make a used challenge good again, until it expires; unknown ones are ignored."""
        ...

    async def drop_nonces(self, *, expired_before_ms: int) -> int:
        """Forget challenges that expired before this instant; returns how many."""
        ...

    async def add_key(self, record: ApiKeyRecord, digest: bytes, *, limit: int) -> bool:
        """Keep a fresh key unless its workspace has `limit` unrevoked ones already; says if it was kept.

        The limit holds under concurrent calls.
        """
        ...

    async def key_of(self, digest: bytes) -> ApiKeyRecord | None:
        """Find a key, revoked or not, by the digest of its plaintext (32 bytes)."""
        ...

    async def keys_in(self, workspace_id: str) -> tuple[ApiKeyRecord, ...]:
        """List a workspace's keys, revoked ones too, newest first."""
        ...

    async def revoke_key(self, workspace_id: str, key_id: str, *, now_ms: int, grace_ms: int) -> ApiKeyRecord | None:
        """Revoke a key; a second time changes nothing and returns the same.

        None if the workspace has no such key.
        """
        ...

    async def mark_used(self, used_at_ms: Mapping[str, int]) -> None:
        """Raise the last use of keys (key id -> instant); never lowers one, ignores unknown keys."""
        ...


class WorkspaceDirectory(Protocol):
    """Names of workspaces."""

    async def by_ids(self, workspace_ids: Sequence[str]) -> tuple[WorkspaceBrief, ...]:
        """Look up those that exist and are not deleted, in any order."""
        ...
