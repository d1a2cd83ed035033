"""Identity and the authorization graph in memory, for simulation and tests.

Behaves as the Postgres ones do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import final

import trio

from sightline.domain.consistency import ConsistencyTokens
from sightline.ports.identity import ApiKeyRecord, Nonce, Purpose
from sightline.ports.relations import (
    ObjectRef,
    PreconditionFailedError,
    RelationTuple,
    Staged,
    TupleUpdate,
)


@final
class MemoryIdentityStore:
    """Nonces and API keys in dictionaries."""

    def __init__(self) -> None:
        self._nonces: dict[str, Nonce] = {}
        self._used: set[str] = set()
        self._keys: dict[bytes, ApiKeyRecord] = {}

    async def add_nonce(self, nonce: Nonce) -> None:
        """Keep a fresh challenge."""
        await trio.lowlevel.checkpoint()
        self._nonces[nonce.value] = nonce

    async def take_nonce(self, value: str, *, address: str, purpose: Purpose, now_ms: int) -> Nonce | None:
        """Use up a challenge."""
        await trio.lowlevel.checkpoint()
        nonce = self._nonces.get(value)
        if nonce is None or (nonce.address, nonce.purpose) != (address, purpose) or nonce.expires_at_ms <= now_ms:
            return None
        if value in self._used:
            return None
        self._used.add(value)
        return nonce

    async def give_back_nonce(self, value: str) -> None:
        """Make a used challenge good again."""
        await trio.lowlevel.checkpoint()
        self._used.discard(value)

    async def drop_nonces(self, *, expired_before_ms: int) -> int:
        """Forget challenges that expired before this instant."""
        await trio.lowlevel.checkpoint()
        old = [value for value, nonce in self._nonces.items() if nonce.expires_at_ms < expired_before_ms]
        for value in old:
            del self._nonces[value]
            self._used.discard(value)
        return len(old)

    async def add_key(self, record: ApiKeyRecord, digest: bytes, *, limit: int) -> bool:
        """Keep a fresh key within the workspace's limit."""
        await trio.lowlevel.checkpoint()
        of_workspace = (each for each in self._keys.values() if each.workspace_id == record.workspace_id)
        if sum(each.revoked_at_ms is None for each in of_workspace) >= limit:
            return False
        self._keys[digest] = record
        return True

    async def key_of(self, digest: bytes) -> ApiKeyRecord | None:
        """Find a key by its digest."""
        await trio.lowlevel.checkpoint()
        return self._keys.get(digest)

    async def keys_in(self, workspace_id: str) -> tuple[ApiKeyRecord, ...]:
        """List a workspace's keys, newest first."""
        await trio.lowlevel.checkpoint()
        keys = (each for each in self._keys.values() if each.workspace_id == workspace_id)
        return tuple(sorted(keys, key=lambda each: (each.created_at_ms, each.key_id), reverse=True))

    async def revoke_key(self, workspace_id: str, key_id: str, *, now_ms: int, grace_ms: int) -> ApiKeyRecord | None:
        """Revoke a key, once."""
        await trio.lowlevel.checkpoint()
        for digest, record in self._keys.items():
            if (record.workspace_id, record.key_id) == (workspace_id, key_id):
                if record.revoked_at_ms is None:
                    record = replace(record, revoked_at_ms=now_ms, grace_ends_at_ms=now_ms + grace_ms)
                    self._keys[digest] = record
                return record
        return None

    async def mark_used(self, used_at_ms: Mapping[str, int]) -> None:
        """Raise the last use of keys."""
        await trio.lowlevel.checkpoint()
        for digest, record in self._keys.items():
            at_ms = used_at_ms.get(record.key_id)
            if at_ms is not None and (record.last_used_at_ms is None or at_ms > record.last_used_at_ms):
                self._keys[digest] = replace(record, last_used_at_ms=at_ms)


@final
class MemoryRelations:
    """The authorization graph in a set. A store in memory calls `apply` within its own commit."""

    def __init__(self, *, token_key: bytes, store_id: str = "memory") -> None:
        self._edges: set[RelationTuple] = set()
        self._revision = 0
        self._tokens = ConsistencyTokens(backend="m1", store_id=store_id, key=token_key)

    def apply(self, updates: Sequence[TupleUpdate]) -> int:
        """Write edges with the caller's commit and return the revision (what `write_tuples` is to Postgres)."""
        assert len({update.edge for update in updates}) == len(updates)
        for update in updates:
            if update.present:
                self._edges.add(update.edge)
            else:
                self._edges.discard(update.edge)
        self._revision += 1
        return self._revision

    async def write(self, updates: Sequence[TupleUpdate], *, requires: Sequence[RelationTuple] = ()) -> str:
        """Apply updates at once."""
        await trio.lowlevel.checkpoint()
        if not self._edges.issuperset(requires):
            raise PreconditionFailedError
        return self.token_for(self.apply(updates))

    async def stage(self, updates: Sequence[TupleUpdate]) -> Staged:
        """Hand the updates to the caller's commit."""
        await trio.lowlevel.checkpoint()
        return Staged(in_commit=tuple(updates))

    async def check(
        self, resource: ObjectRef, relation: str, subject: ObjectRef, *, at_least: str | None = None
    ) -> bool:
        """Tell whether the edge stands; always of this moment."""
        await trio.lowlevel.checkpoint()
        return RelationTuple(resource, relation, subject) in self._edges

    async def read(
        self,
        *,
        resource_type: str,
        resource_id: str | None = None,
        subject: ObjectRef | None = None,
        at_least: str | None = None,
    ) -> tuple[RelationTuple, ...]:
        """List edges in ascending order."""
        await trio.lowlevel.checkpoint()
        return tuple(
            sorted(
                edge
                for edge in self._edges
                if edge.resource.type == resource_type
                and resource_id in {None, edge.resource.id}
                and subject in {None, edge.subject}
            )
        )

    def token_for(self, revision: int) -> str:
        """Make the token of a revision."""
        return self._tokens.encode(str(revision))
