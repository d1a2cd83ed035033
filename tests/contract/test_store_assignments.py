"""The contract of every store for an assignment: the rows of session and operator are written both or neither."""

from typing import Any

import pytest
import trio

from sightline.domain.operator.model import Availability, Claim, Workspace
from sightline.domain.session.model import Assigned, Session, SessionState
from sightline.domain.value import replace
from sightline.ports.relations import TupleUpdate, operator_edge
from sightline.ports.store import (
    Committed,
    RejectedAssignment,
    RejectedWhy,
    SessionWrite,
    ShardLease,
    WorkspaceWrite,
)

from .builders import T0, a_session, a_workspace, an_answer, an_id, in_phase
from .conftest import Stored

Writes = tuple[SessionWrite, WorkspaceWrite]


async def a_pair(stored: Stored) -> tuple[Session, Workspace]:
    """A stored REQUESTED session and a stored operator."""
    session = in_phase(a_session(), SessionState.REQUESTED)
    operator = replace(a_workspace(), id=an_id(), slug=f"operator-{an_id()}", claims={})
    await stored.store.write_session(SessionWrite(lease=stored.lease(), session=session, at_ms=T0, due_at_ms=T0))
    await stored.store.write_workspace(WorkspaceWrite(lease=stored.lease(), workspace=operator, at_ms=T0))
    return replace(session, version=1), replace(operator, version=1)


def assigning(stored: Stored, session: Session, operator: Workspace, **changes: Any) -> Writes:
    """The two writes of an assignment."""
    assigned = in_phase(session, SessionState.ASSIGNED)
    assert isinstance(assigned.phase, Assigned)
    assigned = replace(assigned, phase=replace(assigned.phase, operator=operator.as_operator()))
    edge = TupleUpdate(operator_edge(session.id, operator.id))
    claimed = replace(
        operator,
        claims={session.id: Claim(session_id=session.id, at_ms=T0, is_dispatched=True)},
        availability=Availability.BUSY,
    )
    usual: dict[str, Any] = {
        "lease": stored.lease(),
        "session": assigned,
        "at_ms": T0,
        "due_at_ms": T0,
        "tuples": (edge,),
    }
    return (
        SessionWrite(**{**usual, **changes}),
        WorkspaceWrite(lease=stored.lease(), workspace=claimed, at_ms=T0),
    )


async def rows_of(stored: Stored, session: Session, operator: Workspace) -> tuple[Session, Workspace]:
    found, workspace = await stored.store.load_session(session.id), await stored.store.load_workspace(operator.id)
    assert found is not None
    assert workspace is not None
    return found.session, workspace


async def test_an_assignment_stores_both_rows_the_relation_and_the_answer(stored: Stored) -> None:
    session, operator = await a_pair(stored)
    answer = an_answer()
    writes = assigning(stored, session, operator, idempotency=answer)
    result = await stored.store.write_assignment(*writes)
    assert isinstance(result, Committed)
    assert result.version == 2
    assert result.revision is not None
    assert await rows_of(stored, session, operator) == (
        replace(writes[0].session, version=2),
        replace(writes[1].workspace, version=2),
    )
    edge = operator_edge(session.id, operator.id)
    assert await stored.relations.check(edge.resource, edge.relation, edge.subject)
    recorded = await stored.store.find_idempotent(answer.key)
    assert recorded is not None
    assert recorded.revision == result.revision


async def refused_and_unchanged(stored: Stored, writes: Writes) -> RejectedAssignment:
    """Write an assignment that must be refused; checks that both rows, the relation and the answer are as before."""
    session, workspace = writes[0].session, writes[1].workspace
    before = await rows_of(stored, session, workspace)
    result = await stored.store.write_assignment(*writes)
    assert isinstance(result, RejectedAssignment)
    assert await rows_of(stored, session, workspace) == before
    edge = operator_edge(session.id, workspace.id)
    assert not await stored.relations.check(edge.resource, edge.relation, edge.subject)
    return result


