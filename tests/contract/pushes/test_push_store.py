"""The contract of every store of Web Push, tested on memory and on Postgres."""

from dataclasses import dataclass

import pytest

from sightline.domain.session.messages import Event, EventKind
from sightline.domain.session.model import Session, SessionState
from sightline.domain.value import replace
from sightline.ports.store import Committed, SessionWrite
from sightline.ports.webhooks import PUSH_LIFE_MS, PUSHES_AT_ONCE_MAX, PushStore, PushSubscription
from sightline.storage.postgres.webhooks.pushes import PostgresPushes
from simulation.memory.store import MemoryStore
from tests.contract.builders import PAYEE, T0, a_session, an_id, an_operator, in_phase, recorded
from tests.contract.conftest import Stored


@dataclass
class Pushes:
    """A store of pushes, and the store whose writes queue them."""

    stored: Stored
    store: PushStore

    async def subscription(self, workspace_id: str, **changes: object) -> PushSubscription:
        made = await self.store.add_subscription(a_subscription(workspace_id, **changes), limit=20)
        assert made is not None
        return made

    async def put(self, session: Session, kind: EventKind) -> Session:
        """Write a session with an event."""
        chained, events = recorded(session, Event(kind, T0, ()))
        write = SessionWrite(lease=self.stored.lease(), session=chained, events=events, at_ms=T0, due_at_ms=None)
        result = await self.stored.store.write_session(write)
        assert isinstance(result, Committed)
        return replace(chained, version=result.version)

    async def assigned(self, workspace_id: str) -> Session:
        """A session that was just assigned to a workspace."""
        requested = await self.put(a_session(id=an_id()), EventKind.CREATED)
        return await self.put(in_phase(requested, SessionState.ASSIGNED, an_operator(workspace_id)), EventKind.ASSIGNED)


@pytest.fixture
async def pushes(stored: Stored) -> Pushes:
    if stored.database is not None:
        return Pushes(stored, PostgresPushes(stored.database))
    assert isinstance(stored.store, MemoryStore)
    return Pushes(stored, stored.store.pushes)


def a_subscription(workspace_id: str, **changes: object) -> PushSubscription:
    made = PushSubscription(
        id=an_id(),
        workspace_id=workspace_id,
        endpoint=f"https://push.example.com/{an_id()}",
        p256dh=b"p" * 65,
        auth=b"a" * 16,
        key_id=None,
        wallet=PAYEE,
        renewed_at_ms=T0,
    )
    return replace(made, **changes)  # type: ignore[arg-type]  # fields by name


async def test_a_browser_that_subscribes_again_keeps_its_id_and_gets_its_new_keys(pushes: Pushes) -> None:
    mine = an_id()
    first = await pushes.subscription(mine)
    key_id = an_id()
    renewed = a_subscription(
        mine, endpoint=first.endpoint, auth=b"b" * 16, wallet=None, key_id=key_id, renewed_at_ms=T0 + 1
    )
    assert await pushes.store.add_subscription(renewed, limit=1) == replace(renewed, id=first.id)
    assert list(await pushes.store.subscriptions(mine)) == [replace(renewed, id=first.id)]


async def test_a_workspace_has_a_limit_that_others_do_not_use_up(pushes: Pushes) -> None:
    mine, other = an_id(), an_id()
    await pushes.subscription(other)
    assert await pushes.store.add_subscription(a_subscription(mine), limit=1) is not None
    assert await pushes.store.add_subscription(a_subscription(mine), limit=1) is None
    assert len(await pushes.store.subscriptions(mine)) == 1


async def test_only_its_workspace_removes_a_subscription(pushes: Pushes) -> None:
    mine = an_id()
    made = await pushes.subscription(mine)
    assert await pushes.store.remove_subscription(an_id(), made.id) is None
    assert await pushes.store.remove_subscription(mine, made.id) == made
    assert await pushes.store.remove_subscription(mine, made.id) is None
    assert list(await pushes.store.subscriptions(mine)) == []


async def test_an_assignment_is_told_to_every_browser_of_its_operator_once(pushes: Pushes) -> None:
    mine, other = an_id(), an_id()
    browsers = [await pushes.subscription(mine) for _ in range(2)]
    await pushes.subscription(other)
    session = await pushes.assigned(mine)
    jobs = await pushes.store.claim_pushes(limit=10)
    assert {job.subscription.id for job in jobs} == {each.id for each in browsers}
    assert {(job.session.id, job.session.terms.lat, job.attempts) for job in jobs} == {
        (session.id, session.terms.lat, 0)
    }
    assert all(0 < job.left_ms <= PUSH_LIFE_MS for job in jobs)
    assert await pushes.store.claim_pushes(limit=10) == [], "a claimed push belongs to its claimer"
    for job in jobs:
        await pushes.store.finish_push(job)
    assert await pushes.store.claim_pushes(limit=10) == []


async def test_a_push_that_failed_is_due_again_and_its_old_claim_changes_nothing(pushes: Pushes) -> None:
    mine = an_id()
    await pushes.subscription(mine)
    await pushes.assigned(mine)
    (job,) = await pushes.store.claim_pushes(limit=10)
    await pushes.store.retry_push(job, after_ms=0)
    await pushes.store.finish_push(job)
    (again,) = await pushes.store.claim_pushes(limit=10)
    assert (again.attempts, again.session.id) == (1, job.session.id)
    await pushes.store.retry_push(again, after_ms=60_000)
    assert await pushes.store.claim_pushes(limit=10) == []


@pytest.mark.parametrize("state", [SessionState.REQUESTED, SessionState.LIVE, SessionState.CANCELLED])
async def test_a_job_that_is_no_longer_offered_is_not_told(pushes: Pushes, state: SessionState) -> None:
    mine = an_id()
    await pushes.subscription(mine)
    session = await pushes.assigned(mine)
    kind = {SessionState.REQUESTED: EventKind.REOPENED, SessionState.LIVE: EventKind.STARTED}
    requested = a_session(id=session.id).phase
    changed = (
        replace(session, phase=requested)
        if state is SessionState.REQUESTED
        else in_phase(session, state, an_operator(mine))
    )
    await pushes.put(changed, kind.get(state, EventKind.CANCELLED))
    assert await pushes.store.claim_pushes(limit=10) == []


async def test_a_removed_browser_is_told_nothing_that_waited(pushes: Pushes) -> None:
    mine = an_id()
    made = await pushes.subscription(mine)
    await pushes.assigned(mine)
    await pushes.store.remove_subscription(mine, made.id)
    assert await pushes.store.claim_pushes(limit=10) == []


async def test_a_workspace_has_eight_pushes_in_flight_at_most_and_another_is_not_behind_it(pushes: Pushes) -> None:
    many, few = an_id(), an_id()
    for _ in range(PUSHES_AT_ONCE_MAX + 2):
        await pushes.subscription(many)
    await pushes.subscription(few)
    await pushes.assigned(many)
    await pushes.assigned(few)
    jobs = await pushes.store.claim_pushes(limit=100)
    counts = [sum(job.subscription.workspace_id == each for job in jobs) for each in (many, few)]
    assert counts == [PUSHES_AT_ONCE_MAX, 1]
    assert await pushes.store.claim_pushes(limit=100) == []
    await pushes.store.finish_push(next(job for job in jobs if job.subscription.workspace_id == many))
    assert len(await pushes.store.claim_pushes(limit=100)) == 1
