"""Who is calling, and which credential may call what.

A principal is what a credential proved. The rules below look at the credential alone (kind, scope, role,
selection); whether the principal is a party of the session it names is asked later, once the session has
been read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum, auto
from types import MappingProxyType
from typing import Final, TypeAlias, final

from sightline.domain.refusal import Code, Refusal


class Scope(StrEnum):
    """What an API key may be allowed to do. The last three are announced and inert."""

    SESSIONS_READ = "sessions:read"
    SESSIONS_CREATE = "sessions:create"
    SESSIONS_OPERATE = "sessions:operate"
    PRICING_READ = "pricing:read"
    WALLET_READ = "wallet:read"
    OPERATORS_WRITE = "operators:write"
    COVERAGE_WRITE = "coverage:write"
    WEBHOOKS_WRITE = "webhooks:write"


class Role(StrEnum):
    """What a wallet is in a workspace, most powerful first."""

    OWNER = "OWNER"
    ADMIN = "ADMIN"
    VIEWER = "VIEWER"


class Environment(StrEnum):
    """Where a key is good. Only TEST is ever minted; LIVE exists in the key format."""

    TEST = "TEST"
    LIVE = "LIVE"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKeyPrincipal:
    """A machine, bound to one workspace."""

    workspace_id: str
    key_id: str
    scopes: frozenset[Scope]
    environment: Environment = Environment.TEST


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WalletPrincipal:
    """A person. `workspace_id` and `role` are both None until a workspace has been selected."""

    wallet_address: str
    workspace_id: str | None
    role: Role | None
    signed_in_at_ms: int
    expires_at_ms: int


Principal: TypeAlias = ApiKeyPrincipal | WalletPrincipal


class Side(StrEnum):
    """Which party of a session the principal's workspace is."""

    CONSUMER = auto()
    OPERATOR = auto()


