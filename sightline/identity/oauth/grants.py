"""Grants: what a member has allowed a client, its codes and its tokens.

A grant is an API key with an end, which the members of the workspace see among its keys and revoke there. No plaintext
opens the key itself; the access tokens of the grant do, each for an hour. They have the form of API keys, so that logs
and secret scanners know them. Limits count for the grant, however many tokens it has had.

A code is used once, within a minute. A second use, and a second use of a refresh token, means that somebody else has
it: the grant is revoked.
"""

import base64
import hmac
from hashlib import sha256
from typing import Final, final

import structlog

from sightline.domain.access import Environment, KeyLimits, Scope
from sightline.domain.errors import RefusedError
from sightline.domain.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from sightline.domain.value import Value, replace
from sightline.identity.api_keys import ApiKeys
from sightline.identity.key_codec import SECRET_BYTES, KeyHasher, compose_key, is_well_formed
from sightline.identity.oauth.clients import OAuthClient, client_digest
from sightline.identity.oauth.requests import AuthorizationRequest, OAuthCode, OAuthError, check_resource
from sightline.ports.clock import Clock
from sightline.ports.identity import (
    AuthorizationCode,
    FoundToken,
    GrantStore,
    GrantToken,
    TokenKind,
)
from sightline.ports.ids import Ids
from sightline.ports.store import IdempotencyRecord

log = structlog.get_logger("sightline.oauth")
CODE_MS: Final = MINUTE_MS
ACCESS_MS: Final = HOUR_MS
REUSE_MS: Final = 30 * SECOND_MS
"""A refresh token whose answer was lost may be sent again for this long."""


@final
class MemberConsent(Value, kw_only=True):
    """What a member allows a client."""

    workspace_id: str
    allowed_by: str
    """The member's wallet in EIP-55 form."""
    days: int
    limits: KeyLimits | None


@final
class TokenPair(Value, kw_only=True):
    """What a client gets. The texts are secrets."""

    access_token: str
    refresh_token: str
    expires_in_s: int
    scopes: tuple[Scope, ...]

    def __repr__(self) -> str:
        return f"TokenPair(expires_in_s={self.expires_in_s})"


