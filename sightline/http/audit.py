"""Record privileged acts in the audit log: one entry before the act, one with its outcome after it."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar, final

import structlog
import trio

from sightline.domain.access import Principal, WalletPrincipal
from sightline.domain.errors import RefusedError, SightlineError
from sightline.domain.value import Value, hiding, replace
from sightline.ports.administration import AuditAction, AuditEntry, AuditLog, AuditOutcome
from sightline.ports.clock import Clock
from sightline.ports.ids import Ids

T = TypeVar("T")
OUTCOME_TIMEOUT_S = 5.0
"""Time limit of the second entry when the call is cancelled."""

log = structlog.get_logger()


@final
class Act(Value):
    """Who does what to whom, and why."""

    actor: str
    action: AuditAction
    target: str
    reason: str = ""


@final
class Audit(Value):
    """Wraps privileged acts. An act whose first entry cannot be written is not done."""

    entries: AuditLog
    clock: Clock
    ids: Ids

    __repr__ = hiding("ids")

    async def record(self, act: Act, work: Callable[[], Awaitable[T]]) -> T:
        """Write an entry, do the work, and write its outcome.

        Raises:
            StoreUnavailableError, OutcomeUnknownError: The first entry was not written; nothing was done.
            Whatever `work` raises.

        Cancellation: the outcome is still written, as FAILED.
        """
        act_id = self.ids.uuid()
        await self._append(act, act_id, AuditOutcome.REQUESTED)
        outcome: str = AuditOutcome.FAILED
        try:
            result = await work()
            outcome = AuditOutcome.DONE
        except RefusedError as error:
            outcome = f"{AuditOutcome.REFUSED} {error.refusal.code} {error.refusal.detail or ''}".strip()
            raise
        finally:
            with trio.move_on_after(OUTCOME_TIMEOUT_S, shield=True):
                await self._append_outcome(act, act_id, outcome)
        return result

    async def _append_outcome(self, act: Act, act_id: str, outcome: str) -> None:
        try:
            await self._append(act, act_id, outcome)
        except SightlineError as error:
            # The act is in the log as REQUESTED without an outcome, which readers must look up.
            log.error("audit_outcome_not_written", act_id=act_id, action=act.action.value, error=str(error))

    async def _append(self, act: Act, act_id: str, outcome: str) -> None:
        await self.entries.append(
            AuditEntry(
                act_id=act_id,
                at_ms=self.clock.now_ms(),
                actor=act.actor,
                action=act.action,
                target=act.target,
                reason=act.reason,
                outcome=outcome,
            )
        )


def acts_of(entries: Iterable[AuditEntry]) -> list[AuditEntry]:
    """Return one entry for each act, oldest first: the first entry of the act with the outcome of its last."""
    acts: dict[str, AuditEntry] = {}
    for entry in entries:
        acts[entry.act_id] = replace(acts.get(entry.act_id, entry), outcome=entry.outcome)
    return list(acts.values())


def actor_of(principal: Principal | None) -> str:
    """Name the caller of a public call in the audit log."""
    if isinstance(principal, WalletPrincipal):
        return f"wallet {principal.wallet_address}"
    return "anonymous" if principal is None else f"key {principal.key_id}"
