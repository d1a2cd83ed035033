"""Codes and tokens of OAuth grants on Postgres."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, final

from sightline.ports.identity import (
    USED_TOKEN_KEPT_MS,
    AuthorizationCode,
    FoundToken,
    GrantToken,
    TokenKind,
)
from sightline.storage.database.bridge import Database
from sightline.storage.database.pool import Connection
from sightline.storage.postgres.identity import KEY_COLUMNS, key_record

_CODE_COLUMNS: Final = "digest, key_id, workspace_id, client, redirect_uri, challenge, resource, grant_ends_at_ms"
_ADD_CODE: Final = f"""
INSERT INTO oauth_code ({_CODE_COLUMNS}, ends_at_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
"""  # noqa: S608  constants only
CODE_OF: Final = f"SELECT {_CODE_COLUMNS}, ends_at_ms, used_at_ms FROM oauth_code WHERE digest = $1"  # noqa: S608  constants only
_USE_CODE: Final = """
UPDATE oauth_code SET used_at_ms = $2 WHERE digest = $1 AND used_at_ms IS NULL RETURNING key_id, grant_ends_at_ms
"""
_EXTEND_KEY: Final = "UPDATE api_key SET expires_at_ms = $2 WHERE key_id = $1"
_INSERT: Final = "INSERT INTO oauth_token (digest, key_id, client, kind, ends_at_ms) VALUES ($1, $2, $3, $4, $5)"
TOKEN_OF: Final = f"""
SELECT t.digest, t.client, t.kind, t.ends_at_ms, t.used_at_ms, {KEY_COLUMNS}
FROM oauth_token t JOIN api_key USING (key_id) WHERE t.digest = $1
"""  # noqa: S608  constants only
_ROTATE: Final = """
UPDATE oauth_token SET used_at_ms = coalesce(used_at_ms, $2), ends_at_ms = least(ends_at_ms, $4)
WHERE digest = $1 AND kind = 'REFRESH' AND (used_at_ms IS NULL OR used_at_ms > $3) RETURNING 1
"""


@final
class PostgresGrants:
    """Implements `GrantStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_code(self, code: AuthorizationCode) -> None:
        """Store a code."""
        row = (
            code.digest,
            code.key_id,
            code.workspace_id,
            code.client,
            code.redirect_uri,
            code.challenge,
            code.resource,
            code.grant_ends_at_ms,
            code.ends_at_ms,
        )
        await self._database.run(lambda connection: connection.execute(_ADD_CODE, *row))

    async def code_of(self, digest: bytes) -> AuthorizationCode | None:
        """Find a code by its primary key."""
        row = await self._database.read(lambda connection: connection.fetchrow(CODE_OF, digest))
        return None if row is None else _code(row)

    async def redeem_code(self, digest: bytes, tokens: Sequence[GrantToken], *, now_ms: int) -> bool:
        """Use a code by one UPDATE, whose row the transaction holds."""

        async def unit(connection: Connection) -> bool:
            row = await connection.fetchrow(_USE_CODE, digest, now_ms)
            if row is None:
                return False
            await connection.execute(_EXTEND_KEY, row["key_id"], row["grant_ends_at_ms"])
            await _add_tokens(connection, tokens)
            return True

        return await self._database.transact(unit)

    async def token_of(self, digest: bytes) -> FoundToken | None:
        """Find a token by its primary key."""
        row = await self._database.read(lambda connection: connection.fetchrow(TOKEN_OF, digest))
        return None if row is None else FoundToken(_token(row), key_record(row))

    async def rotate_token(
        self, digest: bytes, tokens: Sequence[GrantToken], *, now_ms: int, reuse_ms: int
    ) -> bool:  # fmt: skip
        """Use a refresh token by one UPDATE, whose row the transaction holds."""

        async def unit(connection: Connection) -> bool:
            kept_until_ms = now_ms + USED_TOKEN_KEPT_MS
            if await connection.fetchval(_ROTATE, digest, now_ms, now_ms - reuse_ms, kept_until_ms) is None:
                return False
            await _add_tokens(connection, tokens)
            return True

        return await self._database.transact(unit)


async def _add_tokens(connection: Connection, tokens: Sequence[GrantToken]) -> None:
    for each in tokens:
        await connection.execute(_INSERT, each.digest, each.key_id, each.client, each.kind.value, each.ends_at_ms)


def _code(row: Mapping[str, Any]) -> AuthorizationCode:
    return AuthorizationCode(
        digest=row["digest"],
        key_id=str(row["key_id"]),
        workspace_id=str(row["workspace_id"]),
        client=row["client"],
        redirect_uri=row["redirect_uri"],
        challenge=row["challenge"],
        resource=row["resource"],
        grant_ends_at_ms=row["grant_ends_at_ms"],
        ends_at_ms=row["ends_at_ms"],
        used_at_ms=row["used_at_ms"],
    )


def _token(row: Mapping[str, Any]) -> GrantToken:
    return GrantToken(
        digest=row["digest"],
        key_id=str(row["key_id"]),
        client=row["client"],
        kind=TokenKind(row["kind"]),
        ends_at_ms=row["ends_at_ms"],
        used_at_ms=row["used_at_ms"],
    )
