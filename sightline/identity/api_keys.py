"""Mint, list and revoke API keys, and those of one session. The caller has checked the permission (`domain.access`)."""

from collections.abc import Callable, Sequence
from typing import Final, final
from uuid import UUID

from sightline.domain.access import Environment, KeyLimits, Scope
from sightline.domain.errors import RefusedError
from sightline.domain.units import MINUTE_MS, SECOND_MS
from sightline.domain.value import Value
from sightline.identity import refusals
from sightline.identity.key_codec import SECRET_BYTES, KeyHasher, compose_key, is_well_formed, shown_prefix
from sightline.ports.clock import Clock
from sightline.ports.identity import (
    ApiKeyRecord,
    IdentityStore,
    MintedKey,
    RecordWithdrawal,
    Withdrawal,
    WithdrawalKind,
    record_nothing,
)
from sightline.ports.ids import Ids
from sightline.ports.store import IdempotencyRecord

LABEL_LENGTH_MAX: Final = 80
VIEW_KEY_LABEL: Final = "paid view"
GRANT_CACHE_MS: Final = 5 * SECOND_MS
"""Age up to which the record of an access token is used without reading it again."""
KEPT: Final = "kept"
SHARES_MAX: Final = 20
"""Share links of one session that are open at the same time."""
SHARES_LISTED_MAX: Final = 100


@final
class ApiKeyOptions(Value, kw_only=True):
    """Limits of API keys."""

    live_max: int = 50
    """Maximum number of unrevoked keys of one workspace."""
    grace_ms: int = MINUTE_MS
    """How long a revoked key still works."""
    grant_grace_ms: int = GRANT_CACHE_MS
    """How long the access tokens of a revoked grant still work: as long as servers use a record without reading it."""


@final
class ApiKeys:
    """Mints, lists and revokes the API keys of workspaces."""

    def __init__(
        self,
        store: IdentityStore,
        hasher: KeyHasher,
        clock: Clock,
        ids: Ids,
        options: ApiKeyOptions | None = None,
        *,
        record: RecordWithdrawal = record_nothing,
    ) -> None:
        self._record = record
        self._store = store
        self._hasher = hasher
        self._clock = clock
        self._ids = ids
        self._options = options or ApiKeyOptions()

    async def mint(
        self, workspace_id: str, *, created_by: str, label: str, environment: str, scopes: Sequence[str],
        limits: KeyLimits | None = None, call: IdempotencyRecord | None = None,
    ) -> MintedKey:  # fmt: skip
        """Create a key.

        Args:
            created_by: The wallet's address in EIP-55 form.
            label: 1..80 characters after trimming.
            environment: Only TEST is accepted.
            scopes: 1..8 different names of the table.
            call: The record of the call, stored together with the key, so that one call makes at most one key.

        Raises:
            RefusedError: INVALID_INPUT, or CONFLICT when the workspace has the maximum number of unrevoked keys or the
                call is recorded already.
            OutcomeUnknownError: A key may have been stored whose plaintext is lost; it can be listed and revoked.
        """
        label = label.strip()
        if not 1 <= len(label) <= LABEL_LENGTH_MAX:
            raise RefusedError(refusals.BAD_LABEL)
        if environment != Environment.TEST:
            raise RefusedError(refusals.BAD_ENVIRONMENT)
        granted = parse_scopes(scopes)
        if granted is None:
            raise RefusedError(refusals.BAD_SCOPES)
        plaintext = compose_key(Environment.TEST, workspace_id, self._ids.token_bytes(SECRET_BYTES))
        record = ApiKeyRecord(
            key_id=self._ids.uuid(),
            workspace_id=workspace_id,
            label=label,
            prefix=shown_prefix(plaintext),
            environment=Environment.TEST,
            scopes=granted,
            created_at_ms=self._clock.now_ms(),
            created_by_wallet=created_by,
            limits=limits,
        )
        digest, limit = self._hasher.digest(plaintext), self._options.live_max
        if not await self._store.add_key(record, digest, limit=limit, call=call):
            raise RefusedError(refusals.KEY_LIMIT)
        return MintedKey(record, plaintext)

    async def mint_grant(
        self, workspace_id: str, *, created_by: str, label: str, scopes: Sequence[Scope], limits: KeyLimits | None,
        expires_at_ms: int, call: IdempotencyRecord | None = None,
    ) -> ApiKeyRecord:  # fmt: skip
        """Create a key that no plaintext opens: the tokens of an OAuth grant do. See `mint`.

        Raises:
            RefusedError: CONFLICT when the workspace has the maximum number of keys, or the call is recorded already.
        """
        unused = compose_key(Environment.TEST, workspace_id, self._ids.token_bytes(SECRET_BYTES))
        record = ApiKeyRecord(
            key_id=self._ids.uuid(),
            workspace_id=workspace_id,
            label=label,
            prefix=shown_prefix(unused),
            environment=Environment.TEST,
            scopes=frozenset(scopes),
            created_at_ms=self._clock.now_ms(),
            created_by_wallet=created_by,
            limits=limits,
            expires_at_ms=expires_at_ms,
        )
        digest, limit = self._hasher.digest(unused), self._options.live_max
        if not await self._store.add_key(record, digest, limit=limit, call=call):
            raise RefusedError(refusals.KEY_LIMIT)
        return record

    async def keys_in(self, workspace_id: str) -> tuple[ApiKeyRecord, ...]:
        """List a workspace's keys, revoked ones included, newest first."""
        return await self._store.keys_in(workspace_id)

    async def find(self, plaintext: str) -> ApiKeyRecord:
        """Return the record of a key, given its plaintext.

        Raises:
            RefusedError: NOT_FOUND.
        """
        record = await self._store.key_of(self._hasher.digest(plaintext)) if is_well_formed(plaintext) else None
        if record is None:
            raise RefusedError(refusals.UNKNOWN_KEY)
        return record

    async def revoke(self, workspace_id: str, key_id: str) -> ApiKeyRecord:
        """Revoke a key or a grant; it works until its grace period ends. A repeat returns the same answer and extends
        nothing.

        Raises:
            RefusedError: NOT_FOUND, also for a key of another workspace.
        """
        found = await self._store.key_in(workspace_id, key_id)
        is_grant = found is not None and found.expires_at_ms is not None
        grace_ms = self._options.grant_grace_ms if is_grant else self._options.grace_ms
        record = await self._store.revoke_key(workspace_id, key_id, now_ms=self._clock.now_ms(), grace_ms=grace_ms)
        if record is None:
            raise RefusedError(refusals.UNKNOWN_KEY)
        revoked_at_ms = record.revoked_at_ms or self._clock.now_ms()
        await self._record(
            Withdrawal(kind=WithdrawalKind.KEY, at_ms=revoked_at_ms, workspace_id=workspace_id, subject=key_id)
        )
        return record

    async def keep(self, workspace_id: str, key_id: str) -> ApiKeyRecord:
        """Take back a revocation during its grace period. A key that is not revoked stays as it is.

        Raises:
            RefusedError: NOT_FOUND, also for a key of another workspace. INVALID_STATE when the grace period has ended.
        """
        now_ms = self._clock.now_ms()
        record = await self._store.keep_key(workspace_id, key_id, now_ms=now_ms)
        if record is None:
            raise RefusedError(refusals.UNKNOWN_KEY)
        if record.revoked_at_ms is not None:
            raise RefusedError(refusals.GRACE_OVER)
        kept = Withdrawal(
            kind=WithdrawalKind.KEY, at_ms=now_ms, workspace_id=workspace_id, subject=key_id, state=KEPT
        )  # fmt: skip
        await self._record(kept)
        return record


