"""Principals, and the rules that say which credential may call which operation.

The rules look at the credential alone: its kind, scopes, role and selected workspace. Whether the principal is a party
of the session in the path is checked later, when the session has been read.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum, auto
from types import MappingProxyType
from typing import Final, TypeAlias, final

from sightline.domain.refusal import Code, Refusal
from sightline.domain.session.messages import Party
from sightline.domain.units import MicroUsdc
from sightline.domain.value import Value


class Scope(StrEnum):
    """What an API key may be allowed to do. OPERATORS_WRITE and COVERAGE_WRITE are reserved: no operation
    asks for them yet."""

    SESSIONS_READ = "sessions:read"
    SESSIONS_CREATE = "sessions:create"
    SESSIONS_OPERATE = "sessions:operate"
    PRICING_READ = "pricing:read"
    WALLET_READ = "wallet:read"
    OPERATORS_WRITE = "operators:write"
    COVERAGE_WRITE = "coverage:write"
    WEBHOOKS_WRITE = "webhooks:write"


class Role(StrEnum):
    """A wallet's role in a workspace, most powerful first."""

    OWNER = "OWNER"
    ADMIN = "ADMIN"
    VIEWER = "VIEWER"


class Environment(StrEnum):
    """The environment of a key. Only TEST keys are minted; the key format also knows LIVE."""

    TEST = "TEST"
    LIVE = "LIVE"


@final
class KeyLimits(Value, kw_only=True):
    """What the sessions that an API key creates may cost at most; None: no limit."""

    per_session: MicroUsdc | None = None
    per_day: MicroUsdc | None = None
    """Of the sessions created on one UTC day: the holds of open sessions and the charges of ended ones."""


@final
class ApiKeyPrincipal(Value):
    """A machine, bound to one workspace."""

    workspace_id: str
    key_id: str
    scopes: frozenset[Scope]
    environment: Environment = Environment.TEST
    limits: KeyLimits | None = None
    session_id: str | None = None
    """The only session that the key opens; None: its workspace."""
    is_guest: bool = False
    """Whether the key is that of a share link: it may do what `GUEST_OPERATIONS` names."""


@final
class WalletPrincipal(Value, kw_only=True):
    """A person who signed in with a wallet. `workspace_id` and `role` are None until a workspace is selected.

    `role` is that of the selection. Operations whose rule says `is_role_live` use the role of the moment instead.
    """

    session_id: str
    wallet_address: str
    workspace_id: str | None
    role: Role | None
    signed_in_at_ms: int
    expires_at_ms: int


Principal: TypeAlias = ApiKeyPrincipal | WalletPrincipal


@final
class Holder(Value, kw_only=True):
    """The credential that a play URL was given to, by its ids: those of a workspace and of an API key or a sign-in."""

    is_key: bool
    credential_id: str
    workspace_id: str


def holder_of(principal: Principal) -> Holder:
    """Name the credential of a principal that acts for a workspace."""
    assert principal.workspace_id is not None
    match principal:
        case ApiKeyPrincipal(key_id=key_id):
            return Holder(is_key=True, credential_id=key_id, workspace_id=principal.workspace_id)
        case WalletPrincipal(session_id=session_id):
            return Holder(is_key=False, credential_id=session_id, workspace_id=principal.workspace_id)


def credential_of(principal: Principal) -> str:
    """Name a principal in what is stored: `key:` and the key's id, or `wallet:` and the address. Never a secret."""
    match principal:
        case ApiKeyPrincipal(key_id=key_id):
            return f"key:{key_id}"
        case WalletPrincipal(wallet_address=address):
            return f"wallet:{address}"


def budget_of(principal: Principal) -> str | None:
    """Name what a principal's calls are counted against: its share link, else its workspace; None if it has neither.

    Guests are counted by their link, so that they use up nothing of the workspace that shares a view.
    """
    if isinstance(principal, ApiKeyPrincipal) and principal.is_guest:
        return principal.key_id
    return principal.workspace_id


