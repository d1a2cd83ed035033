"""From what a request presents to a principal.

An Authorization header wins over a cookie, even when it is wrong: a client that sends one means it.

Keys are looked up in the store and remembered for a few seconds. Whether a revoked key is still in its
grace is compared on each use with the recorded end, and a memory is always shorter than the grace, so the
60 seconds neither stretch nor shrink. `last used` costs no write per request: instants are gathered here
and written in batches.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NoReturn, Protocol, Self, TypeVar, final

import structlog
import trio

from sightline.domain.access import ApiKeyPrincipal, Principal, WalletPrincipal
from sightline.domain.errors import OutcomeUnknownError, RefusedError, UnavailableError
from sightline.domain.refusal import Refusal
from sightline.identity import refusals
from sightline.identity.cookies import CookieCodec, session_cookie
from sightline.identity.key_codec import KeyHasher, is_well_formed
from sightline.ports.clock import Clock
from sightline.ports.identity import ApiKeyRecord, IdentityStore

log = structlog.get_logger()
_CREDENTIAL_LENGTH_MAX: Final = 4_096
T = TypeVar("T")


class Headers(Protocol):
    """Request headers, looked up by name without regard to case."""

    def get(self, key: str, /) -> str | None:
        """The first value, or None."""
        ...

    def made_once(self, make: Callable[[Self], T], /) -> T:
        """What `make` makes of these headers; made once for as long as a client sends the same ones."""
        ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticatorOptions:
    """How keys are remembered."""

    remember_ms: int = 30_000
    """How long a looked-up key is used without asking the store again.

    Shorter than the grace of a revoked key.
    """
    remembered_max: int = 10_000
    """Keys remembered at once; the least recently used one goes first."""
    flush_ms: int = 5_000
    """How often last uses are written."""
    last_flush_ms: int = 2_000
    """How long the last writing may take when the server stops."""


@final
class Authenticator:
    """Tells who is calling. Safe for any number of concurrent callers.

    `run` belongs into the server's nursery.
    """

    def __init__(
        self,
        store: IdentityStore,
        cookies: CookieCodec,
        hasher: KeyHasher,
        clock: Clock,
        options: AuthenticatorOptions | None = None,
    ) -> None:
        self._store = store
        self._cookies = cookies
        self._hasher = hasher
        self._clock = clock
        self._options = options or AuthenticatorOptions()
        self._remembered: OrderedDict[bytes, tuple[ApiKeyRecord, int]] = OrderedDict()
        self._used_at_ms: dict[str, int] = {}

    async def authenticate(self, headers: Headers) -> Principal:
        """Resolve the credential of a request.

        Raises:
            RefusedError: NOT_AUTHENTICATED or REVOKED_API_KEY.
            StoreUnavailableError: A key could not be looked up.
        """
        if headers.get("authorization") is not None:
            key, digest = headers.made_once(self._read_key)
            return await self._key_principal(key, digest)
        value = session_cookie(headers.get("cookie"))
        if value is None:
            _refuse(refusals.MISSING_CREDENTIAL)
        return self._session_principal(value)

    async def run(self) -> NoReturn:
        """Write last uses from time to time, for ever.

        Cancellation: writes once more, within `last_flush_ms`.
        """
        try:
            while True:
                await trio.sleep(self._options.flush_ms / 1_000)
                await self.flush()
        finally:
            with trio.move_on_after(self._options.last_flush_ms / 1_000, shield=True):
                await self.flush()

    async def flush(self) -> None:
        """Write the last uses gathered so far; on failure they are kept for the next time."""
        used_at_ms, self._used_at_ms = self._used_at_ms, {}
        if not used_at_ms:
            return
        is_written = False
        try:
            await self._store.mark_used(used_at_ms)
            is_written = True
        except (UnavailableError, OutcomeUnknownError) as error:
            log.warning("last_use_not_written", keys=len(used_at_ms), reason=str(error))
        finally:
            # Cancelled counts as not written; to write an instant twice changes nothing.
            if not is_written:
                self._used_at_ms = used_at_ms | self._used_at_ms

    def _session_principal(self, value: str) -> WalletPrincipal:
        principal = self._cookies.decode(value, now_ms=self._clock.now_ms())
        if principal is None:
            _refuse(refusals.EXPIRED_SESSION)
        return principal

    def _read_key(self, headers: Headers) -> tuple[str, bytes]:
        authorization = headers.get("authorization") or ""
        scheme, _, key = authorization.partition(" ")
        key = key.strip(" ")
        if len(authorization) > _CREDENTIAL_LENGTH_MAX or scheme.lower() != "bearer":
            _refuse(refusals.INVALID_CREDENTIAL)
        return key, self._hasher.digest(key)

    async def _key_principal(self, key: str, digest: bytes) -> ApiKeyPrincipal:
        record = await self._record(key, digest)
        if record is None:
            _refuse(refusals.INVALID_CREDENTIAL)
        now_ms = self._clock.now_ms()
        if record.grace_ends_at_ms is not None and now_ms >= record.grace_ends_at_ms:
            _refuse(refusals.REVOKED_KEY)
        self._used_at_ms[record.key_id] = now_ms
        return ApiKeyPrincipal(
            workspace_id=record.workspace_id,
            key_id=record.key_id,
            scopes=record.scopes,
            environment=record.environment,
        )

    async def _record(self, key: str, digest: bytes) -> ApiKeyRecord | None:
        asked_at_ms = self._clock.now_ms()
        remembered = self._remembered.get(digest)
        # A clock that stepped back makes a memory look young for ever; then it is not used either.
        if remembered is not None and 0 <= asked_at_ms - remembered[1] < self._options.remember_ms:
            self._remembered.move_to_end(digest)
            return remembered[0]
        if not is_well_formed(key):
            return None
        record = await self._store.key_of(digest)
        if record is None:
            # A key that is minted now must work now, and unknown ones shall not push known ones out.
            return None
        self._remembered[digest] = (record, asked_at_ms)
        self._remembered.move_to_end(digest)
        if len(self._remembered) > self._options.remembered_max:
            self._remembered.popitem(last=False)
        return record


def _refuse(refusal: Refusal) -> NoReturn:
    raise RefusedError(refusal)
