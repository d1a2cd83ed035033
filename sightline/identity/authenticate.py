"""Resolves the credential of a request to a principal.

An Authorization header takes precedence over a cookie, even when it is wrong.

API keys are cached for some seconds. Whether a revoked key is still in its grace period is checked at each use against
the recorded end of the period, and cached records are younger than the period, so the 60 seconds are exact. The same
holds for the access tokens of OAuth grants, with 5 seconds. A key that has ended by its cached record is read again,
because the revocation may have been taken back. Keys of share links are not cached, because they end at once.
Last uses are collected in memory and written in batches, so a request costs no write.
"""

from typing import Final, NoReturn, Protocol, final

import trio

from sightline.domain.access import ApiKeyPrincipal, Holder, Principal, WalletPrincipal
from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Refusal
from sightline.domain.value import Value
from sightline.identity import refusals
from sightline.identity.api_keys import GRANT_CACHE_MS
from sightline.identity.cookies import CookieCodec, session_cookie
from sightline.identity.key_codec import KeyHasher, is_well_formed
from sightline.identity.recent import LastUses, RecentReads
from sightline.identity.wallet_sessions import WalletSessions
from sightline.ports.clock import Clock
from sightline.ports.identity import ApiKeyRecord, IdentityStore
from sightline.system.loops import run_forever

_CREDENTIAL_LENGTH_MAX: Final = 4_096


class CredentialHeaders(Protocol):
    """Request headers, looked up by name, ignoring case."""

    def get(self, key: str, /) -> str | None:
        """Return the header's first value, or None."""
        ...


@final
class AuthenticatorOptions(Value, kw_only=True):
    """How API keys are cached."""

    key_cache_ms: int = 30_000
    """Age up to which a key record is used without reading it again. Shorter than the grace of a revoked key."""
    keys_cached_max: int = 10_000
    flush_ms: int = 5_000
    """Interval at which last uses are written."""
    last_flush_ms: int = 2_000
    """Time limit of the final write when the server stops."""


@final
class Authenticator:
    """Resolves credentials. Safe for any number of concurrent callers.

    Start `run` in the server's nursery.
    """

    def __init__(
        self,
        store: IdentityStore,
        cookies: CookieCodec,
        sessions: WalletSessions,
        hasher: KeyHasher,
        clock: Clock,
        options: AuthenticatorOptions | None = None,
    ) -> None:
        self._store = store
        self._cookies = cookies
        self._sessions = sessions
        self._hasher = hasher
        self._clock = clock
        self._options = options or AuthenticatorOptions()
        self._recent_keys: RecentReads[bytes, ApiKeyRecord] = RecentReads(
            size_max=self._options.keys_cached_max, ttl_ms=self._options.key_cache_ms
        )
        self._recent_grants: RecentReads[bytes, ApiKeyRecord] = RecentReads(
            size_max=self._options.keys_cached_max, ttl_ms=GRANT_CACHE_MS
        )
        self._key_uses = LastUses("api_key", store.mark_keys_used)

    async def authenticate(self, headers: CredentialHeaders) -> Principal:
        """Resolve the credential of a request.

        Raises:
            RefusedError: NOT_AUTHENTICATED or REVOKED_API_KEY.
            StoreUnavailableError: The key or the wallet session could not be read.
        """
        authorization = headers.get("authorization")
        if authorization is not None:
            return await self._key_principal(authorization)
        value = session_cookie(headers.get("cookie"))
        if value is None:
            _refuse(refusals.MISSING_CREDENTIAL)
        return await self._session_principal(value)

    async def principal_of(self, holder: Holder) -> Principal:
        """Resolve a credential by its ids: whether it is valid now. The role of a wallet is None.

        Raises:
            RefusedError: NOT_AUTHENTICATED or REVOKED_API_KEY.
            StoreUnavailableError: The key or the wallet session could not be read.
        """
        if not holder.is_key:
            return await self._sessions.principal_of(holder.credential_id, holder.workspace_id)
        record = await self._store.key_in(holder.workspace_id, holder.credential_id)
        if record is None:
            _refuse(refusals.INVALID_CREDENTIAL)
        return self._valid_key(record)

    async def run(self) -> NoReturn:
        """Write last uses periodically until cancelled.

        Cancellation: writes once more, within `last_flush_ms`.
        """
        try:
            await run_forever("last_use_flush", self.flush, every_s=self._options.flush_ms / 1_000)
        finally:
            with trio.move_on_after(self._options.last_flush_ms / 1_000, shield=True):
                await self.flush()

    async def flush(self) -> None:
        """Write the last uses of keys and sessions collected so far; a failed write is repeated by the next flush."""
        await self._key_uses.flush()
        await self._sessions.flush()

    async def _session_principal(self, value: str) -> WalletPrincipal:
        principal = self._cookies.decode(value, now_ms=self._clock.now_ms())
        if principal is None:
            _refuse(refusals.EXPIRED_SESSION)
        await self._sessions.require_open(principal)
        return principal

    async def _key_principal(self, authorization: str) -> ApiKeyPrincipal:
        scheme, _, key = authorization.partition(" ")
        key = key.strip(" ")
        if len(authorization) > _CREDENTIAL_LENGTH_MAX:
            _refuse(refusals.INVALID_CREDENTIAL)
        if scheme.lower() != "bearer":
            _refuse(refusals.NO_BEARER)
        if not key:
            _refuse(refusals.MISSING_CREDENTIAL)
        record = await self._record(key, self._hasher.digest(key))
        if record is None:
            _refuse(refusals.INVALID_CREDENTIAL)
        return self._valid_key(record)

    def _valid_key(self, record: ApiKeyRecord) -> ApiKeyPrincipal:
        """The principal of a key, whose use is noted; refuses one whose grace period has ended."""
        now_ms = self._clock.now_ms()
        if record.grace_ends_at_ms is not None and now_ms >= record.grace_ends_at_ms:
            _refuse(refusals.REVOKED_KEY)
        if record.expires_at_ms is not None and now_ms >= record.expires_at_ms:
            _refuse(refusals.EXPIRED_TOKEN)
        self._key_uses.note(record.key_id, now_ms)
        return ApiKeyPrincipal(
            workspace_id=record.workspace_id,
            key_id=record.key_id,
            scopes=record.scopes - record.inert_scopes,
            environment=record.environment,
            limits=record.limits,
            session_id=record.session_id,
            is_guest=record.is_share,
        )

    async def _record(self, key: str, digest: bytes) -> ApiKeyRecord | None:
        asked_at_ms = self._clock.now_ms()
        if not is_well_formed(key):
            return None
        record = self._recent_keys.get(digest, now_ms=asked_at_ms) or self._recent_grants.get(
            digest, now_ms=asked_at_ms
        )
        if record is not None and (record.grace_ends_at_ms is None or asked_at_ms < record.grace_ends_at_ms):
            return record
        record = await self._store.key_of(digest)
        # Unknown keys are not cached: a key minted a moment later must work at once.
        if record is not None and not record.is_share:
            recent = self._recent_keys if record.expires_at_ms is None else self._recent_grants
            recent.put(digest, record, read_at_ms=asked_at_ms)
        return record


def _refuse(refusal: Refusal) -> NoReturn:
    raise RefusedError(refusal)