@final
class ViewKeys:
    """Keys and ids of views that are paid by x402. They follow from the payment, so that a repeat of it finds the view.

    A payment is public once it is on the chain. The quote that it was made for is not: the key follows from it too.
    """

    def __init__(
        self,
        store: IdentityStore,
        hasher: KeyHasher,
        clock: Clock,
        *,
        is_suspended: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`is_suspended` answers whether a workspace is suspended: it gets no keys."""
        self._store = store
        self._hasher = hasher
        self._clock = clock
        self._is_suspended = is_suspended

    def workspace_of(self, payer: str) -> str:
        """Return the id of a payer's guest workspace. `payer` is in lower case."""
        return _uuid_of(self._hasher.derive("x402", "workspace", payer))

    def session_of(self, payer: str, nonce: str, attempt: int) -> str:
        """Return the id of the session that a payment pays for; `attempt` counts those that had no operator."""
        return _uuid_of(self._hasher.derive("x402", "session", payer, nonce.lower(), str(attempt)))

    def seal(self, quoted: str) -> str:
        """Return a code that only this service can compute: it recognises its quotes by it."""
        return self._hasher.derive("x402", "quote", quoted)[:16].hex()

    async def find(self, session_id: str, quote_id: str, payer: str) -> str | None:
        """Return the key of a session that was paid for this quote; None if there is none. `payer` is in lower case."""
        plaintext = self._key(session_id, quote_id, payer)
        return None if await self._store.key_of(self._hasher.digest(plaintext)) is None else plaintext

    def _key(self, session_id: str, quote_id: str, payer: str) -> str:
        secret = self._hasher.derive("x402", "key", session_id, quote_id)
        return compose_key(Environment.TEST, self.workspace_of(payer), secret)

    async def mint(self, session_id: str, quote_id: str, *, payer: str, ends_at_ms: int) -> bool:
        """Make the key of a session, once; `find` returns it. Returns False if its key is for another quote.

        Args:
            payer: In EIP-55 form.
            ends_at_ms: When the key ends.

        Raises:
            RefusedError: The payer's guest workspace is suspended.
        """
        if self._is_suspended(self.workspace_of(payer.lower())):
            raise RefusedError(refusals.SUSPENDED)
        plaintext = self._key(session_id, quote_id, payer.lower())
        record = ApiKeyRecord(
            key_id=session_id,
            workspace_id=self.workspace_of(payer.lower()),
            label=VIEW_KEY_LABEL,
            prefix=shown_prefix(plaintext),
            environment=Environment.TEST,
            scopes=frozenset({Scope.SESSIONS_READ, Scope.SESSIONS_CREATE}),
            created_at_ms=self._clock.now_ms(),
            created_by_wallet=payer,
            revoked_at_ms=ends_at_ms,
            grace_ends_at_ms=ends_at_ms,
            session_id=session_id,
        )
        return await self._store.add_view_key(record, self._hasher.digest(plaintext))


@final
class ViewShares:
    """Makes, lists and revokes share links: keys that show one session and its picture until a set time."""

    def __init__(
        self,
        store: IdentityStore,
        hasher: KeyHasher,
        clock: Clock,
        ids: Ids,
        *,
        record: RecordWithdrawal = record_nothing,
        on_ended: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_ended` is called when a link has ended before its time, so that who watches by it is looked for."""
        self._store = store
        self._hasher = hasher
        self._clock = clock
        self._ids = ids
        self._record = record
        self._on_ended = on_ended

    async def make(
        self, workspace_id: str, session_id: str, *, created_by: str, label: str, lifetime_ms: int,
        call: IdempotencyRecord | None = None,
    ) -> MintedKey:  # fmt: skip
        """Make the key of a share link.

        Args:
            created_by: The address of the workspace's wallet.
            call: The record of the call, stored together with the key.

        Raises:
            RefusedError: CONFLICT when the session has the maximum number of open links, or the call is recorded.
            OutcomeUnknownError: A link may have been stored whose key is lost; it can be listed and revoked.
        """
        now_ms = self._clock.now_ms()
        plaintext = compose_key(Environment.TEST, workspace_id, self._ids.token_bytes(SECRET_BYTES))
        record = ApiKeyRecord(
            key_id=self._ids.uuid(), workspace_id=workspace_id, label=label, prefix=shown_prefix(plaintext),
            environment=Environment.TEST, scopes=frozenset({Scope.SESSIONS_READ}), created_at_ms=now_ms,
            created_by_wallet=created_by, revoked_at_ms=now_ms + lifetime_ms, grace_ends_at_ms=now_ms + lifetime_ms,
            session_id=session_id,
        )  # fmt: skip
        if not await self._store.add_share(record, self._hasher.digest(plaintext), limit=SHARES_MAX, call=call):
            raise RefusedError(refusals.SHARE_LIMIT)
        return MintedKey(record, plaintext)

    async def of_session(self, workspace_id: str, session_id: str) -> tuple[ApiKeyRecord, ...]:
        """List the newest share links of a session, ended ones included, newest first."""
        return await self._store.shares_of(workspace_id, session_id, limit=SHARES_LISTED_MAX)

    async def ends_at_ms(self, workspace_id: str, share_id: str) -> int | None:
        """Return when a share link ends; None if there is none."""
        record = await self._store.key_in(workspace_id, share_id)
        return None if record is None else record.grace_ends_at_ms

    async def revoke(self, workspace_id: str, session_id: str, share_id: str) -> ApiKeyRecord:
        """End a share link now. A repeat returns the same answer.

        Raises:
            RefusedError: NOT_FOUND, also for a link of another session.
        """
        record = await self._store.end_share(workspace_id, session_id, share_id, now_ms=self._clock.now_ms())
        if record is None:
            raise RefusedError(refusals.UNKNOWN_SHARE)
        ended_at_ms = record.grace_ends_at_ms or self._clock.now_ms()
        self._on_ended()
        await self._record(
            Withdrawal(kind=WithdrawalKind.KEY, at_ms=ended_at_ms, workspace_id=workspace_id, subject=share_id)
        )
        return record


def _uuid_of(derived: bytes) -> str:
    return str(UUID(bytes=derived[:16], version=4))


def parse_scopes(names: Sequence[str]) -> frozenset[Scope] | None:
    """Parse 1..8 different scope names; None if they are invalid."""
    known = {scope.value for scope in Scope}
    if not names or len(set(names)) != len(names) or not known.issuperset(names):
        return None
    return frozenset(Scope(name) for name in names)
