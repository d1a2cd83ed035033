"""The identity store and the authorization graph in memory, for simulation and tests.

They pass the same contract suites as the Postgres adapters.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import final

import trio

from sightline.domain.consistency import ConsistencyTokens
from sightline.domain.value import replace
from sightline.ports.identity import (
    USED_TOKEN_KEPT_MS,
    ApiKeyRecord,
    AuthorizationCode,
    FoundToken,
    GrantToken,
    Nonce,
    Purpose,
    TokenKind,
    WalletSession,
)
from sightline.ports.relations import (
    ObjectRef,
    PreconditionFailedError,
    RelationTuple,
    Staged,
    TupleUpdate,
)
from sightline.ports.store import CallRecordedError, IdempotencyRecord


@final
class MemoryIdentityStore:
    """Stores nonces, tickets, API keys and wallet sessions in dictionaries."""

    def __init__(self, record_call: Callable[[IdempotencyRecord], bool] = lambda _: True) -> None:
        """Create an empty store. `record_call` records an answer; False if one is recorded already."""
        self._record_call = record_call
        self._nonces: dict[str, Nonce] = {}
        self._used: set[str] = set()
        self._tickets: dict[bytes, tuple[bytes, int]] = {}
        self._keys: dict[bytes, ApiKeyRecord] = {}
        self._sessions: dict[str, WalletSession] = {}
        self.grants = MemoryGrants(self)

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

    async def add_ticket(self, digest: bytes, sealed: bytes, *, expires_at_ms: int, now_ms: int) -> None:
        """Keep the content of a ticket."""
        await trio.lowlevel.checkpoint()
        self._tickets[digest] = (sealed, expires_at_ms)

    async def take_ticket(self, digest: bytes, *, now_ms: int) -> bytes | None:
        """Use up a ticket."""
        await trio.lowlevel.checkpoint()
        sealed, expires_at_ms = self._tickets.pop(digest, (b"", 0))
        return sealed if expires_at_ms > now_ms else None

    async def add_key(
        self, record: ApiKeyRecord, digest: bytes, *, limit: int, call: IdempotencyRecord | None = None
    ) -> bool:
        """Keep a fresh key within the workspace's limit."""
        await trio.lowlevel.checkpoint()
        now_ms = record.created_at_ms
        live = [
            each
            for each in self._keys.values()
            if each.workspace_id == record.workspace_id
            and each.revoked_at_ms is None
            and (each.expires_at_ms is None or each.expires_at_ms > now_ms)
        ]
        if len(live) >= limit:
            return False
        if call is not None and not self._record_call(call):
            raise CallRecordedError
        self._keys[digest] = record
        return True

    async def add_view_key(self, record: ApiKeyRecord, digest: bytes) -> bool:
        """Keep the key of a paid view, once."""
        await trio.lowlevel.checkpoint()
        if all(each.key_id != record.key_id for each in self._keys.values()):
            self._keys[digest] = record
        stored = self._keys.get(digest)
        return stored is not None and stored.key_id == record.key_id

    async def add_share(
        self, record: ApiKeyRecord, digest: bytes, *, limit: int, call: IdempotencyRecord | None = None
    ) -> bool:
        """Keep the key of a share link within the session's limit."""
        await trio.lowlevel.checkpoint()
        shares = (each for each in self._keys.values() if each.is_share and each.session_id == record.session_id)
        if sum((each.grace_ends_at_ms or 0) > record.created_at_ms for each in shares) >= limit:
            return False
        if call is not None and not self._record_call(call):
            raise CallRecordedError
        self._keys[digest] = record
        return True

    async def shares_of(self, workspace_id: str, session_id: str, *, limit: int) -> tuple[ApiKeyRecord, ...]:
        """List the keys of a session's share links, newest first."""
        await trio.lowlevel.checkpoint()
        ids = (workspace_id, session_id)
        shares = (each for each in self._keys.values() if each.is_share and (each.workspace_id, each.session_id) == ids)
        return tuple(sorted(shares, key=lambda each: (each.created_at_ms, each.key_id), reverse=True))[:limit]

    async def end_share(self, workspace_id: str, session_id: str, key_id: str, *, now_ms: int) -> ApiKeyRecord | None:
        """End the key of a share link, once."""
        await trio.lowlevel.checkpoint()
        for digest, record in self._keys.items():
            ids = (record.workspace_id, record.session_id, record.key_id)
            if record.is_share and ids == (workspace_id, session_id, key_id):
                ends_at_ms = min(record.grace_ends_at_ms or now_ms, now_ms)
                ended = replace(record, revoked_at_ms=ends_at_ms, grace_ends_at_ms=ends_at_ms)
                self._keys[digest] = ended
                return ended
        return None

    async def key_of(self, digest: bytes) -> ApiKeyRecord | None:
        """Find a key by its digest."""
        await trio.lowlevel.checkpoint()
        token = self.grants.tokens.get(digest)
        if token is None or token.kind is not TokenKind.ACCESS:
            return self._keys.get(digest)
        record = self.key_by_id(token.key_id)
        if record is None or record.expires_at_ms is None:
            return record
        return replace(record, expires_at_ms=min(record.expires_at_ms, token.ends_at_ms))

    def key_by_id(self, key_id: str) -> ApiKeyRecord | None:
        """Find a key by its id."""
        return next((each for each in self._keys.values() if each.key_id == key_id), None)

    def extend_key(self, key_id: str, expires_at_ms: int) -> None:
        """Set the end of a key."""
        for digest, record in self._keys.items():
            if record.key_id == key_id:
                self._keys[digest] = replace(record, expires_at_ms=expires_at_ms)

    async def key_in(self, workspace_id: str, key_id: str) -> ApiKeyRecord | None:
        """Find a key by its id."""
        await trio.lowlevel.checkpoint()
        ids = (workspace_id, key_id)
        return next((each for each in self._keys.values() if (each.workspace_id, each.key_id) == ids), None)

    async def keys_in(self, workspace_id: str) -> tuple[ApiKeyRecord, ...]:
        """List a workspace's keys, newest first."""
        await trio.lowlevel.checkpoint()
        keys = (each for each in self._keys.values() if each.workspace_id == workspace_id and each.session_id is None)
        return tuple(sorted(keys, key=lambda each: (each.created_at_ms, each.key_id), reverse=True))

    async def revoke_key(self, workspace_id: str, key_id: str, *, now_ms: int, grace_ms: int) -> ApiKeyRecord | None:
        """Revoke a key, once."""
        await trio.lowlevel.checkpoint()
        for digest, record in self._keys.items():
            if (record.workspace_id, record.key_id) == (workspace_id, key_id) and record.session_id is None:
                if record.revoked_at_ms is None:
                    record = replace(record, revoked_at_ms=now_ms, grace_ends_at_ms=now_ms + grace_ms)
                    self._keys[digest] = record
                return record
        return None

    async def keep_key(self, workspace_id: str, key_id: str, *, now_ms: int) -> ApiKeyRecord | None:
        """Take back a revocation during its grace period."""
        await trio.lowlevel.checkpoint()
        for digest, record in self._keys.items():
            if (record.workspace_id, record.key_id) == (workspace_id, key_id) and record.session_id is None:
                if record.grace_ends_at_ms is not None and now_ms < record.grace_ends_at_ms:
                    record = replace(record, revoked_at_ms=None, grace_ends_at_ms=None)
                    self._keys[digest] = record
                return record
        return None

    async def mark_keys_used(self, used_at_ms: Mapping[str, int]) -> None:
        """Raise the last use of keys."""
        await trio.lowlevel.checkpoint()
        for digest, record in self._keys.items():
            at_ms = used_at_ms.get(record.key_id)
            if at_ms is not None and (record.last_used_at_ms is None or at_ms > record.last_used_at_ms):
                self._keys[digest] = replace(record, last_used_at_ms=at_ms)

    async def add_wallet_session(self, session: WalletSession) -> None:
        """Store a new sign-in."""
        await trio.lowlevel.checkpoint()
        self._sessions[session.session_id] = session

    async def wallet_session(self, session_id: str) -> WalletSession | None:
        """Find a sign-in."""
        await trio.lowlevel.checkpoint()
        return self._sessions.get(session_id)

    async def wallet_sessions_of(self, address: str, *, signed_in_after_ms: int) -> tuple[WalletSession, ...]:
        """List the sign-ins of a wallet that have not ended, newest first."""
        await trio.lowlevel.checkpoint()
        found = (
            session
            for session in self._sessions.values()
            if session.wallet_address.lower() == address.lower()
            and session.signed_in_at_ms > signed_in_after_ms
            and session.ended_at_ms is None
        )
        return tuple(sorted(found, key=lambda each: (each.signed_in_at_ms, each.session_id), reverse=True))

    async def end_wallet_session(self, session_id: str, *, address: str, now_ms: int) -> WalletSession | None:
        """End a sign-in; the first end is kept."""
        await trio.lowlevel.checkpoint()
        session = self._sessions.get(session_id)
        if session is None or session.wallet_address.lower() != address.lower():
            return None
        if session.ended_at_ms is None:
            session = self._sessions[session_id] = replace(session, ended_at_ms=now_ms)
        return session

    async def mark_wallet_sessions_used(self, used_at_ms: Mapping[str, int]) -> None:
        """Raise the last use of sign-ins."""
        await trio.lowlevel.checkpoint()
        for session_id, at_ms in used_at_ms.items():
            session = self._sessions.get(session_id)
            if session is not None and at_ms > session.last_used_at_ms:
                self._sessions[session_id] = replace(session, last_used_at_ms=at_ms)


