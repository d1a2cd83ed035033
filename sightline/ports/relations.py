"""Port of the authorization graph: relations between objects, with a revision for every write.

Names and shapes are SpiceDB's, so that the embedded graph and SpiceDB are interchangeable. A tuple is written
`resource#relation@subject`, for example `session:3f..#operator_workspace@workspace:9c..`.
"""

from collections.abc import Sequence
from typing import Final, Protocol, final

from sightline.domain.access import Role
from sightline.domain.value import Value


@final
class ObjectRef(Value, order=True):
    """One object of the graph. `id` is a lower-case UUID or wallet address."""

    type: str
    id: str


@final
class RelationTuple(Value, order=True):
    """One edge of the graph."""

    resource: ObjectRef
    relation: str
    subject: ObjectRef


@final
class TupleUpdate(Value):
    """Adds one edge or, with `present` false, removes it. Both are idempotent."""

    edge: RelationTuple
    present: bool = True

    def inverse(self) -> "TupleUpdate":
        """Return the update that undoes this one, if this one changed anything."""
        return TupleUpdate(self.edge, not self.present)


@final
class Staged(Value):
    """Edges to be written together with a caller's row.

    If `in_commit` is not empty, the caller's transaction must write these tuples (`write_tuples`), and its revision
    gives the token (`Relations.token_for`). If it is empty, the edges are already written, `token` is theirs, and
    `undo` removes them if the transaction fails.
    """

    in_commit: tuple[TupleUpdate, ...] = ()
    token: str | None = None
    undo: tuple[TupleUpdate, ...] = ()


class PreconditionFailedError(Exception):
    """An edge that a write requires does not exist; nothing was written."""


class Relations(Protocol):
    """The authorization graph. Every method raises AuthzUnavailableError when the graph does not answer.

    A write is applied completely or not at all.
    """

    @property
    def is_external(self) -> bool:
        """Whether the graph is kept outside of the store, so that `stage` writes before the caller's transaction."""
        ...

    async def write(self, updates: Sequence[TupleUpdate], *, requires: Sequence[RelationTuple] = ()) -> str:
        """Apply all updates atomically and return the consistency token of the result.

        Args:
            updates: At least one; no edge twice.
            requires: Edges that must exist when the updates are written; writes with `requires` on one
                resource are serialized.

        Raises:
            PreconditionFailedError: An edge of `requires` does not exist.
            OutcomeUnknownError: The answer was lost.
        """
        ...

    async def stage(self, updates: Sequence[TupleUpdate]) -> Staged:
        """Prepare updates for a caller that is about to commit the row they belong to."""
        ...

    async def check(
        self, resource: ObjectRef, relation: str, subject: ObjectRef, *, at_least: str | None = None
    ) -> bool:
        """Return whether the edge exists, at least as fresh as the token.

        Without a token, or with one that is foreign or malformed, the answer is fully consistent.
        """
        ...

    async def read(
        self,
        *,
        resource_type: str,
        resource_id: str | None = None,
        subject: ObjectRef | None = None,
        at_least: str | None = None,
    ) -> tuple[RelationTuple, ...]:
        """List the edges of a resource, of a subject among resources of a type, or between both, in ascending order."""
        ...

    def token_for(self, revision: int) -> str:
        """Make the consistency token of a revision that `write_tuples` returned."""
        ...


WORKSPACE: Final = "workspace"
SESSION: Final = "session"
WALLET: Final = "wallet"
CONSUMER_WORKSPACE: Final = "consumer_workspace"
OPERATOR_WORKSPACE: Final = "operator_workspace"
RELATION_OF_ROLE: Final = {Role.OWNER: "owner", Role.ADMIN: "admin", Role.VIEWER: "viewer"}
ROLE_OF_RELATION: Final = {relation: role for role, relation in RELATION_OF_ROLE.items()}
"""Ordered by permissions, like Role."""


def workspace_ref(workspace_id: str) -> ObjectRef:
    """Return the graph's reference to a workspace."""
    return ObjectRef(WORKSPACE, workspace_id)


def session_ref(session_id: str) -> ObjectRef:
    """Return the graph's reference to a session."""
    return ObjectRef(SESSION, session_id)


def wallet_ref(address: str) -> ObjectRef:
    """Return the graph's reference to a wallet; the address may be in any case."""
    return ObjectRef(WALLET, address.lower())


def member_edge(workspace_id: str, address: str, role: Role) -> RelationTuple:
    """Return the edge that makes a wallet a member of a workspace."""
    return RelationTuple(workspace_ref(workspace_id), RELATION_OF_ROLE[role], wallet_ref(address))


def consumer_edge(session_id: str, workspace_id: str) -> RelationTuple:
    """Return the edge that makes a workspace the consumer of a session."""
    return RelationTuple(session_ref(session_id), CONSUMER_WORKSPACE, workspace_ref(workspace_id))


def operator_edge(session_id: str, workspace_id: str) -> RelationTuple:
    """Return the edge that makes a workspace the operator of a session."""
    return RelationTuple(session_ref(session_id), OPERATOR_WORKSPACE, workspace_ref(workspace_id))