class Operation(StrEnum):
    """Every operation that needs a credential. Calls with the same rule share one operation."""

    ME = auto()
    LOGOUT = auto()
    LIST_WALLET_SESSIONS = auto()
    END_WALLET_SESSION = auto()
    READ_INVITATIONS = auto()
    ANSWER_INVITATION = auto()
    READ_AUTHORIZATION_REQUEST = auto()
    SELECT_WORKSPACE = auto()
    LIST_WORKSPACES = auto()
    GET_WORKSPACE = auto()
    RENAME_WORKSPACE = auto()
    UPDATE_WORKSPACE = auto()
    POST_LOCATION = auto()
    RESET_LOCATION = auto()
    LIST_API_KEYS = auto()
    MINT_API_KEY = auto()
    REVOKE_API_KEY = auto()
    KEEP_API_KEY = auto()
    LIST_MEMBERS = auto()
    CHANGE_MEMBERS = auto()
    GET_QUOTE = auto()
    READ_COVERAGE = auto()
    CREATE_SESSION = auto()
    DISPATCH_SESSION = auto()
    CANCEL_SESSION = auto()
    MESSAGE_OPERATOR = auto()
    SHOW_MESSAGES = auto()
    READ_SESSION = auto()
    READ_SHARED_VIEW = auto()
    SHARE_VIEW = auto()
    WATCH_VIDEO = auto()
    ACCEPT_SESSION = auto()
    START_SESSION = auto()
    END_SESSION = auto()
    CANCEL_ASSIGNMENTS = auto()
    READ_WALLET = auto()
    USE_FAUCET = auto()
    ISSUE_STREAM_TICKET = auto()
    WATCH_EVENTS = auto()
    MANAGE_WEBHOOKS = auto()
    RECEIVE_PUSHES = auto()


@final
class Rule(Value, kw_only=True):
    """What one operation asks of a credential.

    Args:
        scopes: An API key needs any one of them; empty: every key may call.
        keys_refused: The refusal of every API key; None where keys may call.
        wallets_refused: The refusal of every wallet session; None where they may call.
        roles: The wallet roles that may call.
        needs_workspace: Whether a wallet session must have selected a workspace.
        is_role_live: Whether the wallet's role is read from the authorization graph at each call instead of being
            taken from the cookie. True for every operation that changes something in a workspace, and for live video
            and positions.
        needs_recent_signature: Whether the sign-in must be younger than the configured age.
    """

    scopes: frozenset[Scope] = frozenset()
    keys_refused: Refusal | None = None
    wallets_refused: Refusal | None = None
    roles: frozenset[Role] = frozenset(Role)
    needs_workspace: bool = True
    is_role_live: bool = False
    needs_recent_signature: bool = False


API_KEY_REQUIRED: Final = Refusal(
    Code.NOT_AUTHORIZED, "auth:apiKeyRequired", "A browser sends the cookie with every stream; tickets are for API keys"
)
WORKSPACE_NOT_SELECTED: Final = Refusal(
    Code.INVALID_INPUT, "workspaceNotSelected", "Select a workspace after signing in"
)
WALLET_SESSION_REQUIRED: Final = Refusal(
    Code.NOT_AUTHORIZED,
    "apiKey:walletSessionRequired",
    "An API key cannot make this call; sign in with a wallet of the workspace",
)
NOT_A_WALLET_SESSION: Final = Refusal(
    Code.NOT_AUTHENTICATED, "auth:walletSessionRequired", "An API key cannot make this call; sign in with the wallet"
)
ROLE_MISSING: Final = Refusal(
    Code.NOT_AUTHORIZED, "workspace:role", "Your role in the workspace does not allow this call"
)
WORKSPACE_MISMATCH: Final = Refusal(Code.NOT_AUTHORIZED, "workspace:mismatch", "The credential is of another workspace")
OTHER_SESSION: Final = Refusal(Code.NOT_AUTHORIZED, "apiKey:session", "The API key opens one view only")
GUEST: Final = Refusal(Code.NOT_AUTHORIZED, "share:readOnly", "A share link shows a view and its picture, nothing else")

