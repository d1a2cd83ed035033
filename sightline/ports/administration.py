"""The ports of administration: the audit log, suspensions, notes on sessions, refunds, and lists of everything.

Every method raises StoreUnavailableError or OutcomeUnknownError (sightline.domain.errors) when the store fails.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol, final

from sightline.domain.operator.model import Workspace
from sightline.domain.session.model import Session, SessionState
from sightline.domain.value import Value, hiding


class AuditAction(StrEnum):
    """Kinds of privileged acts."""

    SESSION_END = "session.end"
    SESSION_NOTE = "session.note"
    SESSION_REFUND = "session.refund"
    SETTLEMENT_WRITE_OFF = "settlement.writeOff"
    WORKSPACE_SUSPEND = "workspace.suspend"
    WORKSPACE_UNSUSPEND = "workspace.unsuspend"
    ACTOR_REVIVE = "actor.revive"
    PAYMENTS_ADOPT = "payments.adopt"
    KEY_MINT = "apiKey.mint"
    KEY_REVOKE = "apiKey.revoke"
    KEY_KEEP = "apiKey.keep"
    MEMBER_SET = "member.set"
    MEMBER_ACCEPT = "member.accept"
    MEMBER_REMOVE = "member.remove"


class AuditOutcome(StrEnum):
    """The stages of an act. An act without a second entry was interrupted: its outcome is not known."""

    REQUESTED = "REQUESTED"
    """Written before the act, so that no act is without an entry."""
    DONE = "DONE"
    REFUSED = "REFUSED"
    FAILED = "FAILED"
    """The act failed, or its outcome is not known."""


@final
class AuditEntry(Value, kw_only=True):
    """One row of the audit log. Both entries of an act have the same `act_id`."""

    act_id: str
    at_ms: int
    actor: str
    """For example `wallet 0x...`, or `NAME (account OS_USER)` for a command."""
    action: AuditAction
    target: str
    """For example `session UUID`."""
    reason: str
    outcome: str
    """An AuditOutcome; a refusal is followed by its code and label."""
    id: int = 0
    """Ascending; given by the log."""


class AuditLog(Protocol):
    """Keeps entries. There is no way to change one."""

    async def append(self, entry: AuditEntry) -> None:
        """Append an entry; returns once it is durable."""
        ...

    async def entries(self, *, after_id: int, limit: int, target: str | None = None) -> Sequence[AuditEntry]:
        """Read entries in ascending order of id."""
        ...


@final
class Suspension(Value, kw_only=True):
    """A workspace whose calls are refused."""

    workspace_id: str
    at_ms: int
    actor: str
    reason: str


@final
class SessionNote(Value, kw_only=True):
    """What an administrator wrote about a session."""

    session_id: str
    at_ms: int
    actor: str
    text: str


class RefundState(StrEnum):
    """SENT: stored and broadcast. CONFIRMED: mined. FAILED: mined and reverted, or its nonce was used otherwise."""

    SENT = "SENT"
    CONFIRMED = "CONFIRMED"
    FAILED = "FAILED"


@final
class Refund(Value, kw_only=True):
    """A transfer to the payer of a session."""

    session_id: str
    key: str
    """Identifies the refund within its session, so that a repeated command does not pay twice."""
    at_ms: int
    actor: str
    reason: str
    to_address: str
    amount_micro: int
    nonce: int
    tx_hash: str
    raw: bytes
    state: RefundState

    __repr__ = hiding("raw")


@final
class SessionFilter(Value, kw_only=True):
    """Which sessions to list, newest first."""

    states: frozenset[SessionState] = frozenset()
    """Empty: every state."""
    workspace_id: str | None = None
    """As consumer or operator."""
    limit: int = 100


class AdminStore(Protocol):
    """What administrators read and write beside the audit log."""

    async def list_sessions(self, wanted: SessionFilter) -> Sequence[Session]:
        """List sessions of all workspaces, newest first."""
        ...

    async def list_workspaces(self, *, slug: str | None, limit: int) -> Sequence[Workspace]:
        """List workspaces by slug, as of their newest recorded heartbeats; `slug` selects those that start with it."""
        ...

    async def suspensions(self) -> Sequence[Suspension]:
        """Read all suspensions."""
        ...

    async def suspend(self, suspension: Suspension) -> None:
        """Store a suspension; an earlier one of the workspace stays as it is."""
        ...

    async def unsuspend(self, workspace_id: str) -> bool:
        """Remove a suspension. False if there is none."""
        ...

    async def add_note(self, note: SessionNote) -> None:
        """Append a note."""
        ...

    async def notes(self, session_id: str) -> Sequence[SessionNote]:
        """Read the notes on a session, oldest first."""
        ...

    async def refunds(self, session_id: str) -> Sequence[Refund]:
        """Read the refunds of a session, oldest first."""
        ...

    async def unfinished_refunds(self) -> Sequence[Refund]:
        """Read the refunds in state SENT, by nonce."""
        ...

    async def next_refund_nonce(self) -> int:
        """Return the number after the highest stored nonce; 0 if there is none."""
        ...

    async def add_refund(self, refund: Refund, *, charged_micro: int) -> bool:
        """Store a refund. False, and nothing is stored, if all refunds of the session would exceed what was charged.

        Raises:
            NonceTakenError: Another server has stored a refund with this nonce or with this key meanwhile.
        """
        ...

    async def set_refund_state(self, refund: Refund, state: RefundState) -> None:
        """Record the outcome of a refund."""
        ...
