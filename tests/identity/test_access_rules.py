"""Check which credential may call which operation."""

import itertools

import pytest

from sightline.domain import access
from sightline.domain.access import ApiKeyPrincipal, Operation, Role, Scope, WalletPrincipal
from sightline.domain.refusal import Code
from sightline.domain.session.messages import Party

W = "11111111-1111-4111-8111-111111111111"


def a_key(*scopes: Scope) -> ApiKeyPrincipal:
    return ApiKeyPrincipal(workspace_id=W, key_id="k", scopes=frozenset(scopes))


def a_wallet(role: Role | None) -> WalletPrincipal:
    return WalletPrincipal(
        session_id="00000000-0000-4000-8000-00000000000a",
        wallet_address="0x" + "ab" * 20,
        workspace_id=W if role else None,
        role=role,
        signed_in_at_ms=0,
        expires_at_ms=1,
    )


EVERY = set(Operation)
MEMBERS = {Operation.LIST_MEMBERS, Operation.CHANGE_MEMBERS}
FOR_OWNERS = {*MEMBERS, Operation.RESET_LOCATION}
WALLET_ONLY_401 = {
    Operation.SELECT_WORKSPACE,
    Operation.LIST_WORKSPACES,
    Operation.LIST_WALLET_SESSIONS,
    Operation.END_WALLET_SESSION,
    Operation.READ_INVITATIONS,
    Operation.ANSWER_INVITATION,
    Operation.READ_AUTHORIZATION_REQUEST,
}
WALLET_ONLY_403 = {
    Operation.LIST_API_KEYS,
    Operation.MINT_API_KEY,
    Operation.REVOKE_API_KEY,
    Operation.KEEP_API_KEY,
    Operation.LIST_MEMBERS,
    Operation.CHANGE_MEMBERS,
    Operation.RESET_LOCATION,
}
ANY_KEY = {Operation.ME, Operation.LOGOUT, Operation.RENAME_WORKSPACE, Operation.ISSUE_STREAM_TICKET}
KEYS_ONLY = {Operation.ISSUE_STREAM_TICKET}
BY_SCOPE = {
    Scope.SESSIONS_READ: {
        Operation.READ_SESSION,
        Operation.GET_WORKSPACE,
        Operation.WATCH_EVENTS,
        Operation.WATCH_VIDEO,
        Operation.READ_SHARED_VIEW,
    },
    Scope.SESSIONS_CREATE: {
        Operation.CREATE_SESSION,
        Operation.SHARE_VIEW,
        Operation.DISPATCH_SESSION,
        Operation.CANCEL_SESSION,
        Operation.MESSAGE_OPERATOR,
        Operation.END_SESSION,
        Operation.USE_FAUCET,
    },
    Scope.SESSIONS_OPERATE: {
        Operation.UPDATE_WORKSPACE,
        Operation.POST_LOCATION,
        Operation.ACCEPT_SESSION,
        Operation.START_SESSION,
        Operation.SHOW_MESSAGES,
        Operation.END_SESSION,
        Operation.CANCEL_ASSIGNMENTS,
        Operation.RECEIVE_PUSHES,
    },
    Scope.PRICING_READ: {Operation.GET_QUOTE, Operation.READ_COVERAGE},
    Scope.WALLET_READ: {Operation.READ_WALLET},
    Scope.WEBHOOKS_WRITE: {Operation.MANAGE_WEBHOOKS},
}
NOT_FOR_VIEWERS = (
    BY_SCOPE[Scope.SESSIONS_CREATE]
    | BY_SCOPE[Scope.SESSIONS_OPERATE]
    | BY_SCOPE[Scope.WEBHOOKS_WRITE]
    | {Operation.MINT_API_KEY, Operation.REVOKE_API_KEY, Operation.KEEP_API_KEY, *FOR_OWNERS}
)
WITHOUT_SELECTION = {
    Operation.ME,
    Operation.LOGOUT,
    Operation.SELECT_WORKSPACE,
    Operation.LIST_WORKSPACES,
    Operation.LIST_WALLET_SESSIONS,
    Operation.END_WALLET_SESSION,
    Operation.READ_INVITATIONS,
    Operation.ANSWER_INVITATION,
    Operation.READ_AUTHORIZATION_REQUEST,
}