async def test_a_session_that_has_moved_on_takes_no_operator(stored: Stored) -> None:
    session, operator = await a_pair(stored)
    moved = SessionWrite(
        lease=stored.lease(), session=in_phase(session, SessionState.CANCELLED), at_ms=T0, due_at_ms=None
    )
    await stored.store.write_session(moved)
    for changes in ({}, {"idempotency": an_answer()}):
        result = await refused_and_unchanged(stored, assigning(stored, session, operator, **changes))
        assert result == RejectedAssignment(session=RejectedWhy.VERSION)
    assert await stored.store.find_idempotent(an_answer().key) is None


async def test_an_operator_that_has_moved_on_is_not_assigned(stored: Stored) -> None:
    session, operator = await a_pair(stored)
    moved = replace(operator, availability=Availability.OFFLINE)
    await stored.store.write_workspace(WorkspaceWrite(lease=stored.lease(), workspace=moved, at_ms=T0))
    result = await refused_and_unchanged(stored, assigning(stored, session, operator, idempotency=an_answer()))
    assert result == RejectedAssignment(workspace=RejectedWhy.VERSION)
    assert await stored.store.find_idempotent(an_answer().key) is None


@pytest.mark.parametrize("lost", ["session", "workspace"])
async def test_an_assignment_needs_the_shards_of_both_rows(stored: Stored, lost: str) -> None:
    session, operator = await a_pair(stored)
    writes = assigning(stored, session, operator)
    gone = ShardLease(9, stored.epochs[9] - 1)
    writes = (
        (replace(writes[0], lease=gone), writes[1])
        if lost == "session"
        else (writes[0], replace(writes[1], lease=gone))
    )
    assert await refused_and_unchanged(stored, writes) == RejectedAssignment(**{lost: RejectedWhy.FENCED})


async def test_a_repeated_call_is_not_assigned_a_second_time(stored: Stored) -> None:
    (session, operator), (other, second) = await a_pair(stored), await a_pair(stored)
    await stored.store.write_assignment(*assigning(stored, session, operator, idempotency=an_answer()))
    result = await refused_and_unchanged(stored, assigning(stored, other, second, idempotency=an_answer()))
    assert result == RejectedAssignment(session=RejectedWhy.IDEMPOTENT)


async def test_of_concurrent_assignments_a_refused_one_does_not_disturb_the_others(stored: Stored) -> None:
    pairs = [await a_pair(stored) for _ in range(8)]
    stale, _ = pairs[3]
    await stored.store.write_session(
        SessionWrite(lease=stored.lease(), session=in_phase(stale, SessionState.CANCELLED), at_ms=T0, due_at_ms=None)
    )
    results: dict[str, Committed | RejectedAssignment] = {}

    async def assign(number: int) -> None:
        session, operator = pairs[number]
        lease = stored.lease(number * 37 % 256)
        first, second = assigning(stored, session, operator, lease=lease)
        results[session.id] = await stored.store.write_assignment(first, second)

    async with trio.open_nursery() as nursery:
        for number in range(len(pairs)):
            nursery.start_soon(assign, number)
    assert results.pop(stale.id) == RejectedAssignment(session=RejectedWhy.VERSION)
    assert all(isinstance(result, Committed) for result in results.values())
    assert await rows_of(stored, *pairs[3]) == (
        replace(in_phase(stale, SessionState.CANCELLED), version=2),
        pairs[3][1],
    )


async def test_of_assignments_of_one_operator_exactly_one_is_stored(stored: Stored) -> None:
    _, operator = await a_pair(stored)
    sessions = [(await a_pair(stored))[0] for _ in range(6)]
    results: list[Committed | RejectedAssignment] = []

    async def assign(session: Session) -> None:
        results.append(await stored.store.write_assignment(*assigning(stored, session, operator)))

    async with trio.open_nursery() as nursery:
        for session in sessions:
            nursery.start_soon(assign, session)
    assert sum(isinstance(result, Committed) for result in results) == 1
    assert results.count(RejectedAssignment(workspace=RejectedWhy.VERSION)) == 5