_ANY_ROLE: Final = frozenset(Role)
_STAFF: Final = frozenset({Role.OWNER, Role.ADMIN})
_OWNER: Final = frozenset({Role.OWNER})


def _reads(*scopes: Scope) -> Rule:
    return Rule(scopes=frozenset(scopes))


def _changes(*scopes: Scope, roles: frozenset[Role] = _STAFF) -> Rule:
    return Rule(scopes=frozenset(scopes), roles=roles, is_role_live=True)


def _watches(*scopes: Scope) -> Rule:
    return Rule(scopes=frozenset(scopes), is_role_live=True)


def _administers(*, roles: frozenset[Role], needs_recent_signature: bool = False) -> Rule:
    return Rule(
        keys_refused=WALLET_SESSION_REQUIRED,
        roles=roles,
        is_role_live=True,
        needs_recent_signature=needs_recent_signature,
    )


_WALLET_ONLY: Final = Rule(keys_refused=NOT_A_WALLET_SESSION, needs_workspace=False)
_ANYONE: Final = Rule(needs_workspace=False)

RULES: Final[Mapping[Operation, Rule]] = MappingProxyType(
    {
        Operation.ME: _ANYONE,
        Operation.LOGOUT: _ANYONE,
        Operation.LIST_WALLET_SESSIONS: _WALLET_ONLY,
        Operation.END_WALLET_SESSION: _WALLET_ONLY,
        Operation.READ_INVITATIONS: _WALLET_ONLY,
        Operation.ANSWER_INVITATION: _WALLET_ONLY,
        Operation.READ_AUTHORIZATION_REQUEST: _WALLET_ONLY,
        Operation.SELECT_WORKSPACE: _WALLET_ONLY,
        Operation.LIST_WORKSPACES: _WALLET_ONLY,
        Operation.GET_WORKSPACE: _reads(Scope.SESSIONS_READ),
        Operation.RENAME_WORKSPACE: _changes(roles=_ANY_ROLE),
        Operation.UPDATE_WORKSPACE: _changes(Scope.SESSIONS_OPERATE),
        Operation.POST_LOCATION: _changes(Scope.SESSIONS_OPERATE),
        Operation.RESET_LOCATION: _administers(roles=_OWNER),
        Operation.LIST_API_KEYS: _administers(roles=_ANY_ROLE),
        Operation.MINT_API_KEY: _administers(roles=_STAFF, needs_recent_signature=True),
        Operation.REVOKE_API_KEY: _administers(roles=_STAFF),
        Operation.KEEP_API_KEY: _administers(roles=_STAFF, needs_recent_signature=True),
        Operation.LIST_MEMBERS: _administers(roles=_OWNER),
        Operation.CHANGE_MEMBERS: _administers(roles=_OWNER, needs_recent_signature=True),
        Operation.GET_QUOTE: _reads(Scope.PRICING_READ),
        Operation.READ_COVERAGE: _reads(Scope.PRICING_READ),
        Operation.CREATE_SESSION: _changes(Scope.SESSIONS_CREATE),
        Operation.DISPATCH_SESSION: _changes(Scope.SESSIONS_CREATE),
        Operation.CANCEL_SESSION: _changes(Scope.SESSIONS_CREATE),
        Operation.MESSAGE_OPERATOR: _changes(Scope.SESSIONS_CREATE),
        Operation.READ_SESSION: _reads(Scope.SESSIONS_READ),
        Operation.READ_SHARED_VIEW: _reads(Scope.SESSIONS_READ),
        Operation.SHARE_VIEW: _changes(Scope.SESSIONS_CREATE),
        Operation.WATCH_VIDEO: _watches(Scope.SESSIONS_READ),
        Operation.ACCEPT_SESSION: _changes(Scope.SESSIONS_OPERATE),
        Operation.START_SESSION: _changes(Scope.SESSIONS_OPERATE),
        Operation.SHOW_MESSAGES: _changes(Scope.SESSIONS_OPERATE),
        Operation.END_SESSION: _changes(Scope.SESSIONS_OPERATE, Scope.SESSIONS_CREATE),
        Operation.CANCEL_ASSIGNMENTS: _changes(Scope.SESSIONS_OPERATE),
        Operation.READ_WALLET: _reads(Scope.WALLET_READ),
        Operation.USE_FAUCET: _changes(Scope.SESSIONS_CREATE),
        Operation.ISSUE_STREAM_TICKET: Rule(wallets_refused=API_KEY_REQUIRED, needs_workspace=False),
        Operation.WATCH_EVENTS: _watches(Scope.SESSIONS_READ),
        Operation.MANAGE_WEBHOOKS: _changes(Scope.WEBHOOKS_WRITE),
        Operation.RECEIVE_PUSHES: _changes(Scope.SESSIONS_OPERATE),
    }
)

