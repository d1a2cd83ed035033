"""Ports of identity: stores for nonces, API keys, OAuth grants, wallet sessions and invitations, and withdrawals.

Members have no table: a membership is an edge of the authorization graph (`sightline.ports.relations`).
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum, unique
from typing import Final, Protocol, TypeAlias, final

from sightline.domain.access import Environment, KeyLimits, Role, Scope, WalletPrincipal
from sightline.domain.operator.model import Workspace
from sightline.domain.units import DAY_MS
from sightline.domain.value import Value, hiding
from sightline.ports.relations import RelationTuple, TupleUpdate
from sightline.ports.store import IdempotencyRecord


class Purpose(StrEnum):
    """What a nonce may be used for. A nonce of one purpose is refused for any other."""

    LOGIN = "LOGIN"
    CREATE_WORKSPACE = "CREATE_WORKSPACE"


@final
class Nonce(Value, kw_only=True):
    """One sign-in challenge and the exact text to sign. `address` is lower case."""

    value: str
    address: str
    purpose: Purpose
    message: str
    chain_id: int
    expires_at_ms: int


@final
class ApiKeyRecord(Value, kw_only=True):
    """The stored data of an API key, without the key. `grace_ends_at_ms` is set together with `revoked_at_ms`."""

    key_id: str
    workspace_id: str
    label: str
    prefix: str
    environment: Environment
    scopes: frozenset[Scope]
    created_at_ms: int
    created_by_wallet: str
    last_used_at_ms: int | None = None
    revoked_at_ms: int | None = None
    grace_ends_at_ms: int | None = None
    inert_scopes: frozenset[Scope] = frozenset()
    """Scopes that allowed nothing when the key was minted. They are shown, and still allow nothing."""
    limits: KeyLimits | None = None
    session_id: str | None = None
    """The only session that the key opens. The end of such a key is set when it is made. The key of a paid view has
    the id of its session, that of a share link one of its own."""
    expires_at_ms: int | None = None
    """When a grant ends, or the access token that it was found by. None: the key was minted, and has no end."""

    @property
    def is_share(self) -> bool:
        """Whether it is the key of a share link."""
        return self.session_id is not None and self.session_id != self.key_id


@final
class WalletSession(Value, kw_only=True):
    """One sign-in of a wallet. The session cookie names it by `session_id`; ending it makes the cookie invalid.

    `wallet_address` is in EIP-55 form. `client_ip` and `user_agent` (at most 200 characters) are those of the sign-in.
    """

    session_id: str
    wallet_address: str
    signed_in_at_ms: int
    last_used_at_ms: int
    client_ip: str
    user_agent: str
    ended_at_ms: int | None = None


@final
class Member(Value, kw_only=True):
    """A wallet's role in a workspace. `wallet_address` is in EIP-55 form.

    With an invitation it is no member yet: `role` is the one that the invitation offers.
    """

    workspace_id: str
    wallet_address: str
    role: Role
    invitation: "Invitation | None" = None


class IdentityStore(Protocol):
    """Stores nonces, stream tickets, API key records and wallet sessions.

    Every method raises StoreUnavailableError when nothing was changed. A writing method raises OutcomeUnknownError when
    the reply to its commit was lost.
    """

    async def add_nonce(self, nonce: Nonce) -> None:
        """Store a new challenge."""
        ...

    async def take_nonce(self, value: str, *, address: str, purpose: Purpose, now_ms: int) -> Nonce | None:
        """Mark a challenge as used and return it. Of concurrent callers exactly one gets it.

        Returns None if it is used, expired, unknown, or belongs to another address or purpose.
        """
        ...

    async def give_back_nonce(self, value: str) -> None:
        """Mark a used challenge as unused again. Its expiry does not change; an unknown value is ignored."""
        ...

    async def add_ticket(self, digest: bytes, sealed: bytes, *, expires_at_ms: int, now_ms: int) -> None:
        """Store the content of a stream ticket by the digest of the ticket (32 bytes)."""
        ...

    async def take_ticket(self, digest: bytes, *, now_ms: int) -> bytes | None:
        """Delete a stream ticket and return its content. Of concurrent callers exactly one gets it.

        Returns None if it is unknown, used or expired.
        """
        ...

    async def add_key(
        self, record: ApiKeyRecord, digest: bytes, *, limit: int, call: IdempotencyRecord | None = None
    ) -> bool:
        """Store a new key unless its workspace has `limit` keys that are neither revoked nor expired.

        Returns whether it was stored.

        The limit holds under concurrent calls. The record of the call is stored in the same transaction as the key.

        Raises:
            CallRecordedError: The call is recorded already.
        """
        ...

    async def add_view_key(self, record: ApiKeyRecord, digest: bytes) -> bool:
        """Store the key of a paid view if there is none. Returns whether the stored key is this one."""
        ...

    async def add_share(
        self, record: ApiKeyRecord, digest: bytes, *, limit: int, call: IdempotencyRecord | None = None
    ) -> bool:
        """Store the key of a share link unless its session has `limit` that have not ended at its creation.

        The limit holds under concurrent calls. The record of the call is stored in the same transaction as the key.

        Raises:
            CallRecordedError: The call is recorded already.
        """
        ...

    async def shares_of(self, workspace_id: str, session_id: str, *, limit: int) -> tuple[ApiKeyRecord, ...]:
        """List the newest keys of share links of a session, ended ones included, newest first."""
        ...

    async def end_share(self, workspace_id: str, session_id: str, key_id: str, *, now_ms: int) -> ApiKeyRecord | None:
        """End the key of a share link now, unless it has ended. Returns None if the session has no such link."""
        ...

    async def key_of(self, digest: bytes) -> ApiKeyRecord | None:
        """Find a key by the digest of its plaintext, or of an access token (32 bytes). Revoked keys are found too."""
        ...

    async def key_in(self, workspace_id: str, key_id: str) -> ApiKeyRecord | None:
        """Find a key of a workspace by its id. Revoked keys are found too."""
        ...

    async def keys_in(self, workspace_id: str) -> tuple[ApiKeyRecord, ...]:
        """List the keys of a workspace, revoked ones included, newest first. Keys of one session are left out."""
        ...

    async def revoke_key(self, workspace_id: str, key_id: str, *, now_ms: int, grace_ms: int) -> ApiKeyRecord | None:
        """Revoke a key. Revoking it again changes nothing and returns the same record.

        Returns None if the workspace has no such key, or it opens one session only.
        """
        ...

    async def keep_key(self, workspace_id: str, key_id: str, *, now_ms: int) -> ApiKeyRecord | None:
        """Take back the revocation of a key whose grace period has not ended. A key that is not revoked stays as it is.

        Returns the key as it is stored then, or None if the workspace has no such key, or it opens one session only.
        """
        ...

    async def mark_keys_used(self, used_at_ms: Mapping[str, int]) -> None:
        """Raise the last use of keys (key id to instant). Never lowers it; ignores unknown keys."""
        ...

    async def add_wallet_session(self, session: WalletSession) -> None:
        """Store a new sign-in."""
        ...

    async def wallet_session(self, session_id: str) -> WalletSession | None:
        """Find a sign-in by id. Ended sign-ins are found too."""
        ...

    async def wallet_sessions_of(self, address: str, *, signed_in_after_ms: int) -> tuple[WalletSession, ...]:
        """List the sign-ins of a wallet after an instant that have not ended, newest first. Address in any case."""
        ...

    async def end_wallet_session(self, session_id: str, *, address: str, now_ms: int) -> WalletSession | None:
        """End a sign-in of this wallet. Ending it again keeps the first end.

        Returns None if the wallet has no such sign-in.
        """
        ...

    async def mark_wallet_sessions_used(self, used_at_ms: Mapping[str, int]) -> None:
        """Raise the last use of sign-ins (session id to instant). Never lowers it; ignores unknown ids."""
        ...


@final
class AuthorizationCode(Value, kw_only=True):
    """What a member has allowed, until the client exchanges the code for tokens. `client` is a digest of its id."""

    digest: bytes
    key_id: str
    workspace_id: str
    client: bytes
    redirect_uri: str
    challenge: str
    resource: str
    grant_ends_at_ms: int
    ends_at_ms: int
    used_at_ms: int | None = None


@final
@unique
class TokenKind(StrEnum):
    """What a token of a grant is for."""

    ACCESS = "ACCESS"
    REFRESH = "REFRESH"


@final
class GrantToken(Value, kw_only=True):
    """A token of a grant, by its digest. A refresh token is used once."""

    digest: bytes
    key_id: str
    client: bytes
    kind: TokenKind
    ends_at_ms: int
    used_at_ms: int | None = None


@final
class FoundToken(Value):
    """A stored token, and the key of its grant."""

    token: GrantToken
    key: ApiKeyRecord


USED_TOKEN_KEPT_MS: Final = DAY_MS
"""How long a used refresh token is kept, to recognise its reuse."""


class GrantStore(Protocol):
    """Stores the codes and tokens of OAuth grants. The grant itself is an API key with an end.

    Every method raises StoreUnavailableError when nothing was changed. A writing method raises OutcomeUnknownError when
    the reply to its commit was lost.
    """

    async def add_code(self, code: AuthorizationCode) -> None:
        """Store a new code."""
        ...

    async def code_of(self, digest: bytes) -> AuthorizationCode | None:
        """Find a code. Used and expired codes are found too."""
        ...

    async def redeem_code(self, digest: bytes, tokens: Sequence[GrantToken], *, now_ms: int) -> bool:
        """Mark a code as used, set the end of its key to that of the grant, and store tokens, in one transaction.

        Returns whether this call used it: of concurrent callers exactly one does.
        """
        ...

    async def token_of(self, digest: bytes) -> FoundToken | None:
        """Find a token with the key of its grant. Used and expired tokens are found too."""
        ...

    async def rotate_token(
        self, digest: bytes, tokens: Sequence[GrantToken], *, now_ms: int, reuse_ms: int
    ) -> bool:  # fmt: skip
        """Mark a refresh token as used and store its successors, in one transaction.

        Returns False, and stores nothing, if its first use is `reuse_ms` or more ago.
        """
        ...


@final
class Invitation(Value, kw_only=True):
    """An open invitation of a wallet to a workspace. Addresses are in EIP-55 form."""

    id: str
    workspace_id: str
    wallet_address: str
    role: Role
    invited_by: str
    """The wallet of the OWNER who invited."""
    created_at_ms: int
    expires_at_ms: int


@final
class ReceivedInvitation(Value, kw_only=True):
    """An invitation as the invited wallet sees it."""

    invitation: Invitation
    workspace: Workspace


@final
class InvitationLimits(Value, kw_only=True):
    """Bounds of invitations. They hold under concurrent calls."""

    open_max: int = 50
    """Open invitations of a workspace."""
    inviter_day_max: int = 50
    """New invitations of one inviting wallet in 24 hours, in all of its workspaces."""
    declined_ms: int = DAY_MS
    """How long neither the workspace nor the inviter can invite a wallet again that has declined."""


@final
@unique
class NotInvited(StrEnum):
    """Why an invitation was not stored."""

    WORKSPACE_LIMIT = "workspace_limit"
    INVITER_LIMIT = "inviter_limit"
    DECLINED = "declined"


@final
@unique
class InvitationEnd(StrEnum):
    """How an invitation ended before it expired."""

    ACCEPTED = "ACCEPTED"
    DECLINED = "DECLINED"
    WITHDRAWN = "WITHDRAWN"


class InvitationStore(Protocol):
    """Stores invitations. A workspace has at most one open invitation of a wallet. Addresses in any case.

    Every method raises StoreUnavailableError when nothing was changed. A writing method raises OutcomeUnknownError when
    the reply to its commit was lost.
    """

    async def invite(self, invitation: Invitation, limits: InvitationLimits) -> Invitation | NotInvited:
        """Store an invitation, instead of an open one of this wallet with another role.

        Returns an open one with this role unchanged, if there is one.
        """
        ...

    async def open_in(self, workspace_id: str, *, now_ms: int) -> tuple[Invitation, ...]:
        """List the open invitations of a workspace, oldest first."""
        ...

    async def open_for(self, address: str, *, now_ms: int, limit: int) -> tuple[Invitation, ...]:
        """List the open invitations of a wallet, oldest first."""
        ...

    async def open_invitation(self, invitation_id: str, address: str, *, now_ms: int) -> Invitation | None:
        """Find an open invitation of this wallet."""
        ...

    async def accept(
        self, invitation_id: str, address: str, *, now_ms: int,
        updates: Sequence[TupleUpdate] = (), requires: Sequence[RelationTuple] = (),
    ) -> Invitation | None:  # fmt: skip
        """End an open invitation of this wallet and write edges, in one transaction.

        Returns None, and writes nothing, if the wallet has no such open invitation.

        Raises:
            PreconditionFailedError: An edge of `requires` does not exist; nothing was changed.
        """
        ...

    async def accepted_invitation(self, invitation_id: str, address: str) -> Invitation | None:
        """Find an invitation that this wallet has accepted."""
        ...

    async def reopen(self, invitation_id: str) -> None:
        """Open an accepted invitation again, because the edge could not be written. Others stay as they are."""
        ...

    async def decline(self, invitation_id: str, address: str, *, now_ms: int) -> Invitation | None:
        """End an open invitation of this wallet. Returns None if it has no such invitation."""
        ...

    async def withdraw(self, workspace_id: str, address: str, *, now_ms: int) -> Invitation | None:
        """End the open invitation of a wallet to a workspace. Returns None if there is none."""
        ...

    async def withdraw_of(self, workspace_id: str, inviter: str, *, now_ms: int) -> None:
        """End all open invitations to a workspace that this wallet has made."""
        ...


@final
class Challenge(Value, kw_only=True):
    """A text for a wallet to sign (EIP-4361), identified by its nonce."""

    nonce: str
    message: str
    expires_at_ms: int


@final
class Membership(Value):
    """A workspace that a wallet can access, and the wallet's role in it."""

    workspace: Workspace
    role: Role