@final
class MemoryGrants:
    """Stores the codes and tokens of OAuth grants beside the keys of an identity store."""

    def __init__(self, keys: MemoryIdentityStore) -> None:
        self._keys = keys
        self._codes: dict[bytes, AuthorizationCode] = {}
        self.tokens: dict[bytes, GrantToken] = {}

    async def add_code(self, code: AuthorizationCode) -> None:
        """Store a code."""
        await trio.lowlevel.checkpoint()
        self._codes[code.digest] = code

    async def code_of(self, digest: bytes) -> AuthorizationCode | None:
        """Find a code."""
        await trio.lowlevel.checkpoint()
        return self._codes.get(digest)

    async def redeem_code(self, digest: bytes, tokens: Sequence[GrantToken], *, now_ms: int) -> bool:
        """Use a code, once."""
        await trio.lowlevel.checkpoint()
        code = self._codes.get(digest)
        if code is None or code.used_at_ms is not None:
            return False
        self._codes[digest] = replace(code, used_at_ms=now_ms)
        self._keys.extend_key(code.key_id, code.grant_ends_at_ms)
        self.tokens.update((each.digest, each) for each in tokens)
        return True

    async def token_of(self, digest: bytes) -> FoundToken | None:
        """Find a token."""
        await trio.lowlevel.checkpoint()
        token = self.tokens.get(digest)
        key = None if token is None else self._keys.key_by_id(token.key_id)
        return None if token is None or key is None else FoundToken(token, key)

    async def rotate_token(
        self, digest: bytes, tokens: Sequence[GrantToken], *, now_ms: int, reuse_ms: int
    ) -> bool:  # fmt: skip
        """Use a refresh token."""
        await trio.lowlevel.checkpoint()
        token = self.tokens.get(digest)
        if token is None or token.kind is not TokenKind.REFRESH:
            return False
        if token.used_at_ms is None:
            ends_at_ms = min(token.ends_at_ms, now_ms + USED_TOKEN_KEPT_MS)
            self.tokens[digest] = replace(token, used_at_ms=now_ms, ends_at_ms=ends_at_ms)
        elif token.used_at_ms <= now_ms - reuse_ms:
            return False
        self.tokens.update((each.digest, each) for each in tokens)
        return True


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

    def has_all(self, edges: Sequence[RelationTuple]) -> bool:
        """Tell whether all edges stand (what `hold_tuples` is to Postgres)."""
        return self._edges.issuperset(edges)

    async def write(self, updates: Sequence[TupleUpdate], *, requires: Sequence[RelationTuple] = ()) -> str:
        """Apply updates at once."""
        await trio.lowlevel.checkpoint()
        if not self.has_all(requires):
            raise PreconditionFailedError
        return self.token_for(self.apply(updates))

    @property
    def is_external(self) -> bool:
        """Not: the edges are part of the store in memory."""
        return False

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
