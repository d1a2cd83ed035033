"""Identity and the authorization graph on Postgres."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, final

from sightline.domain.access import Environment, KeyLimits, Scope
from sightline.domain.consistency import ConsistencyTokens
from sightline.domain.errors import AuthzUnavailableError, StoreUnavailableError
from sightline.domain.units import MicroUsdc
from sightline.domain.value import replace
from sightline.ports.identity import ApiKeyRecord, Nonce, Purpose, WalletSession
from sightline.ports.relations import (
    ObjectRef,
    PreconditionFailedError,
    RelationTuple,
    Staged,
    TupleUpdate,
)
from sightline.ports.store import IdempotencyRecord
from sightline.storage.database.bridge import Database
from sightline.storage.database.group_read import GroupRead
from sightline.storage.database.pool import Connection
from sightline.storage.postgres import identity_sql
from sightline.storage.postgres.idempotency import require_first_call

_ADD_NONCE = """
INSERT INTO auth_nonce (value, address, purpose, message, chain_id, expires_at_ms) VALUES ($1, $2, $3, $4,
$5, $6)
"""

_TAKE_NONCE = """
UPDATE auth_nonce SET used_at_ms = $4
WHERE value = $1 AND address = $2 AND purpose = $3 AND used_at_ms IS NULL AND expires_at_ms > $4
RETURNING value, address, purpose, message, chain_id, expires_at_ms
"""

_ADD_TICKET = """
WITH expired AS (
  DELETE FROM stream_ticket WHERE digest IN (
    SELECT digest FROM stream_ticket WHERE expires_at_ms <= $4 ORDER BY expires_at_ms LIMIT 2 FOR UPDATE SKIP LOCKED))
INSERT INTO stream_ticket (digest, sealed, expires_at_ms) VALUES ($1, $2, $3)
"""
_TAKE_TICKET = "DELETE FROM stream_ticket WHERE digest = $1 RETURNING sealed, expires_at_ms"

KEY_COLUMNS: Final = """key_id, workspace_id, label, prefix, environment, scopes, inert_scopes, created_at_ms,
  created_by_wallet, last_used_at_ms, revoked_at_ms, grace_ends_at_ms, session_limit, day_limit, session_id,
  expires_at_ms"""

_ADD_KEY = """
INSERT INTO api_key (key_id, workspace_id, digest, label, prefix, environment, scopes, created_at_ms,
created_by_wallet, session_limit, day_limit, expires_at_ms) SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12
WHERE (SELECT count(*) FROM api_key WHERE workspace_id = $2 AND revoked_at_ms IS NULL
  AND (expires_at_ms IS NULL OR expires_at_ms > $8)) < $13 RETURNING 1
"""

_ADD_VIEW_KEY = """
INSERT INTO api_key (key_id, workspace_id, digest, label, prefix, environment, scopes, created_at_ms,
created_by_wallet, revoked_at_ms, grace_ends_at_ms, session_id) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,
$12) ON CONFLICT (key_id) DO NOTHING
"""
_KEY_HAS_DIGEST = "SELECT EXISTS (SELECT FROM api_key WHERE key_id = $1 AND digest = $2)"

_ADD_SHARE = """
INSERT INTO api_key (key_id, workspace_id, digest, label, prefix, environment, scopes, created_at_ms,
created_by_wallet, revoked_at_ms, grace_ends_at_ms, session_id) SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12
WHERE (SELECT count(*) FROM api_key WHERE session_id = $12 AND key_id <> session_id AND grace_ends_at_ms > $8) < $13
RETURNING 1
"""

_SHARES_OF = f"""
SELECT {KEY_COLUMNS} FROM api_key WHERE workspace_id = $1 AND session_id = $2 AND key_id <> session_id
ORDER BY created_at_ms DESC, key_id DESC LIMIT $3
"""  # noqa: S608  constants only

_END_SHARE = f"""
UPDATE api_key SET revoked_at_ms = least(revoked_at_ms, $4), grace_ends_at_ms = least(grace_ends_at_ms, $4)
WHERE workspace_id = $1 AND session_id = $2 AND key_id = $3 AND key_id <> session_id
RETURNING {KEY_COLUMNS}
"""  # noqa: S608  constants only

_KEEP_KEY = f"""
WITH kept AS (
  UPDATE api_key SET revoked_at_ms = NULL, grace_ends_at_ms = NULL
  WHERE workspace_id = $1 AND key_id = $2 AND session_id IS NULL AND grace_ends_at_ms > $3
  RETURNING {KEY_COLUMNS}
)
SELECT {KEY_COLUMNS} FROM kept UNION ALL
SELECT {KEY_COLUMNS} FROM api_key
WHERE workspace_id = $1 AND key_id = $2 AND session_id IS NULL AND NOT EXISTS (SELECT FROM kept)
"""  # noqa: S608  constants only

_KEY_IN = f"SELECT {KEY_COLUMNS} FROM api_key WHERE workspace_id = $1 AND key_id = $2"  # noqa: S608  constants only

_REVOKE_KEY = f"""
UPDATE api_key SET revoked_at_ms = coalesce(revoked_at_ms, $3),
  grace_ends_at_ms = coalesce(grace_ends_at_ms, $3::bigint + $4::bigint)
