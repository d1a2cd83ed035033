"""The authorization graph as a need: who relates to what, with a revision for every write.

Names and shapes are SpiceDB's, so that an embedded graph and SpiceDB are exchangeable: a tuple reads
`resource#relation@subject`, for example `session:3f..#operator_workspace@workspace:9c..`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, final

from sightline.domain.access import Role


@final
@dataclass(frozen=True, slots=True, order=True)
class ObjectRef:
    """One object of the graph. `id` is a lower-case UUID or wallet address."""

    type: str
    id: str


@final
@dataclass(frozen=True, slots=True, order=True)
class RelationTuple:
    """One edge of the graph."""

    resource: ObjectRef
    relation: str
    subject: ObjectRef


@final
@dataclass(frozen=True, slots=True)
class TupleUpdate:
    """Puts one edge (idempotent) or, with `present` false, takes it away (idempotent too)."""

    edge: RelationTuple
    present: bool = True

    def inverse(self) -> "TupleUpdate":
        """The update that undoes this one, if this one changed anything."""
        return TupleUpdate(self.edge, not self.present)


@final
@dataclass(frozen=True, slots=True)
class Staged:
    """Edges on their way into the graph with somebody's transaction.

    `in_commit` must be written by that transaction (`write_tuples`), whose revision gives the token
    (`Relations.token_for`). Where it is empty the edges stand already, `token` is theirs, and `undo` takes
    them back if the transaction fails.
    """

    in_commit: tuple[TupleUpdate, ...] = ()
    token: str | None = None
    undo: tuple[TupleUpdate, ...] = ()


class PreconditionFailedError(Exception):
    """An edge that a write relied on is not there (any more); nothing was written."""


class Relations(Protocol):
    """The graph. Every method raises AuthzUnavailableError when it does not answer.

    Nothing is half written then.
    """

    async def write(self, updates: Sequence[TupleUpdate], *, requires: Sequence[RelationTuple] = ()) -> str:
        """Apply all updates at once and return the consistency token of the result.

        Args:
            updates: At least one, no edge twice.
            requires: Edges that must stand at the moment of writing; writers with `requires` on one
                resource are serialized.

        Raises:
            PreconditionFailedError: One of `requires` does not stand.
            OutcomeUnknownError: The answer was lost.
        """
        ...

    async def stage(self, updates: Sequence[TupleUpdate]) -> Staged:
        """Bring updates under way for a caller who is about to commit a row they belong to."""
        ...

    async def check(
        self, resource: ObjectRef, relation: str, subject: ObjectRef, *, at_least: str | None = None
    ) -> bool:
        """Tell whether the edge stands, at least as fresh as the token.

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
"""In order of power, as Role is."""


def workspace_ref(workspace_id: str) -> ObjectRef:
    """The graph's name of a workspace."""
    return ObjectRef(WORKSPACE, workspace_id)


def session_ref(session_id: str) -> ObjectRef:
    """The graph's name of a session."""
    return ObjectRef(SESSION, session_id)


def wallet_ref(address: str) -> ObjectRef:
    """The graph's name of a wallet, whatever case its address came in."""
    return ObjectRef(WALLET, address.lower())


def member_edge(workspace_id: str, address: str, role: Role) -> RelationTuple:
    """The edge that makes a wallet a member of a workspace."""
    return RelationTuple(workspace_ref(workspace_id), RELATION_OF_ROLE[role], wallet_ref(address))


def consumer_edge(session_id: str, workspace_id: str) -> RelationTuple:
    """The edge that makes a workspace the consumer of a session."""
    return RelationTuple(session_ref(session_id), CONSUMER_WORKSPACE, workspace_ref(workspace_id))


def operator_edge(session_id: str, workspace_id: str) -> RelationTuple:
    """The edge that makes a workspace the operator of a session."""
    return RelationTuple(session_ref(session_id), OPERATOR_WORKSPACE, workspace_ref(workspace_id))
