"""Wallet sessions: each sign-in is a row that the cookie names, so that sign-ins can be listed and ended.

The cookie alone proves who signed in and until when (`cookies`). The row records whether that sign-in is still open:
it has not been ended by a logout or from another device, and its last use is recent enough. ADR 0110.
"""

from collections.abc import Callable
from typing import Final, final

from sightline.domain.access import WalletPrincipal
from sightline.domain.errors import RefusedError
from sightline.domain.units import HOUR_MS
from sightline.domain.value import Value
from sightline.identity import refusals
from sightline.identity.cookies import LIFETIME_MS
from sightline.identity.recent import LastUses, RecentReads
from sightline.ports.clock import Clock
from sightline.ports.identity import (
    IdentityStore,
    RecordWithdrawal,
    WalletSession,
    Withdrawal,
    WithdrawalKind,
    record_nothing,
)
from sightline.ports.ids import Ids

_USER_AGENT_LENGTH_MAX: Final = 200


@final
class WalletSessionOptions(Value, kw_only=True):
    """Idle timeout of a sign-in, and how rows are cached."""

    idle_timeout_ms: int = 12 * HOUR_MS
    """A sign-in without a request for this long ends."""
    cache_ms: int = 5_000
    """Age up to which a row is used without reading it again. An end by another process takes effect after it."""
    cached_max: int = 10_000


@final
class WalletSessions:
    """Opens, checks, lists and ends sign-ins. Safe for any number of concurrent callers."""

    def __init__(
        self,
        store: IdentityStore,
        clock: Clock,
        ids: Ids,
        options: WalletSessionOptions | None = None,
        *,
        record: RecordWithdrawal = record_nothing,
    ) -> None:
        self._record = record
        self._store = store
        self._clock = clock
        self._ids = ids
        self._options = options or WalletSessionOptions()
        self._recent: RecentReads[str, WalletSession] = RecentReads(
            size_max=self._options.cached_max, ttl_ms=self._options.cache_ms
        )
        self._uses = LastUses("wallet_session", store.mark_wallet_sessions_used)
        self.on_ended: Callable[[str], None] = lambda _: None
        """Called with the id of a sign-in that this server has ended."""

    async def open(self, wallet_address: str, *, client_ip: str, user_agent: str) -> WalletPrincipal:
        """Record a sign-in. The principal has no workspace yet."""
        now_ms = self._clock.now_ms()
        session = WalletSession(
            session_id=self._ids.uuid(),
            wallet_address=wallet_address,
            signed_in_at_ms=now_ms,
            last_used_at_ms=now_ms,
            client_ip=client_ip,
            user_agent=user_agent[:_USER_AGENT_LENGTH_MAX],
        )
        await self._store.add_wallet_session(session)
        return WalletPrincipal(
            session_id=session.session_id,
            wallet_address=wallet_address,
            workspace_id=None,
            role=None,
            signed_in_at_ms=now_ms,
            expires_at_ms=now_ms + LIFETIME_MS,
        )

    async def require_open(self, principal: WalletPrincipal) -> None:
        """Check that the sign-in behind a cookie is open, and note its use.

        Raises:
            RefusedError: NOT_AUTHENTICATED if it was ended, was idle for too long, or is unknown.
            StoreUnavailableError: The row could not be read.
        """
        await self._open_row(principal.session_id)

    async def principal_of(self, session_id: str, workspace_id: str) -> WalletPrincipal:
        """The principal of an open sign-in that acts for a workspace, without its role. Notes a use, like a request.

        Raises:
            RefusedError: NOT_AUTHENTICATED if the sign-in was ended, was idle for too long, is too old, or is unknown.
            StoreUnavailableError: The row could not be read.
        """
        session = await self._open_row(session_id)
        expires_at_ms = session.signed_in_at_ms + LIFETIME_MS
        if self._clock.now_ms() >= expires_at_ms:
            raise RefusedError(refusals.EXPIRED_SESSION)
        return WalletPrincipal(
            session_id=session_id,
            wallet_address=session.wallet_address,
            workspace_id=workspace_id,
            role=None,
            signed_in_at_ms=session.signed_in_at_ms,
            expires_at_ms=expires_at_ms,
        )

    async def _open_row(self, session_id: str) -> WalletSession:
        now_ms = self._clock.now_ms()
        session = self._recent.get(session_id, now_ms=now_ms)
        if session is None:
            session = await self._store.wallet_session(session_id)
            if session is None:
                raise RefusedError(refusals.EXPIRED_SESSION)
            self._recent.put(session_id, session, read_at_ms=now_ms)
        last_used_at_ms = max(session.last_used_at_ms, self._uses.last(session_id))
        if session.ended_at_ms is not None or now_ms - last_used_at_ms >= self._options.idle_timeout_ms:
            raise RefusedError(refusals.EXPIRED_SESSION)
        self._uses.note(session_id, now_ms)
        return session

    async def open_of(self, wallet_address: str) -> tuple[WalletSession, ...]:
        """List the open sign-ins of a wallet, newest first."""
        await self.flush()
        now_ms = self._clock.now_ms()
        sessions = await self._store.wallet_sessions_of(wallet_address, signed_in_after_ms=now_ms - LIFETIME_MS)
        oldest_use_ms = now_ms - self._options.idle_timeout_ms
        return tuple(session for session in sessions if session.last_used_at_ms > oldest_use_ms)

    async def end(self, wallet_address: str, session_id: str) -> WalletSession:
        """End a sign-in of this wallet; its cookie is refused afterwards.

        Raises:
            RefusedError: NOT_FOUND if the wallet has no such sign-in.
        """
        ended = await self._store.end_wallet_session(session_id, address=wallet_address, now_ms=self._clock.now_ms())
        if ended is None:
            raise RefusedError(refusals.UNKNOWN_WALLET_SESSION)
        ended_at_ms = ended.ended_at_ms or self._clock.now_ms()
        await self._record(Withdrawal(kind=WithdrawalKind.SIGN_IN, at_ms=ended_at_ms, subject=session_id))
        self._recent.put(session_id, ended, read_at_ms=self._clock.now_ms())
        self.on_ended(session_id)
        return ended

    def forget(self, session_id: str) -> None:
        """Read the row of a sign-in again before it is accepted, because another server has ended it."""
        self._recent.drop(session_id)

    async def flush(self) -> None:
        """Write the last uses collected so far."""
        await self._uses.flush()