GUEST_OPERATIONS: Final = frozenset({Operation.READ_SHARED_VIEW, Operation.WATCH_VIDEO})
"""What the key of a share link may call."""

SCOPE_TO_END: Final[Mapping[Party, Scope]] = MappingProxyType(
    {Party.OPERATOR: Scope.SESSIONS_OPERATE, Party.CONSUMER: Scope.SESSIONS_CREATE}
)
"""The scope that lets an API key end a session for one of its parties."""


def scope_missing(scopes: Iterable[Scope]) -> Refusal:
    """The refusal of an API key that has none of these scopes."""
    wanted = " or ".join(sorted(scopes))
    return Refusal(Code.NOT_AUTHORIZED, "apiKey:scope", f"The API key lacks the scope {wanted}", required_scope=wanted)


def may_call(principal: Principal, operation: Operation) -> Refusal | None:
    """Return why the credential may not call `operation`, or None if it may.

    A wallet session without a selected workspace gets that refusal before its role is looked at.
    """
    rule = RULES[operation]
    match principal:
        case ApiKeyPrincipal(scopes=scopes, is_guest=is_guest):
            if is_guest and operation not in GUEST_OPERATIONS:
                return GUEST
            if rule.keys_refused is not None:
                return rule.keys_refused
            return scope_missing(rule.scopes) if rule.scopes and not rule.scopes & scopes else None
        case WalletPrincipal(role=role):
            if rule.wallets_refused is not None:
                return rule.wallets_refused
            if not rule.needs_workspace:
                return None
            if principal.workspace_id is None:
                return WORKSPACE_NOT_SELECTED
            return None if role in rule.roles else ROLE_MISSING


def opens_only(principal: Principal, session_id: str | None) -> Refusal | None:
    """Return the refusal of a call about another session, or about none, if the credential opens one session only."""
    if not isinstance(principal, ApiKeyPrincipal) or principal.session_id in {None, session_id}:
        return None
    return OTHER_SESSION


def parties_to_end(principal: Principal) -> frozenset[Party]:
    """The parties for which the credential may end a session: those of a key's scopes, both for a wallet session.

    The session's actor compares them with the parties that the principal's workspace is.
    """
    match principal:
        case ApiKeyPrincipal(scopes=scopes):
            return frozenset(party for party, scope in SCOPE_TO_END.items() if scope in scopes)
        case WalletPrincipal():
            return frozenset(SCOPE_TO_END)


def may_publish(principal: Principal) -> bool:
    """Whether the credential may see the publish URL of its workspace's sessions, which embeds a secret."""
    match principal:
        case ApiKeyPrincipal(scopes=scopes):
            return Scope.SESSIONS_OPERATE in scopes
        case WalletPrincipal(role=role):
            return role in _STAFF


def bound_to(principal: Principal, workspace_id: str) -> Refusal | None:
    """Return the refusal of a workspace that is not the principal's own, or None."""
    return None if principal.workspace_id == workspace_id else WORKSPACE_MISMATCH