@final
class SignedIn(Value, kw_only=True):
    """An opened wallet session."""

    principal: WalletPrincipal
    set_cookie: str
    """The Set-Cookie header that carries the session. It is a secret of the client."""
    memberships: tuple[Membership, ...] = ()

    __repr__ = hiding("set_cookie")


@final
class MintedKey(Value):
    """A new API key. The plaintext is returned once and not stored."""

    record: ApiKeyRecord
    plaintext: str

    __repr__ = hiding("plaintext")


@final
@unique
class WithdrawalKind(StrEnum):
    """What an entry is about."""

    KEY = "key"
    """An API key was revoked: `state` is empty. `kept`: its revocation was taken back. The subject is its id."""
    MEMBER = "member"
    """A wallet's membership of a workspace was changed. The subject is its address in lower case, `state` its role, in
    the file its relation; empty: it was removed."""
    SUSPENSION = "suspension"
    """A workspace was suspended: `state` is the reason. Empty: the suspension was lifted. The subject is empty."""
    SIGN_IN = "sign_in"
    """A sign-in was ended. The subject is its id; `workspace_id` and `state` are empty."""


@final
class Withdrawal(Value, kw_only=True):
    """One change. The newest entry of a kind, workspace and subject says what is true."""

    kind: WithdrawalKind
    at_ms: int
    workspace_id: str = ""
    subject: str = ""
    state: str = ""
    actor: str = ""


RecordWithdrawal: TypeAlias = Callable[[Withdrawal], Awaitable[None]]
"""Records a change that the database has outside of the database too; when it returns, it survives a loss of power.

Raises OutcomeUnknownError if it could not be recorded. The change is done; repeat the call to record it.
"""

FindWorkspaces: TypeAlias = Callable[[Sequence[str]], Awaitable[Sequence[Workspace]]]
"""The workspaces with these ids that exist and are not deleted, in any order."""


async def record_nothing(_withdrawal: Withdrawal) -> None:
    """Record nothing: the database of a simulation or test is never restored."""
