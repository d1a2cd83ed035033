"""Decide whether a principal may call an operation, with the wallet's current role where the rule requires it.

A cookie carries the wallet's role at the time when the workspace was selected. It may have been removed or demoted
since then. So operations that change something, or that concern keys and members, read the role from the authorization
graph on each call.
"""

from collections.abc import Callable
from typing import final

from sightline.domain.access import RULES, Operation, Principal, WalletPrincipal, may_call
from sightline.domain.errors import RefusedError
from sightline.domain.units import HOUR_MS
from sightline.domain.value import Value, replace
from sightline.identity import refusals
from sightline.identity.members import Members
from sightline.ports.clock import Clock


@final
class AuthorizeOptions(Value, kw_only=True):
    """Settings of authorization."""

    signature_age_max_ms: int = 12 * HOUR_MS
    """Age of the sign-in up to which members may be changed and keys minted."""


@final
class Authorizer:
    """Checks the rules of `domain.access`. Safe for any number of concurrent callers."""

    def __init__(
        self,
        members: Members,
        clock: Clock,
        options: AuthorizeOptions | None = None,
        *,
        is_suspended: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`is_suspended` answers whether every call of a workspace is refused."""
        self._members = members
        self._is_suspended = is_suspended
        self._clock = clock
        self._options = options or AuthorizeOptions()

    async def authorize(self, principal: Principal, operation: Operation) -> Principal:
        """Check that the principal may call the operation.

        Returns:
            The principal; for a wallet with its current role if the rule requires it.

        Raises:
            RefusedError: The workspace is suspended, the rule does not allow it, the wallet is no longer a member, or
                its sign-in is too old.
            AuthzUnavailableError: The authorization graph did not answer.
        """
        rule = RULES[operation]
        if principal.workspace_id is not None and self._is_suspended(principal.workspace_id):
            raise RefusedError(refusals.SUSPENDED)
        if rule.is_role_live and isinstance(principal, WalletPrincipal) and principal.workspace_id is not None:
            role = await self._members.role_of(principal.workspace_id, principal.wallet_address)
            if role is None:
                raise RefusedError(refusals.NOT_A_MEMBER)
            principal = replace(principal, role=role)
        refusal = may_call(principal, operation)
        if refusal is not None:
            raise RefusedError(refusal)
        if rule.needs_recent_signature and isinstance(principal, WalletPrincipal):
            self._require_recent_signature(principal)
        return principal

    def _require_recent_signature(self, principal: WalletPrincipal) -> None:
        age_ms = self._clock.now_ms() - principal.signed_in_at_ms
        if age_ms >= self._options.signature_age_max_ms:
            raise RefusedError(refusals.SIGNATURE_NEEDED)
