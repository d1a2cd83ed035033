"""Mint, list and revoke API keys. The caller has checked the permission (`domain.access`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from sightline.domain.access import Environment, KeyLimits, Scope
from sightline.domain.errors import RefusedError
from sightline.domain.units import MINUTE_MS
from sightline.identity import refusals
from sightline.identity.key_codec import SECRET_BYTES, KeyHasher, compose_key, shown_prefix
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


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKeyOptions:
    """Limits of API keys."""

    live_max: int = 50
    """Maximum number of unrevoked keys of one workspace."""
    grace_ms: int = MINUTE_MS
    """How long a revoked key still works."""


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

    async def keys_in(self, workspace_id: str) -> tuple[ApiKeyRecord, ...]:
        """List a workspace's keys, revoked ones included, newest first."""
        return await self._store.keys_in(workspace_id)

    async def revoke(self, workspace_id: str, key_id: str) -> ApiKeyRecord:
        """Revoke a key; it works until its grace period ends. A repeat returns the same answer and extends nothing.

        Raises:
            RefusedError: NOT_FOUND, also for a key of another workspace.
        """
        record = await self._store.revoke_key(
            workspace_id, key_id, now_ms=self._clock.now_ms(), grace_ms=self._options.grace_ms
        )
        if record is None:
            raise RefusedError(refusals.UNKNOWN_KEY)
        revoked_at_ms = record.revoked_at_ms or self._clock.now_ms()
        await self._record(
            Withdrawal(kind=WithdrawalKind.KEY, at_ms=revoked_at_ms, workspace_id=workspace_id, subject=key_id)
        )
        return record


def parse_scopes(names: Sequence[str]) -> frozenset[Scope] | None:
    """Parse 1..8 different scope names; None if they are invalid."""
    known = {scope.value for scope in Scope}
    if not names or len(set(names)) != len(names) or not known.issuperset(names):
        return None
    return frozenset(Scope(name) for name in names)
