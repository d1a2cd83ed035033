"""Signing in with a wallet: challenge, proof, session, choice of a workspace.

A nonce is used up by one atomic step before anything slow begins, so a proof counts once, whether it held
or not, and a flood of proofs for one nonce asks the chain once. Where a dependency was down and nothing was
decided, the nonce is given back: a 503 has no effect. Answers do not tell a used nonce from an unknown one.
"""

from dataclasses import dataclass, replace
from typing import Final, final

import structlog

from sightline.domain.access import Role, WalletPrincipal
from sightline.domain.addresses import parse_address
from sightline.domain.errors import OutcomeUnknownError, RefusedError, UnavailableError
from sightline.domain.units import HOUR_MS, MINUTE_MS
from sightline.identity import refusals
from sightline.identity.challenge import NONCE_BYTES, ChallengeText
from sightline.identity.cookies import LIFETIME_MS, CookieCodec
from sightline.identity.members import Members, Membership
from sightline.identity.signatures import SignatureVerifier
from sightline.ports.clock import Clock
from sightline.ports.identity import IdentityStore, Nonce, Purpose
from sightline.ports.ids import Ids

log = structlog.get_logger()
_NONCE_LENGTH_MAX: Final = 64


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SignInOptions:
    """What the signed text says of this server. `domain` is host[:port] of `uri`, as the browser shows it."""

    domain: str
    uri: str
    chain_id: int
    nonce_ttl_ms: int = 5 * MINUTE_MS
    nonce_kept_ms: int = HOUR_MS
    """How long an expired nonce is kept before it is dropped."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """What the client gets to sign."""

    nonce: str
    message: str
    expires_at_ms: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SignedIn:
    """A session and the Set-Cookie header that carries it. `set_cookie` is a secret of the client's."""

    principal: WalletPrincipal
    set_cookie: str
    memberships: tuple[Membership, ...] = ()

    def __repr__(self) -> str:
        """Show everything but the cookie."""
        return f"SignedIn({self.principal!r})"


@final
class SignIn:
    """Turns signatures into sessions."""

    def __init__(
        self,
        store: IdentityStore,
        members: Members,
        verifier: SignatureVerifier,
        cookies: CookieCodec,
        clock: Clock,
        ids: Ids,
        options: SignInOptions,
    ) -> None:
        self._store = store
        self._members = members
        self._verifier = verifier
        self._cookies = cookies
        self._clock = clock
        self._ids = ids
        self._options = options

    async def challenge(self, address: str, purpose: Purpose) -> Challenge:
        """Compose a text for the wallet to sign, good once and for five minutes.

        Raises:
            RefusedError: INVALID_INPUT for what is no address.
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

    async def login(self, address: str, nonce: str, signature: str) -> SignedIn:
        """Start a session of the wallet; it lasts twelve hours from now.

        Raises:
            RefusedError: INVALID_INPUT; NOT_AUTHENTICATED `auth:nonce` or `auth:signature`.
            ChainUnavailableError: A contract wallet could not be asked.
            AuthzUnavailableError: The wallet's workspaces could not be read.
        """
        shown = await self.prove(address, nonce, signature, Purpose.LOGIN)
        try:
            memberships = await self._members.memberships_of(shown)
        except UnavailableError:
            await self.give_back(nonce)
            raise
        now_ms = self._clock.now_ms()
        principal = WalletPrincipal(
            wallet_address=shown,
            workspace_id=None,
            role=None,
            signed_in_at_ms=now_ms,
            expires_at_ms=now_ms + LIFETIME_MS,
        )
        return SignedIn(principal=principal, set_cookie=self._set_cookie(principal), memberships=memberships)

    async def select(self, principal: WalletPrincipal, workspace_id: str) -> SignedIn:
        """Choose the workspace the session acts for. The session ends when it would have ended anyway.

        Raises:
            RefusedError: NOT_AUTHORIZED for no member, be there such a workspace or not.
            AuthzUnavailableError: The graph did not answer.
        """
        role: Role | None = await self._members.role_of(workspace_id, principal.wallet_address)
        if role is None:
            raise RefusedError(refusals.NOT_A_MEMBER)
        chosen = replace(principal, workspace_id=workspace_id, role=role)
        return SignedIn(principal=chosen, set_cookie=self._set_cookie(chosen))

    async def prove(self, address: str, nonce: str, signature: str, purpose: Purpose) -> str:
        """Check that the wallet signed the text of this nonce, for this purpose; uses the nonce up.

        Returns:
            The wallet's address in EIP-55 form.

        Raises:
            RefusedError: INVALID_INPUT; NOT_AUTHENTICATED `auth:nonce` or `auth:signature`.
            ChainUnavailableError: A contract wallet could not be asked.
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
        """Make a nonce good again whose proof led to nothing because a dependency was down.

        Only for the caller whose `prove` used it up, and only where surely nothing was changed. A nonce
        that cannot be given back stays used: the wallet signs another one.
        """
        try:
            await self._store.give_back_nonce(nonce)
        except (UnavailableError, OutcomeUnknownError) as error:
            log.warning("nonce_not_given_back", reason=str(error))

    async def drop_expired(self) -> int:
        """Forget nonces that expired long ago; to be called from time to time."""
        return await self._store.drop_nonces(expired_before_ms=self._clock.now_ms() - self._options.nonce_kept_ms)

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
