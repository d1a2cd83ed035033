"""Sign-in with a wallet: challenge, verification of the signature, wallet session, selection of a workspace.

A nonce is taken by one atomic statement before the signature is verified, so each nonce allows one attempt and many
attempts with one nonce cause one chain call. If a dependency fails before the outcome is decided, the nonce is given
back, because a 503 must have no effect. The answers for a used and for an unknown nonce are equal.
"""

from typing import Final, final

import structlog

from sightline.domain.access import Role, WalletPrincipal
from sightline.domain.addresses import parse_address
from sightline.domain.errors import OutcomeUnknownError, RefusedError, UnavailableError
from sightline.domain.units import MINUTE_MS
from sightline.domain.value import Value, replace
from sightline.identity import refusals
from sightline.identity.challenge import NONCE_BYTES, ChallengeText
from sightline.identity.cookies import CookieCodec
from sightline.identity.members import Members
from sightline.identity.signatures import SignatureVerifier
from sightline.identity.wallet_sessions import WalletSessions
from sightline.ports.clock import Clock
from sightline.ports.identity import Challenge, IdentityStore, Nonce, Purpose, SignedIn
from sightline.ports.ids import Ids

log = structlog.get_logger()
_NONCE_LENGTH_MAX: Final = 64


@final
class SignInOptions(Value, kw_only=True):
    """The server's identity in the signed text. `domain` is host[:port] of `uri`, as the browser shows it."""

    domain: str
    uri: str
    chain_id: int
    nonce_ttl_ms: int = 5 * MINUTE_MS


@final
class SignIn:
    """Signs wallets in."""

    def __init__(
        self,
        store: IdentityStore,
        members: Members,
        verifier: SignatureVerifier,
        sessions: WalletSessions,
        cookies: CookieCodec,
        clock: Clock,
        ids: Ids,
        options: SignInOptions,
    ) -> None:
        self._store = store
        self._members = members
        self._verifier = verifier
        self._sessions = sessions
        self._cookies = cookies
        self._clock = clock
        self._ids = ids
        self._options = options

    async def challenge(self, address: str, purpose: Purpose) -> Challenge:
        """Create a challenge. It can be used once, within `nonce_ttl_ms`.

        Raises:
            RefusedError: INVALID_INPUT if `address` is not a wallet address.
        """
        shown = parse_address(address)
        if shown is None:
            raise RefusedError(refusals.BAD_ADDRESS)
        now_ms = self._clock.now_ms()
        text = ChallengeText(
            domain=self._options.domain,
            uri=self._options.uri,
            address=shown,
            purpose=purpose,
            chain_id=self._options.chain_id,
            nonce=self._ids.token_bytes(NONCE_BYTES).hex(),
            issued_at_ms=now_ms,
            expires_at_ms=now_ms + self._options.nonce_ttl_ms,
        )
        await self._store.add_nonce(
            Nonce(
                value=text.nonce,
                address=shown.lower(),
                purpose=purpose,
                message=str(text),
                chain_id=text.chain_id,
                expires_at_ms=text.expires_at_ms,
            )
        )
        return Challenge(nonce=text.nonce, message=str(text), expires_at_ms=text.expires_at_ms)

    async def login(
        self, address: str, nonce: str, signature: str, *, client_ip: str = "", user_agent: str = ""
    ) -> SignedIn:
        """Open a session of the wallet. It lasts twelve hours.

        Raises:
            RefusedError: INVALID_INPUT; NOT_AUTHENTICATED `auth:nonce` or `auth:signature`.
            ChainUnavailableError: A contract wallet could not be called.
            AuthzUnavailableError: The wallet's workspaces could not be read.
            StoreUnavailableError: The session could not be stored.
        """
        shown = await self.prove(address, nonce, signature, Purpose.LOGIN)
        try:
            memberships = await self._members.memberships_of(shown)
            principal = await self._sessions.open(shown, client_ip=client_ip, user_agent=user_agent)
        except UnavailableError:
            await self.give_back(nonce)
            raise
        return SignedIn(principal=principal, set_cookie=self._set_cookie(principal), memberships=memberships)

    async def select(self, principal: WalletPrincipal, workspace_id: str) -> SignedIn:
        """Select the workspace of the session. The end of the session does not change.

        Raises:
            RefusedError: NOT_AUTHORIZED if the wallet is not a member, also if there is no such workspace.
            AuthzUnavailableError: The authorization graph did not answer.
        """
        role: Role | None = await self._members.role_of(workspace_id, principal.wallet_address)
        if role is None:
            raise RefusedError(refusals.NOT_A_MEMBER)
        chosen = replace(principal, workspace_id=workspace_id, role=role)
        return SignedIn(principal=chosen, set_cookie=self._set_cookie(chosen))

    async def prove(self, address: str, nonce: str, signature: str, purpose: Purpose) -> str:
        """Verify that the wallet signed the challenge of this nonce and purpose. The nonce cannot be used again.

        Returns:
            The wallet's address in EIP-55 form.

        Raises:
            RefusedError: INVALID_INPUT; NOT_AUTHENTICATED `auth:nonce` or `auth:signature`.
            ChainUnavailableError: A contract wallet could not be called.
        """
        shown = parse_address(address)
        if shown is None:
            raise RefusedError(refusals.BAD_ADDRESS)
        raw_signature = _parse_signature(signature)
        if raw_signature is None:
            raise RefusedError(refusals.BAD_SIGNATURE)
        challenge = await self._taken(nonce, shown, purpose)
        if challenge is None or challenge.chain_id != self._options.chain_id:
            raise RefusedError(refusals.BAD_NONCE)
        try:
            is_signed = await self._verifier.is_signed_by(shown, challenge.message, raw_signature)
        except UnavailableError:
            await self.give_back(nonce)
            raise
        if not is_signed:
            raise RefusedError(refusals.BAD_SIGNATURE)
        return shown

    async def give_back(self, nonce: str) -> None:
        """Make a nonce usable again after a dependency failed and nothing was changed.

        Only the caller whose `prove` took the nonce may call this. If giving it back fails, the nonce stays used and
        the wallet signs a new challenge.
        """
        try:
            await self._store.give_back_nonce(nonce)
        except (UnavailableError, OutcomeUnknownError) as error:
            log.warning("nonce_give_back_failed", reason=str(error))

    async def _taken(self, nonce: str, address: str, purpose: Purpose) -> Nonce | None:
        if not (nonce.isascii() and nonce.isalnum() and len(nonce) <= _NONCE_LENGTH_MAX):
            return None
        return await self._store.take_nonce(
            nonce, address=address.lower(), purpose=purpose, now_ms=self._clock.now_ms()
        )

    def _set_cookie(self, principal: WalletPrincipal) -> str:
        return self._cookies.set_cookie(
            self._cookies.encode(principal),
            signed_in_at_ms=principal.signed_in_at_ms,
            now_ms=self._clock.now_ms(),
        )


def _parse_signature(text: str) -> bytes | None:
    try:
        return bytes.fromhex(text.removeprefix("0x")) if text.isascii() else None
    except ValueError:
        return None