class Operation(StrEnum):
    """Every call that needs a credential; calls with the same rule share a name."""

    ME = auto()
    LOGOUT = auto()
    SELECT_WORKSPACE = auto()
    LIST_WORKSPACES = auto()
    GET_WORKSPACE = auto()
    RENAME_WORKSPACE = auto()
    UPDATE_WORKSPACE = auto()
    POST_LOCATION = auto()
    LIST_API_KEYS = auto()
    MINT_API_KEY = auto()
    REVOKE_API_KEY = auto()
    MANAGE_MEMBERS = auto()
    GET_QUOTE = auto()
    CREATE_SESSION = auto()
    DISPATCH_SESSION = auto()
    CANCEL_SESSION = auto()
    READ_SESSION = auto()
    ACCEPT_SESSION = auto()
    START_SESSION = auto()
    END_SESSION = auto()
    CANCEL_ASSIGNMENTS = auto()
    READ_WALLET = auto()
    WATCH_EVENTS = auto()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What one operation asks of a credential.

    `scopes`: a key needs any one of them; empty: every key may. `keys_refused`: the refusal of every key,
        None where keys
    are welcome. `roles`: the wallet roles that may.
    """

    scopes: frozenset[Scope] = frozenset()
    keys_refused: Refusal | None = None
    roles: frozenset[Role] = frozenset(Role)
    needs_workspace: bool = True


WORKSPACE_NOT_SELECTED: Final = Refusal(Code.INVALID_INPUT, "workspaceNotSelected")
WALLET_SESSION_REQUIRED: Final = Refusal(Code.NOT_AUTHORIZED, "apiKey:walletSessionRequired")
NOT_A_WALLET_SESSION: Final = Refusal(Code.NOT_AUTHENTICATED, "auth:walletSessionRequired")
SCOPE_MISSING: Final = Refusal(Code.NOT_AUTHORIZED, "apiKey:scope")
ROLE_MISSING: Final = Refusal(Code.NOT_AUTHORIZED, "workspace:role")
WORKSPACE_MISMATCH: Final = Refusal(Code.NOT_AUTHORIZED, "workspace:mismatch")

_ANY_ROLE: Final = frozenset(Role)
_STAFF: Final = frozenset({Role.OWNER, Role.ADMIN})
_OWNER: Final = frozenset({Role.OWNER})


def _rule(
    *scopes: Scope,
    roles: frozenset[Role] = _ANY_ROLE,
    keys_refused: Refusal | None = None,
    needs_workspace: bool = True,
) -> Rule:
    return Rule(scopes=frozenset(scopes), roles=roles, keys_refused=keys_refused, needs_workspace=needs_workspace)


RULES: Final[Mapping[Operation, Rule]] = MappingProxyType(
    {
        Operation.ME: _rule(needs_workspace=False),
        Operation.LOGOUT: _rule(needs_workspace=False),
        Operation.SELECT_WORKSPACE: _rule(keys_refused=NOT_A_WALLET_SESSION, needs_workspace=False),
        Operation.LIST_WORKSPACES: _rule(keys_refused=NOT_A_WALLET_SESSION, needs_workspace=False),
        Operation.GET_WORKSPACE: _rule(Scope.SESSIONS_READ),
        Operation.RENAME_WORKSPACE: _rule(),
        Operation.UPDATE_WORKSPACE: _rule(Scope.SESSIONS_OPERATE, roles=_STAFF),
        Operation.POST_LOCATION: _rule(Scope.SESSIONS_OPERATE, roles=_STAFF),
        Operation.LIST_API_KEYS: _rule(keys_refused=WALLET_SESSION_REQUIRED),
        Operation.MINT_API_KEY: _rule(keys_refused=WALLET_SESSION_REQUIRED, roles=_STAFF),
        Operation.REVOKE_API_KEY: _rule(keys_refused=WALLET_SESSION_REQUIRED, roles=_STAFF),
        Operation.MANAGE_MEMBERS: _rule(keys_refused=WALLET_SESSION_REQUIRED, roles=_OWNER),
        Operation.GET_QUOTE: _rule(Scope.PRICING_READ),
        Operation.CREATE_SESSION: _rule(Scope.SESSIONS_CREATE, roles=_STAFF),
        Operation.DISPATCH_SESSION: _rule(Scope.SESSIONS_CREATE, roles=_STAFF),
        Operation.CANCEL_SESSION: _rule(Scope.SESSIONS_CREATE, roles=_STAFF),
        Operation.READ_SESSION: _rule(Scope.SESSIONS_READ),
        Operation.ACCEPT_SESSION: _rule(Scope.SESSIONS_OPERATE, roles=_STAFF),
        Operation.START_SESSION: _rule(Scope.SESSIONS_OPERATE, roles=_STAFF),
        Operation.END_SESSION: _rule(Scope.SESSIONS_OPERATE, Scope.SESSIONS_CREATE, roles=_STAFF),
        Operation.CANCEL_ASSIGNMENTS: _rule(Scope.SESSIONS_OPERATE, roles=_STAFF),
        Operation.READ_WALLET: _rule(Scope.WALLET_READ),
        Operation.WATCH_EVENTS: _rule(Scope.SESSIONS_READ),
    }
)

_END_SCOPE: Final[Mapping[Side, Scope]] = MappingProxyType(
    {Side.OPERATOR: Scope.SESSIONS_OPERATE, Side.CONSUMER: Scope.SESSIONS_CREATE}
)


def may_call(principal: Principal, operation: Operation) -> Refusal | None:
    """Say why the credential may not call `operation`, or None where it may.

    A wallet session without a workspace is told so before its role is looked at.
    """
    rule = RULES[operation]
    match principal:
        case ApiKeyPrincipal(scopes=scopes):
            if rule.keys_refused is not None:
                return rule.keys_refused
            return SCOPE_MISSING if rule.scopes and not rule.scopes & scopes else None
        case WalletPrincipal(role=role):
            if not rule.needs_workspace:
                return None
            if role is None:
                return WORKSPACE_NOT_SELECTED
            return None if role in rule.roles else ROLE_MISSING


def may_end(principal: Principal, sides: frozenset[Side]) -> Refusal | None:
    """Say why a party may not end its session; a key needs the scope of a side it stands on.

    `sides` is never empty: a principal that is no party has been refused before. It holds both where a
    workspace serves itself.
    """
    assert sides
    if isinstance(principal, WalletPrincipal):
        return None
    return None if any(_END_SCOPE[side] in principal.scopes for side in sides) else SCOPE_MISSING


def bound_to(principal: Principal, workspace_id: str) -> Refusal | None:
    """Say why the principal may not act on this workspace: it must be its own."""
    return None if principal.workspace_id == workspace_id else WORKSPACE_MISMATCH
