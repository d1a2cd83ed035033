"""The contract of every identity store, tested on memory and on Postgres."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import pytest
import trio

from sightline.domain.access import Environment, Scope
from sightline.domain.value import replace
from sightline.ports.identity import ApiKeyRecord, IdentityStore, Nonce, Purpose, WalletSession
from sightline.ports.store import CallRecordedError, IdempotencyKey, IdempotencyRecord
from sightline.storage.database.bridge import DatabaseOptions, open_database
from sightline.storage.database.pool import PoolOptions
from sightline.storage.postgres.identity import PostgresIdentityStore
from simulation.memory.identity import MemoryIdentityStore, MemoryRelations
from simulation.memory.ledger import MemoryLedger
from simulation.memory.store import MemoryStore

NOW = 1_800_000_000_000
WORKSPACE = "9c2d41e7-1111-4111-8111-111111111111"
OTHER_WORKSPACE = "00000000-2222-4222-8222-222222222222"
SESSION = "9c2d41e7-5555-4555-8555-555555555555"
ADDRESS = "0x52908400098527886e0f7030069857d2e4169ee7"


@pytest.fixture(params=["memory", "postgres"])
def postgres_address(request: pytest.FixtureRequest) -> str | None:
    """Address of the store under test; None for memory."""
    return None if request.param == "memory" else request.getfixturevalue("database_dsn")


@pytest.fixture
async def store(postgres_address: str | None) -> AsyncIterator[IdentityStore]:
    if postgres_address is None:
        store = MemoryStore(relations=MemoryRelations(token_key=b"k" * 32), ledger=MemoryLedger())
        yield MemoryIdentityStore(store.record_call)
        return
    async with open_database(DatabaseOptions(pool=PoolOptions(dsn=postgres_address))) as database:
        yield PostgresIdentityStore(database)


def a_nonce(value: str = "ab" * 16, **changes: object) -> Nonce:
    nonce = Nonce(
        value=value,
        address=ADDRESS,
        purpose=Purpose.LOGIN,
        message="sign\nme",
        chain_id=131277322940537,
        expires_at_ms=NOW + 300_000,
    )
    return replace(nonce, **changes)  # type: ignore[arg-type]


def a_key(number: int = 1, **changes: object) -> ApiKeyRecord:
    record = ApiKeyRecord(
        key_id=f"00000000-0000-4000-8000-{number:012}",
        workspace_id=WORKSPACE,
        label="robot",
        prefix="svc_test_9c2d41",
        environment=Environment.TEST,
        scopes=frozenset({Scope.SESSIONS_READ, Scope.WALLET_READ}),
        created_at_ms=NOW + number,
        created_by_wallet="0x52908400098527886E0F7030069857D2E4169EE7",
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def digest_of(number: int) -> bytes:
    return number.to_bytes(32, "big")


async def at_once(calls: list[Callable[[], Awaitable[object]]]) -> list[object]:
    results: list[object] = []

    async def gather(call: Callable[[], Awaitable[object]]) -> None:
        results.append(await call())

    async with trio.open_nursery() as nursery:
        for call in calls:
            nursery.start_soon(gather, call)
    return results


async def take(store: IdentityStore, nonce: Nonce, now_ms: int = NOW) -> Nonce | None:
    return await store.take_nonce(nonce.value, address=nonce.address, purpose=nonce.purpose, now_ms=now_ms)


async def test_a_nonce_comes_back_whole_and_once(store: IdentityStore) -> None:
    await store.add_nonce(a_nonce())
    assert await take(store, a_nonce()) == a_nonce()
    assert await take(store, a_nonce()) is None


async def test_of_many_takers_one_gets_the_nonce(store: IdentityStore) -> None:
    await store.add_nonce(a_nonce())
    taken = await at_once([lambda: take(store, a_nonce()) for _ in range(12)])
    assert taken.count(a_nonce()) == 1
    assert taken.count(None) == 11


@pytest.mark.parametrize(
    "changes",
    [{"value": "cd" * 16}, {"address": "0x" + "11" * 20}, {"purpose": Purpose.CREATE_WORKSPACE}],
    ids=["unknown", "another wallet's", "another purpose's"],
)
async def test_a_nonce_serves_nobody_else_and_stays_good(store: IdentityStore, changes: dict[str, object]) -> None:
    await store.add_nonce(a_nonce())
    assert await take(store, a_nonce(**changes)) is None
    assert await take(store, a_nonce()) is not None


async def test_a_nonce_expires_to_the_millisecond(store: IdentityStore) -> None:
    await store.add_nonce(a_nonce("aa"))
    await store.add_nonce(a_nonce("bb"))
    assert await take(store, a_nonce("aa"), NOW + 299_999) is not None
    assert await take(store, a_nonce("bb"), NOW + 300_000) is None


def a_view_key(session_id: str = WORKSPACE) -> ApiKeyRecord:
    return a_key(key_id=session_id, session_id=session_id, revoked_at_ms=NOW + 10, grace_ends_at_ms=NOW + 10)


async def test_a_session_has_one_key_and_it_is_none_of_its_workspace(store: IdentityStore) -> None:
    key = a_view_key()
    assert await store.add_view_key(key, digest_of(1))
    assert await store.add_view_key(replace(key, created_at_ms=NOW + 5), digest_of(1)), "a repeat"
    assert not await store.add_view_key(key, digest_of(2)), "the session has another key"
    assert await store.key_of(digest_of(1)) == key
    assert await store.key_of(digest_of(2)) is None
    assert await store.key_in(WORKSPACE, key.key_id) == key
    assert await store.keys_in(WORKSPACE) == ()
    assert await store.revoke_key(WORKSPACE, key.key_id, now_ms=NOW, grace_ms=0) is None
    assert await store.add_key(a_key(1), digest_of(3), limit=1), "it counts against no limit"


async def test_a_nonce_given_back_is_good_once_more(store: IdentityStore) -> None:
    await store.add_nonce(a_nonce())
    await take(store, a_nonce())
    await store.give_back_nonce(a_nonce().value)
    await store.give_back_nonce("unknown")
    assert await take(store, a_nonce()) is not None
    assert await take(store, a_nonce()) is None


async def test_of_many_takers_one_gets_the_stream_ticket(store: IdentityStore) -> None:
    await store.add_ticket(digest_of(1), b"sealed", expires_at_ms=NOW + 30_000, now_ms=NOW)
    taken = await at_once([lambda: store.take_ticket(digest_of(1), now_ms=NOW) for _ in range(12)])
    assert taken.count(b"sealed") == 1
    assert taken.count(None) == 11


async def test_a_stream_ticket_expires_to_the_millisecond_and_others_stay(store: IdentityStore) -> None:
    for number in (1, 2, 3):
        await store.add_ticket(digest_of(number), bytes([number]), expires_at_ms=NOW + 30_000, now_ms=NOW)
    assert await store.take_ticket(digest_of(1), now_ms=NOW + 29_999) == b"\x01"
    assert await store.take_ticket(digest_of(2), now_ms=NOW + 30_000) is None
    await store.add_ticket(digest_of(4), b"\x04", expires_at_ms=NOW + 60_000, now_ms=NOW + 30_000)
    assert await store.take_ticket(digest_of(4), now_ms=NOW + 30_000) == b"\x04"
    assert await store.take_ticket(digest_of(9), now_ms=NOW) is None


async def test_a_key_is_found_by_its_digest_alone(store: IdentityStore) -> None:
    assert await store.add_key(a_key(), digest_of(1), limit=50)
    assert await store.key_of(digest_of(1)) == a_key()
    assert await store.key_of(digest_of(2)) is None


async def test_keys_are_listed_newest_first_and_by_workspace(store: IdentityStore) -> None:
    for number in (2, 3, 1):
        await store.add_key(a_key(number), digest_of(number), limit=50)
    await store.add_key(a_key(9, workspace_id=OTHER_WORKSPACE), digest_of(9), limit=50)
    assert await store.keys_in(WORKSPACE) == (a_key(3), a_key(2), a_key(1))
    assert await store.keys_in("33333333-3333-4333-8333-333333333333") == ()


async def test_the_limit_counts_live_keys_of_the_workspace(store: IdentityStore) -> None:
    assert await store.add_key(a_key(1), digest_of(1), limit=2)
    assert await store.add_key(a_key(2), digest_of(2), limit=2)
    assert not await store.add_key(a_key(3), digest_of(3), limit=2)
    assert await store.add_key(a_key(4, workspace_id=OTHER_WORKSPACE), digest_of(4), limit=2)
    await store.revoke_key(WORKSPACE, a_key(1).key_id, now_ms=NOW, grace_ms=60_000)
    assert await store.add_key(a_key(3), digest_of(3), limit=2)
    assert await store.key_of(digest_of(3)) == a_key(3)


def a_call(key: str = "mint") -> IdempotencyRecord:
    path = f"/api/v1/workspaces/{WORKSPACE}/api-keys"
    named = IdempotencyKey(workspace_id=WORKSPACE, method="POST", path=path, key=key, body_hash="h")
    return IdempotencyRecord(key=named, result={}, at_ms=NOW)


async def test_calls_with_one_idempotency_key_make_one_key_even_at_once(store: IdentityStore) -> None:
    def mint(number: int) -> Callable[[], Awaitable[object]]:
        async def act() -> bool:
            try:
                return await store.add_key(a_key(number), digest_of(number), limit=50, call=a_call())
            except CallRecordedError:
                return False

        return act

    assert (await at_once([mint(number) for number in range(1, 6)])).count(True) == 1
    with pytest.raises(CallRecordedError):
        await store.add_key(a_key(9), digest_of(9), limit=50, call=a_call())
    assert len(await store.keys_in(WORKSPACE)) == 1
    assert await store.add_key(a_key(9), digest_of(9), limit=50, call=a_call("another"))


async def test_a_call_that_exceeds_the_limit_of_keys_may_be_repeated(store: IdentityStore) -> None:
    assert await store.add_key(a_key(1), digest_of(1), limit=1)
    assert not await store.add_key(a_key(2), digest_of(2), limit=1, call=a_call())
    assert await store.add_key(a_key(2), digest_of(2), limit=2, call=a_call())


async def test_the_limit_holds_when_keys_are_minted_at_once(store: IdentityStore) -> None:
    def mint(number: int) -> Callable[[], Awaitable[object]]:
        return lambda: store.add_key(a_key(number), digest_of(number), limit=3)

    kept = await at_once([mint(number) for number in range(1, 11)])
    assert kept.count(True) == 3
    assert len(await store.keys_in(WORKSPACE)) == 3


async def test_a_second_revocation_changes_nothing(store: IdentityStore) -> None:
    await store.add_key(a_key(), digest_of(1), limit=50)
    first = await store.revoke_key(WORKSPACE, a_key().key_id, now_ms=NOW, grace_ms=60_000)
    assert first == a_key(revoked_at_ms=NOW, grace_ends_at_ms=NOW + 60_000)
    assert await store.revoke_key(WORKSPACE, a_key().key_id, now_ms=NOW + 5, grace_ms=60_000) == first
    assert await store.key_of(digest_of(1)) == first


async def test_a_key_of_another_workspace_cannot_be_revoked(store: IdentityStore) -> None:
    await store.add_key(a_key(), digest_of(1), limit=50)
    assert await store.revoke_key(OTHER_WORKSPACE, a_key().key_id, now_ms=NOW, grace_ms=1) is None
    assert await store.key_of(digest_of(1)) == a_key()


async def test_the_last_use_only_moves_forward(store: IdentityStore) -> None:
    await store.add_key(a_key(1), digest_of(1), limit=50)
    await store.add_key(a_key(2), digest_of(2), limit=50)
    await store.mark_keys_used({a_key(1).key_id: NOW + 10, a_key(2).key_id: NOW + 20, a_key(7).key_id: NOW})
    await store.mark_keys_used({a_key(1).key_id: NOW + 5, a_key(2).key_id: NOW + 25})
    await store.mark_keys_used({})
    assert await store.key_of(digest_of(1)) == a_key(1, last_used_at_ms=NOW + 10)
    assert await store.key_of(digest_of(2)) == a_key(2, last_used_at_ms=NOW + 25)


def a_sign_in(number: int = 1, **changes: object) -> WalletSession:
    session = WalletSession(
        session_id=f"00000000-0000-4000-8000-{number:012}",
        wallet_address="0x52908400098527886E0F7030069857D2E4169EE7",
        signed_in_at_ms=NOW + number,
        last_used_at_ms=NOW + number,
        client_ip="203.0.113.7",
        user_agent="a browser",
    )
    return replace(session, **changes)  # type: ignore[arg-type]  # the names are those of the fields


async def test_a_sign_in_is_read_as_it_was_stored(store: IdentityStore) -> None:
    await store.add_wallet_session(a_sign_in())
    assert await store.wallet_session(a_sign_in().session_id) == a_sign_in()
    assert await store.wallet_session(a_sign_in(2).session_id) is None


async def test_open_sign_ins_are_listed_by_wallet_newest_first(store: IdentityStore) -> None:
    for number in (2, 3, 1):
        await store.add_wallet_session(a_sign_in(number))
    await store.add_wallet_session(a_sign_in(9, wallet_address="0x" + "11" * 20))
    await store.end_wallet_session(a_sign_in(2).session_id, address=ADDRESS, now_ms=NOW + 10)
    assert await store.wallet_sessions_of(ADDRESS, signed_in_after_ms=NOW) == (a_sign_in(3), a_sign_in(1))
    assert await store.wallet_sessions_of(ADDRESS, signed_in_after_ms=NOW + 1) == (a_sign_in(3),)


async def test_the_first_end_of_a_sign_in_is_kept(store: IdentityStore) -> None:
    await store.add_wallet_session(a_sign_in())
    ended = await store.end_wallet_session(a_sign_in().session_id, address=ADDRESS, now_ms=NOW + 10)
    assert ended == a_sign_in(ended_at_ms=NOW + 10)
    assert await store.end_wallet_session(a_sign_in().session_id, address=ADDRESS, now_ms=NOW + 20) == ended
    assert await store.wallet_session(a_sign_in().session_id) == ended


async def test_a_wallet_cannot_end_the_sign_in_of_another(store: IdentityStore) -> None:
    await store.add_wallet_session(a_sign_in())
    assert await store.end_wallet_session(a_sign_in().session_id, address="0x" + "11" * 20, now_ms=NOW) is None
    assert await store.wallet_session(a_sign_in().session_id) == a_sign_in()


async def test_the_last_use_of_a_sign_in_only_moves_forward(store: IdentityStore) -> None:
    await store.add_wallet_session(a_sign_in())
    await store.mark_wallet_sessions_used({a_sign_in().session_id: NOW + 50, a_sign_in(8).session_id: NOW})
    await store.mark_wallet_sessions_used({a_sign_in().session_id: NOW + 40})
    assert await store.wallet_session(a_sign_in().session_id) == a_sign_in(last_used_at_ms=NOW + 50)


async def test_a_key_is_found_by_its_id_in_its_workspace_only(store: IdentityStore) -> None:
    await store.add_key(a_key(1), digest_of(1), limit=50)
    await store.add_key(a_key(2), digest_of(2), limit=50)
    assert await store.key_in(WORKSPACE, a_key(1).key_id) == a_key(1)
    assert await store.key_in(OTHER_WORKSPACE, a_key(1).key_id) is None
    assert await store.key_in(WORKSPACE, a_key(3).key_id) is None
    revoked = await store.revoke_key(WORKSPACE, a_key(1).key_id, now_ms=NOW, grace_ms=60_000)
    assert await store.key_in(WORKSPACE, a_key(1).key_id) == revoked


def a_share(number: int = 0, **changes: object) -> ApiKeyRecord:
    ended = {"session_id": SESSION, "revoked_at_ms": NOW + 900, "grace_ends_at_ms": NOW + 900}
    return a_key(number, **(ended | changes))


async def test_share_links_are_listed_by_session_and_are_no_keys_of_the_workspace(store: IdentityStore) -> None:
    for number in range(3):
        assert await store.add_share(a_share(number), digest_of(number), limit=3)
    assert await store.add_view_key(a_view_key(SESSION), digest_of(9)), "the key of the view itself"
    assert await store.key_of(digest_of(0)) == a_share(0)
    assert await store.shares_of(WORKSPACE, SESSION, limit=2) == (a_share(2), a_share(1))
    assert await store.shares_of(OTHER_WORKSPACE, SESSION, limit=9) == ()
    assert await store.keys_in(WORKSPACE) == ()
    assert await store.revoke_key(WORKSPACE, a_share(0).key_id, now_ms=NOW, grace_ms=0) is None
    assert await store.keep_key(WORKSPACE, a_share(0).key_id, now_ms=NOW) is None


async def test_a_share_link_ends_once_and_never_later_than_it_would(store: IdentityStore) -> None:
    await store.add_share(a_share(), digest_of(1), limit=3)
    key_id = a_share().key_id
    assert await store.end_share(OTHER_WORKSPACE, SESSION, key_id, now_ms=NOW) is None
    assert await store.end_share(WORKSPACE, OTHER_WORKSPACE, key_id, now_ms=NOW) is None
    ended = await store.end_share(WORKSPACE, SESSION, key_id, now_ms=NOW + 5)
    assert ended == a_share(revoked_at_ms=NOW + 5, grace_ends_at_ms=NOW + 5)
    assert await store.end_share(WORKSPACE, SESSION, key_id, now_ms=NOW + 1_000) == ended
    assert await store.key_of(digest_of(1)) == ended


async def test_the_limit_of_share_links_counts_open_ones_of_the_session_also_at_once(store: IdentityStore) -> None:
    ended = a_share(90, revoked_at_ms=NOW + 1, grace_ends_at_ms=NOW + 1, created_at_ms=NOW)
    assert await store.add_share(ended, digest_of(90), limit=3)
    made = await at_once(
        [partial(store.add_share, a_share(each, created_at_ms=NOW + 1), digest_of(each), limit=3) for each in range(8)]
    )
    assert made.count(True) == 3
    assert await store.add_share(a_share(99, session_id=OTHER_WORKSPACE), digest_of(99), limit=3), "another session"


async def test_a_key_is_kept_within_its_grace_only(store: IdentityStore) -> None:
    await store.add_key(a_key(), digest_of(1), limit=3)
    key_id = a_key().key_id
    assert await store.keep_key(WORKSPACE, key_id, now_ms=NOW) == a_key(), "it is not revoked"
    revoked = await store.revoke_key(WORKSPACE, key_id, now_ms=NOW, grace_ms=60)
    assert await store.keep_key(OTHER_WORKSPACE, key_id, now_ms=NOW) is None
    assert await store.keep_key(WORKSPACE, key_id, now_ms=NOW + 60) == revoked
    assert await store.keep_key(WORKSPACE, key_id, now_ms=NOW + 59) == a_key()
    assert await store.key_of(digest_of(1)) == a_key()
