"""The contract of every store of OAuth grants, tested on memory and on Postgres."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from sightline.domain.units import DAY_MS, HOUR_MS
from sightline.domain.value import replace
from sightline.ports.identity import (
    USED_TOKEN_KEPT_MS,
    ApiKeyRecord,
    AuthorizationCode,
    GrantStore,
    GrantToken,
    IdentityStore,
    TokenKind,
)
from sightline.storage.database.bridge import DatabaseOptions, open_database
from sightline.storage.database.pool import PoolOptions
from sightline.storage.postgres.grants import PostgresGrants
from sightline.storage.postgres.identity import PostgresIdentityStore
from simulation.memory.identity import MemoryIdentityStore
from tests.contract.test_identity_store import NOW, WORKSPACE, a_key, at_once, digest_of

CLIENT = digest_of(99)
REUSE_MS = 30_000


@dataclass
class Stores:
    """The two stores of one database."""

    keys: IdentityStore
    grants: GrantStore


@pytest.fixture(params=["memory", "postgres"])
def address(request: pytest.FixtureRequest) -> str | None:
    """Address of the database under test; None for memory."""
    return None if request.param == "memory" else request.getfixturevalue("database_dsn")


@pytest.fixture
async def stores(address: str | None) -> AsyncIterator[Stores]:
    if address is None:
        memory = MemoryIdentityStore()
        yield Stores(memory, memory.grants)
        return
    async with open_database(DatabaseOptions(pool=PoolOptions(dsn=address))) as database:
        yield Stores(PostgresIdentityStore(database), PostgresGrants(database))


async def a_grant(stores: Stores, number: int = 1) -> tuple[ApiKeyRecord, AuthorizationCode]:
    key = a_key(number, expires_at_ms=NOW + 60_000)
    assert await stores.keys.add_key(key, digest_of(number), limit=10)
    code = AuthorizationCode(
        digest=digest_of(1_000 + number),
        key_id=key.key_id,
        workspace_id=WORKSPACE,
        client=CLIENT,
        redirect_uri="http://127.0.0.1/cb",
        challenge="challenge",
        resource="https://sightline.test/mcp",
        grant_ends_at_ms=NOW + 30 * DAY_MS,
        ends_at_ms=NOW + 60_000,
    )
    await stores.grants.add_code(code)
    return key, code


def tokens_of(key: ApiKeyRecord, number: int) -> tuple[GrantToken, GrantToken]:
    access = GrantToken(
        digest=digest_of(10_000 + number),
        key_id=key.key_id,
        client=CLIENT,
        kind=TokenKind.ACCESS,
        ends_at_ms=NOW + HOUR_MS,
    )
    refresh = replace(
        access, digest=digest_of(20_000 + number), kind=TokenKind.REFRESH, ends_at_ms=NOW + 30 * DAY_MS
    )  # fmt: skip
    return access, refresh


async def test_a_code_is_used_by_exactly_one_of_concurrent_callers(stores: Stores) -> None:
    key, code = await a_grant(stores)
    assert await stores.grants.code_of(code.digest) == code
    calls = [
        lambda n=n: stores.grants.redeem_code(code.digest, tokens_of(key, n), now_ms=NOW + 5)  # type: ignore[misc]
        for n in range(4)
    ]
    assert sorted(map(bool, await at_once(calls))) == [False, False, False, True]
    used = await stores.grants.code_of(code.digest)
    assert used == replace(code, used_at_ms=NOW + 5)
    found = [await stores.grants.token_of(tokens_of(key, n)[0].digest) for n in range(4)]
    assert sum(each is not None for each in found) == 1
    assert await stores.grants.redeem_code(digest_of(5), (), now_ms=NOW) is False


async def test_an_access_token_finds_the_key_of_its_grant_with_its_own_end(stores: Stores) -> None:
    key, code = await a_grant(stores)
    access, refresh = tokens_of(key, 1)
    assert await stores.grants.redeem_code(code.digest, (access, refresh), now_ms=NOW)
    extended = replace(key, expires_at_ms=code.grant_ends_at_ms)
    assert await stores.keys.key_in(WORKSPACE, key.key_id) == extended
    assert await stores.keys.key_of(access.digest) == replace(key, expires_at_ms=access.ends_at_ms)
    assert await stores.keys.key_of(refresh.digest) is None
    assert await stores.keys.key_of(code.digest) is None
    found = await stores.grants.token_of(refresh.digest)
    assert found is not None
    assert (found.token, found.key) == (refresh, extended)
    revoked = await stores.keys.revoke_key(WORKSPACE, key.key_id, now_ms=NOW + 1, grace_ms=5)
    assert revoked is not None
    by_token = await stores.keys.key_of(access.digest)
    assert by_token is not None
    assert by_token.grace_ends_at_ms == NOW + 6


async def test_a_refresh_token_is_used_once_and_for_a_moment_again(stores: Stores) -> None:
    key, code = await a_grant(stores)
    access, refresh = tokens_of(key, 1)
    await stores.grants.redeem_code(code.digest, (access, refresh), now_ms=NOW)
    grants = stores.grants
    assert not await grants.rotate_token(access.digest, tokens_of(key, 2), now_ms=NOW, reuse_ms=REUSE_MS)
    assert not await grants.rotate_token(digest_of(5), tokens_of(key, 2), now_ms=NOW, reuse_ms=REUSE_MS)
    for number, at_ms in ((2, NOW), (3, NOW + REUSE_MS - 1)):
        assert await grants.rotate_token(refresh.digest, tokens_of(key, number), now_ms=at_ms, reuse_ms=REUSE_MS)
    late = NOW + REUSE_MS
    assert not await grants.rotate_token(refresh.digest, tokens_of(key, 4), now_ms=late, reuse_ms=REUSE_MS)
    assert await grants.token_of(tokens_of(key, 4)[0].digest) is None
    used = await grants.token_of(refresh.digest)
    assert used is not None
    assert used.token.used_at_ms == NOW
    assert NOW + USED_TOKEN_KEPT_MS <= used.token.ends_at_ms < NOW + USED_TOKEN_KEPT_MS + REUSE_MS


async def test_an_expired_grant_does_not_count_as_a_key(stores: Stores) -> None:
    await a_grant(stores)
    later = a_key(2, created_at_ms=NOW + 59_999)
    assert not await stores.keys.add_key(later, digest_of(2), limit=1)
    assert await stores.keys.add_key(replace(later, created_at_ms=NOW + 60_000), digest_of(2), limit=1)