WHERE workspace_id = $1 AND key_id = $2 AND session_id IS NULL
RETURNING {KEY_COLUMNS}
"""  # noqa: S608  constants only

FIND_KEYS: Final = f"""
SELECT digest, NULL::bigint AS token_ends_at_ms, {KEY_COLUMNS} FROM api_key WHERE digest = ANY($1::bytea[])
UNION ALL
SELECT t.digest, t.ends_at_ms, {KEY_COLUMNS} FROM oauth_token t JOIN api_key USING (key_id)
WHERE t.digest = ANY($1::bytea[]) AND t.kind = 'ACCESS'
"""  # noqa: S608  constants only

_MARK_KEYS_USED = """
UPDATE api_key k SET last_used_at_ms = u.at_ms
FROM (SELECT * FROM unnest($1::uuid[], $2::bigint[]) AS t(key_id, at_ms)) u
WHERE k.key_id = u.key_id AND coalesce(k.last_used_at_ms, 0) < u.at_ms
"""

_SESSION_COLUMNS = "session_id, wallet_address, signed_in_at_ms, last_used_at_ms, client_ip, user_agent, ended_at_ms"

_ADD_SESSION = f"""
INSERT INTO wallet_session ({_SESSION_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7)
"""  # noqa: S608  constants only

_SESSION = f"SELECT {_SESSION_COLUMNS} FROM wallet_session WHERE session_id = $1"  # noqa: S608  constants only

_SESSIONS_OF = f"""
SELECT {_SESSION_COLUMNS} FROM wallet_session
WHERE lower(wallet_address) = lower($1) AND signed_in_at_ms > $2 AND ended_at_ms IS NULL
ORDER BY signed_in_at_ms DESC, session_id DESC
"""  # noqa: S608  constants only

_END_SESSION = f"""
UPDATE wallet_session SET ended_at_ms = coalesce(ended_at_ms, $3)
WHERE session_id = $1 AND lower(wallet_address) = lower($2)
RETURNING {_SESSION_COLUMNS}
"""  # noqa: S608  constants only

_MARK_SESSIONS_USED = """
UPDATE wallet_session s SET last_used_at_ms = u.at_ms
FROM (SELECT * FROM unnest($1::uuid[], $2::bigint[]) AS t(session_id, at_ms)) u
WHERE s.session_id = u.session_id AND s.last_used_at_ms < u.at_ms
"""


@final
class PostgresIdentityStore:
    """Stores nonces, stream tickets, API keys and wallet sessions in four tables."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._keys: GroupRead[bytes, ApiKeyRecord] = GroupRead(database, _find_keys)

    async def add_nonce(self, nonce: Nonce) -> None:
        """Keep a fresh challenge."""
        row = (nonce.value, nonce.address, nonce.purpose, nonce.message, nonce.chain_id, nonce.expires_at_ms)
        await self._database.run(lambda connection: connection.execute(_ADD_NONCE, *row))

    async def take_nonce(self, value: str, *, address: str, purpose: Purpose, now_ms: int) -> Nonce | None:
        """Use up a challenge by one atomic UPDATE."""
        row = await self._database.run(
            lambda connection: connection.fetchrow(_TAKE_NONCE, value, address, purpose.value, now_ms)
        )
        if row is None:
            return None
        return Nonce(
            value=row["value"],
            address=row["address"],
            purpose=Purpose(row["purpose"]),
            message=row["message"],
            chain_id=row["chain_id"],
            expires_at_ms=row["expires_at_ms"],
        )

    async def give_back_nonce(self, value: str) -> None:
        """Make a used challenge good again."""
        await self._database.run(
            lambda connection: connection.execute("UPDATE auth_nonce SET used_at_ms = NULL WHERE value = $1", value)
        )

    async def add_ticket(self, digest: bytes, sealed: bytes, *, expires_at_ms: int, now_ms: int) -> None:
        """Store the content of a ticket, and delete two expired tickets, so that the table does not grow."""
        row = (digest, sealed, expires_at_ms, now_ms)
        await self._database.run(lambda connection: connection.execute(_ADD_TICKET, *row))

    async def take_ticket(self, digest: bytes, *, now_ms: int) -> bytes | None:
        """Use up a ticket by one atomic DELETE."""
        row = await self._database.run(lambda connection: connection.fetchrow(_TAKE_TICKET, digest))
        return bytes(row["sealed"]) if row is not None and row["expires_at_ms"] > now_ms else None

    async def add_key(
        self, record: ApiKeyRecord, digest: bytes, *, limit: int, call: IdempotencyRecord | None = None
    ) -> bool:
        """Keep a fresh key within the workspace's limit; minters of one workspace wait for each other."""
        row = (
            *_new_key(record, digest),
            None if record.limits is None else record.limits.per_session,
            None if record.limits is None else record.limits.per_day,
            record.expires_at_ms,
            limit,
        )

        async def unit(connection: Connection) -> bool:
            lock = f"api_key:{record.workspace_id}"
            await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", lock)
            if await connection.fetchval(_ADD_KEY, *row) is None:
                return False
            await require_first_call(connection, call)
            return True

        return await self._database.transact(unit)

    async def add_view_key(self, record: ApiKeyRecord, digest: bytes) -> bool:
        """Keep the key of a paid view, once."""
        row = (*_new_key(record, digest), record.revoked_at_ms, record.grace_ends_at_ms, record.session_id)

        async def unit(connection: Connection) -> bool:
            await connection.execute(_ADD_VIEW_KEY, *row)
            return bool(await connection.fetchval(_KEY_HAS_DIGEST, record.key_id, digest))

        return await self._database.transact(unit)

    async def add_share(
        self, record: ApiKeyRecord, digest: bytes, *, limit: int, call: IdempotencyRecord | None = None
    ) -> bool:
        """Keep the key of a share link within its session's limit; makers of one session's links take turns."""
        row = (*_new_key(record, digest), record.revoked_at_ms, record.grace_ends_at_ms, record.session_id, limit)

        async def unit(connection: Connection) -> bool:
            lock = f"share:{record.session_id}"
            await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", lock)
            if await connection.fetchval(_ADD_SHARE, *row) is None:
                return False
            await require_first_call(connection, call)
            return True

        return await self._database.transact(unit)

    async def shares_of(self, workspace_id: str, session_id: str, *, limit: int) -> tuple[ApiKeyRecord, ...]:
        """List the keys of a session's share links, newest first."""
        rows = await self._database.read(
            lambda connection: connection.fetch(_SHARES_OF, workspace_id, session_id, limit)
        )
        return tuple(key_record(row) for row in rows)

    async def end_share(self, workspace_id: str, session_id: str, key_id: str, *, now_ms: int) -> ApiKeyRecord | None:
        """End the key of a share link, once."""
        row = await self._database.run(
            lambda connection: connection.fetchrow(_END_SHARE, workspace_id, session_id, key_id, now_ms)
        )
        return None if row is None else key_record(row)

    async def key_of(self, digest: bytes) -> ApiKeyRecord | None:
        """Find a key by its digest; after a restart every device asks at once, so they share queries."""
        return await self._keys.read(digest)

    async def key_in(self, workspace_id: str, key_id: str) -> ApiKeyRecord | None:
        """Find a key by its primary key."""
        row = await self._database.read(lambda connection: connection.fetchrow(_KEY_IN, workspace_id, key_id))
        return None if row is None else key_record(row)

    async def keys_in(self, workspace_id: str) -> tuple[ApiKeyRecord, ...]:
        """List a workspace's keys, newest first."""
        query = (
            f"SELECT {KEY_COLUMNS} FROM api_key WHERE workspace_id = $1 AND session_id IS NULL"  # noqa: S608  constants only
            " ORDER BY created_at_ms DESC, key_id DESC"
        )
        rows = await self._database.read(lambda connection: connection.fetch(query, workspace_id))
        return tuple(key_record(row) for row in rows)

    async def revoke_key(self, workspace_id: str, key_id: str, *, now_ms: int, grace_ms: int) -> ApiKeyRecord | None:
        """Revoke a key, once."""
        row = await self._database.run(
            lambda connection: connection.fetchrow(_REVOKE_KEY, workspace_id, key_id, now_ms, grace_ms)
        )
        return None if row is None else key_record(row)

    async def keep_key(self, workspace_id: str, key_id: str, *, now_ms: int) -> ApiKeyRecord | None:
        """Take back a revocation during its grace period."""
        row = await self._database.run(lambda connection: connection.fetchrow(_KEEP_KEY, workspace_id, key_id, now_ms))
        return None if row is None else key_record(row)

    async def mark_keys_used(self, used_at_ms: Mapping[str, int]) -> None:
        """Raise the last use of keys, in one statement."""
        await self._mark_used(_MARK_KEYS_USED, used_at_ms)

    async def add_wallet_session(self, session: WalletSession) -> None:
        """Store a new sign-in."""
        row = (
            session.session_id,
            session.wallet_address,
            session.signed_in_at_ms,
            session.last_used_at_ms,
            session.client_ip,
            session.user_agent,
            session.ended_at_ms,
        )
        await self._database.run(lambda connection: connection.execute(_ADD_SESSION, *row))

    async def wallet_session(self, session_id: str) -> WalletSession | None:
        """Find a sign-in by its primary key."""
        row = await self._database.read(lambda connection: connection.fetchrow(_SESSION, session_id))
        return None if row is None else _wallet_session(row)

    async def wallet_sessions_of(self, address: str, *, signed_in_after_ms: int) -> tuple[WalletSession, ...]:
        """List the sign-ins of a wallet that have not ended, newest first."""
        rows = await self._database.read(lambda connection: connection.fetch(_SESSIONS_OF, address, signed_in_after_ms))
        return tuple(_wallet_session(row) for row in rows)

    async def end_wallet_session(self, session_id: str, *, address: str, now_ms: int) -> WalletSession | None:
        """End a sign-in; the first end is kept."""
        row = await self._database.run(
            lambda connection: connection.fetchrow(_END_SESSION, session_id, address, now_ms)
        )
        return None if row is None else _wallet_session(row)

    async def mark_wallet_sessions_used(self, used_at_ms: Mapping[str, int]) -> None:
        """Raise the last use of sign-ins, in one statement."""
        await self._mark_used(_MARK_SESSIONS_USED, used_at_ms)

    async def _mark_used(self, statement: str, used_at_ms: Mapping[str, int]) -> None:
        if not used_at_ms:
            return
        columns = (list(used_at_ms), list(used_at_ms.values()))
        # In a transaction, because two servers that update the same rows can deadlock, and transactions are retried.
        await self._database.transact(lambda connection: connection.execute(statement, *columns))


@final
class PostgresRelations:
    """The authorization graph in the same database as the sessions, so that both change in one transaction.

    Every read sees the newest committed state of the primary, which is at least as fresh as any consistency token of
    this store, because a token is issued after its commit. Open it with `open`.
    """

    def __init__(self, database: Database, tokens: ConsistencyTokens) -> None:
        self._database = database
        self._tokens = tokens

    @classmethod
    async def open(cls, database: Database, *, token_key: bytes) -> "PostgresRelations":
        """Read which graph this is; tokens are bound to it."""
        store_id = await database.read(identity_sql.store_id)
        return cls(database, ConsistencyTokens(backend="p1", store_id=store_id, key=token_key))

    async def write(self, updates: Sequence[TupleUpdate], *, requires: Sequence[RelationTuple] = ()) -> str:
        """Apply updates at once."""

        async def unit(connection: Connection) -> int:
            if requires and not await identity_sql.hold_tuples(connection, requires):
                raise PreconditionFailedError
            return await identity_sql.write_tuples(connection, updates)

        try:
            return self.token_for(await self._database.transact(unit))
        except StoreUnavailableError as error:
            raise AuthzUnavailableError(str(error)) from error

    @property
    def is_external(self) -> bool:
        """Not: the edges are rows of the same database."""
        return False

    async def stage(self, updates: Sequence[TupleUpdate]) -> Staged:
        """Hand the updates to the caller's transaction."""
        return Staged(in_commit=tuple(updates))

    async def check(
        self, resource: ObjectRef, relation: str, subject: ObjectRef, *, at_least: str | None = None
    ) -> bool:
        """Tell whether the edge stands."""
        edge = RelationTuple(resource, relation, subject)
        try:
            return await self._database.read(lambda connection: identity_sql.has_tuple(connection, edge))
        except StoreUnavailableError as error:
            raise AuthzUnavailableError(str(error)) from error

    async def read(
        self,
        *,
        resource_type: str,
        resource_id: str | None = None,
        subject: ObjectRef | None = None,
        at_least: str | None = None,
    ) -> tuple[RelationTuple, ...]:
        """List edges in ascending order."""
        try:
            return await self._database.read(
                lambda connection: identity_sql.read_tuples(connection, resource_type, resource_id, subject)
            )
        except StoreUnavailableError as error:
            raise AuthzUnavailableError(str(error)) from error

    def token_for(self, revision: int) -> str:
        """Make the token of a revision."""
        return self._tokens.encode(str(revision))

    def revision_of(self, token: str) -> int | None:
        """Read a token of this graph; None if it is foreign or malformed."""
        revision = self._tokens.decode(token)
        return None if revision is None else int(revision)


async def _find_keys(connection: Connection, digests: Sequence[bytes]) -> dict[bytes, ApiKeyRecord]:
    return {row["digest"]: _found(row) for row in await connection.fetch(FIND_KEYS, digests)}


def _found(row: Mapping[str, Any]) -> ApiKeyRecord:
    """The record of a key, with the end of the access token that it was found by."""
    record, token_ends_at_ms = key_record(row), row["token_ends_at_ms"]
    if token_ends_at_ms is None or record.expires_at_ms is None:
        return record
    return replace(record, expires_at_ms=min(record.expires_at_ms, token_ends_at_ms))


def _wallet_session(row: Mapping[str, Any]) -> WalletSession:
    return WalletSession(
        session_id=str(row["session_id"]),
        wallet_address=row["wallet_address"],
        signed_in_at_ms=row["signed_in_at_ms"],
        last_used_at_ms=row["last_used_at_ms"],
        client_ip=row["client_ip"],
        user_agent=row["user_agent"],
        ended_at_ms=row["ended_at_ms"],
    )


def _new_key(record: ApiKeyRecord, digest: bytes) -> tuple[object, ...]:
    return (
        record.key_id,
        record.workspace_id,
        digest,
        record.label,
        record.prefix,
        record.environment.value,
        sorted(record.scopes),
        record.created_at_ms,
        record.created_by_wallet,
    )


def key_record(row: Mapping[str, Any]) -> ApiKeyRecord:
    """Read a row with `KEY_COLUMNS`."""
    return ApiKeyRecord(
        key_id=str(row["key_id"]),
        workspace_id=str(row["workspace_id"]),
        label=row["label"],
        prefix=row["prefix"],
        environment=Environment(row["environment"]),
        scopes=frozenset(Scope(scope) for scope in row["scopes"]),
        inert_scopes=frozenset(Scope(scope) for scope in row["inert_scopes"]),
        created_at_ms=row["created_at_ms"],
        created_by_wallet=row["created_by_wallet"],
        last_used_at_ms=row["last_used_at_ms"],
        revoked_at_ms=row["revoked_at_ms"],
        grace_ends_at_ms=row["grace_ends_at_ms"],
        limits=_limits(row["session_limit"], row["day_limit"]),
        session_id=None if row["session_id"] is None else str(row["session_id"]),
        expires_at_ms=row["expires_at_ms"],
    )


def _limits(per_session: Decimal | None, per_day: Decimal | None) -> KeyLimits | None:
    if per_session is None and per_day is None:
        return None
    return KeyLimits(
        per_session=None if per_session is None else MicroUsdc(int(per_session)),
        per_day=None if per_day is None else MicroUsdc(int(per_day)),
    )