def allowed(principal: access.Principal) -> set[Operation]:
    return {operation for operation in Operation if access.may_call(principal, operation) is None}


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_key_may_do_what_its_scopes_add_up_to_and_no_more(count: int) -> None:
    for scopes in itertools.combinations(Scope, count):
        expected = ANY_KEY.union(*(BY_SCOPE.get(scope, set()) for scope in scopes))
        assert allowed(a_key(*scopes)) == expected, scopes


def test_planned_scopes_are_inert() -> None:
    inert = a_key(Scope.OPERATORS_WRITE, Scope.COVERAGE_WRITE)
    assert allowed(inert) == ANY_KEY


@pytest.mark.parametrize(
    ("role", "refused"),
    [
        (Role.OWNER, set()),
        (Role.ADMIN, FOR_OWNERS),
        (Role.VIEWER, NOT_FOR_VIEWERS),
    ],
)
def test_a_wallet_may_do_what_its_role_allows(role: Role, refused: set[Operation]) -> None:
    assert allowed(a_wallet(role)) == EVERY - refused - KEYS_ONLY


def test_a_wallet_without_a_workspace_is_told_to_select_one() -> None:
    for operation in EVERY - WITHOUT_SELECTION - KEYS_ONLY:
        assert access.may_call(a_wallet(None), operation) == access.WORKSPACE_NOT_SELECTED
    assert allowed(a_wallet(None)) == WITHOUT_SELECTION


def test_the_cookie_s_role_never_serves_a_change() -> None:
    """Finding H1 of the audit: a removed OWNER could still mint keys with the role in its cookie."""
    by_cookie = {
        operation for operation, rule in access.RULES.items() if rule.needs_workspace and not rule.is_role_live
    }
    reads = {Operation.GET_WORKSPACE, Operation.GET_QUOTE, Operation.READ_SESSION, Operation.READ_WALLET}
    assert by_cookie == reads | {Operation.READ_COVERAGE, Operation.READ_SHARED_VIEW}


def test_keys_are_told_why_a_wallet_session_is_needed() -> None:
    every_scope = a_key(*Scope)
    for operation in WALLET_ONLY_401:
        refusal = access.may_call(every_scope, operation)
        assert refusal is not None
        assert refusal.code is Code.NOT_AUTHENTICATED
    for operation in WALLET_ONLY_403:
        assert access.may_call(every_scope, operation) == access.WALLET_SESSION_REQUIRED


def test_a_key_ends_a_session_only_for_the_parties_of_its_scopes() -> None:
    assert access.parties_to_end(a_key(Scope.SESSIONS_CREATE)) == {Party.CONSUMER}
    assert access.parties_to_end(a_key(Scope.SESSIONS_OPERATE)) == {Party.OPERATOR}
    assert access.parties_to_end(a_key(Scope.SESSIONS_READ)) == set()
    both = {Party.CONSUMER, Party.OPERATOR}
    assert access.parties_to_end(a_key(*Scope)) == access.parties_to_end(a_wallet(Role.ADMIN)) == both


def test_a_principal_is_bound_to_its_own_workspace() -> None:
    assert access.bound_to(a_key(), W) is None
    assert access.bound_to(a_key(), "another") == access.WORKSPACE_MISMATCH
    assert access.bound_to(a_wallet(None), W) == access.WORKSPACE_MISMATCH


def test_owners_and_keys_change_only_after_a_recent_signature() -> None:
    asked = {operation for operation in Operation if access.RULES[operation].needs_recent_signature}
    assert asked == {Operation.MINT_API_KEY, Operation.KEEP_API_KEY, Operation.CHANGE_MEMBERS}


def test_a_guest_may_look_and_nothing_else() -> None:
    guest = access.ApiKeyPrincipal(
        workspace_id=W, key_id="k", scopes=frozenset(Scope), session_id="s", is_guest=True
    )  # fmt: skip
    assert allowed(guest) == {Operation.READ_SHARED_VIEW, Operation.WATCH_VIDEO}
    assert access.budget_of(guest) == "k"
    assert access.budget_of(a_key()) == W