@final
class Grants:
    """Gives and takes back access. Safe for any number of concurrent callers, on several servers."""

    def __init__(self, store: GrantStore, keys: ApiKeys, hasher: KeyHasher, clock: Clock, ids: Ids) -> None:
        self._store = store
        self._keys = keys
        self._hasher = hasher
        self._clock = clock
        self._ids = ids

    async def allow(
        self, consent: MemberConsent, request: AuthorizationRequest, client: OAuthClient,
        call: IdempotencyRecord | None = None,
    ) -> str:  # fmt: skip
        """Make a grant and return its code. If the code is not used within a minute, the grant has ended.

        Raises:
            RefusedError: CONFLICT when the workspace has the maximum number of keys, or the call is recorded already.
        """
        now_ms = self._clock.now_ms()
        key = await self._keys.mint_grant(
            consent.workspace_id,
            created_by=consent.allowed_by,
            label=client.name,
            scopes=request.scopes,
            limits=consent.limits,
            expires_at_ms=now_ms + CODE_MS,
            call=call,
        )
        code = self._new_text(consent.workspace_id)
        await self._store.add_code(
            AuthorizationCode(
                digest=self._hasher.digest(code),
                key_id=key.key_id,
                workspace_id=consent.workspace_id,
                client=client_digest(client.client_id),
                redirect_uri=request.redirect_uri,
                challenge=request.challenge,
                resource=request.resource,
                grant_ends_at_ms=now_ms + consent.days * DAY_MS,
                ends_at_ms=now_ms + CODE_MS,
            )
        )
        return code

    async def exchange(
        self, code: str, *, client_id: str, redirect_uri: str, verifier: str, resource: str | None
    ) -> TokenPair:
        """Give the tokens of a code.

        Raises:
            OAuthError: The code is unknown, used, expired, of another client or redirect URI, or the verifier is wrong
                (invalid_grant); the resource is another one (invalid_target).
        """
        found = await self._store.code_of(self._hasher.digest(code)) if is_well_formed(code) else None
        now_ms = self._clock.now_ms()
        if found is None or found.client != client_digest(client_id):
            raise _bad_grant("The code is not known, or is another client's")
        if found.used_at_ms is not None:
            raise await self._replayed(found.workspace_id, found.key_id, "code")
        if now_ms >= found.ends_at_ms:
            raise _bad_grant("The code has expired")
        if redirect_uri != found.redirect_uri:
            raise _bad_grant("redirect_uri differs from that of the authorization request")
        if not hmac.compare_digest(challenge_of(verifier), found.challenge):
            raise _bad_grant("code_verifier does not match code_challenge")
        check_resource(resource, found.resource)
        access, refresh = (self._new_text(found.workspace_id) for _ in range(2))
        tokens = self._tokens(access, refresh, found.key_id, found.client, now_ms, found.grant_ends_at_ms)
        if not await self._store.redeem_code(found.digest, tokens, now_ms=now_ms):
            raise await self._replayed(found.workspace_id, found.key_id, "code")
        stored = await self._store.token_of(self._hasher.digest(access))
        if stored is None or stored.key.revoked_at_ms is not None:
            raise _bad_grant("The access was revoked")
        return _pair(access, refresh, tokens[0], stored, now_ms)

    async def refresh(self, token: str, *, client_id: str) -> TokenPair:
        """Replace a refresh token, which is used up, by new tokens.

        Raises:
            OAuthError: invalid_grant: the token is unknown, used, expired or of another client, or the grant has ended.
        """
        found = await self._find(token)
        now_ms = self._clock.now_ms()
        if found is None or found.token.kind is not TokenKind.REFRESH or found.token.client != client_digest(client_id):
            raise _bad_grant("The refresh token is not known, or is another client's")
        key = found.key
        ends_at_ms = key.expires_at_ms or 0
        if key.revoked_at_ms is not None or now_ms >= ends_at_ms or now_ms >= found.token.ends_at_ms:
            raise _bad_grant("The access has ended or was revoked; ask for it again")
        access, refresh = (self._new_text(key.workspace_id) for _ in range(2))
        tokens = self._tokens(access, refresh, key.key_id, found.token.client, now_ms, ends_at_ms)
        if not await self._store.rotate_token(found.token.digest, tokens, now_ms=now_ms, reuse_ms=REUSE_MS):
            raise await self._replayed(key.workspace_id, key.key_id, "refresh_token")
        return _pair(access, refresh, tokens[0], found, now_ms)

    async def revoke(self, token: str, *, client_id: str) -> None:
        """End the grant of a token. An unknown token, or another client's, is ignored (RFC 7009, section 2.2)."""
        found = await self._find(token)
        if found is not None and found.token.client == client_digest(client_id):
            await self._keys.revoke(found.key.workspace_id, found.key.key_id)

    async def _find(self, token: str) -> FoundToken | None:
        return await self._store.token_of(self._hasher.digest(token)) if is_well_formed(token) else None

    async def _replayed(self, workspace_id: str, key_id: str, what: str) -> OAuthError:
        """Revoke the grant of something that was used twice; two parties have it."""
        log.warning("oauth_grant_revoked", workspace_id=workspace_id, key_id=key_id, reason=f"{what} was used twice")
        try:
            await self._keys.revoke(workspace_id, key_id)
        except RefusedError:  # the key was deleted after its end
            log.info("oauth_grant_gone", workspace_id=workspace_id, key_id=key_id)
        return _bad_grant("It was used before. The access is revoked; ask for it again")

    def _new_text(self, workspace_id: str) -> str:
        return compose_key(Environment.TEST, workspace_id, self._ids.token_bytes(SECRET_BYTES))

    def _tokens(
        self, access: str, refresh: str, key_id: str, client: bytes, now_ms: int, ends_at_ms: int
    ) -> tuple[GrantToken, GrantToken]:
        first = GrantToken(
            digest=self._hasher.digest(access),
            key_id=key_id,
            client=client,
            kind=TokenKind.ACCESS,
            ends_at_ms=min(now_ms + ACCESS_MS, ends_at_ms),
        )
        second = replace(first, digest=self._hasher.digest(refresh), kind=TokenKind.REFRESH, ends_at_ms=ends_at_ms)
        return first, second


def challenge_of(verifier: str) -> str:
    """The S256 challenge of a verifier (RFC 7636, section 4.2)."""
    return base64.urlsafe_b64encode(sha256(verifier.encode()).digest()).decode().rstrip("=")


def _pair(access: str, refresh: str, token: GrantToken, found: FoundToken, now_ms: int) -> TokenPair:
    return TokenPair(
        access_token=access,
        refresh_token=refresh,
        expires_in_s=(token.ends_at_ms - now_ms) // SECOND_MS,
        scopes=tuple(sorted(found.key.scopes)),
    )


def _bad_grant(description: str) -> OAuthError:
    return OAuthError(OAuthCode.INVALID_GRANT, description)
