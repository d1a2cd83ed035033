"""The contract of every store for writes: versions, fencing, idempotency, quotes, holds, relations in one commit."""

from typing import Any

import pytest
import trio

from sightline.domain.access import KeyLimits, Role
from sightline.domain.operator.model import Workspace
from sightline.domain.session.machine import deadline_ms
from sightline.domain.session.messages import Event, EventKind
from sightline.domain.session.model import Ended, Live, Session, SessionState
from sightline.domain.units import DAY_MS, MicroUsdc
from sightline.domain.value import replace
from sightline.ports.leases import ServerRole
from sightline.ports.ledger import BlockApplication, BlockRef, SettlementState
from sightline.ports.relations import TupleUpdate, member_edge, operator_edge, session_ref, wallet_ref, workspace_ref
from sightline.ports.store import (
    Committed,
    HoldRequest,
    KeySpending,
    Rejected,
    RejectedWhy,
    SessionWrite,
    ShardLease,
    WorkspaceWrite,
)
from sightline.system.keccak import session_id_hash
from tests.shards import take_every_shard

from .builders import (
    PAYER,
    T0,
    a_heartbeat,
    a_quote,
    a_session,
    a_settlement,
    a_workspace,
    an_answer,
    an_id,
    an_operator,
    in_phase,
    record,
    recorded,
)
from .conftest import Stored


def a_write(stored: Stored, session: Session, **changes: Any) -> SessionWrite:
    due_at_ms = T0 + 300_000 if isinstance(session.phase, Live) else deadline_ms(session)
    usual: dict[str, Any] = {"lease": stored.lease(), "session": session, "at_ms": T0, "due_at_ms": due_at_ms}
    return SessionWrite(**{**usual, **changes})


async def commit(stored: Stored, session: Session, **changes: Any) -> Session:
    """Commit a session without a conflict and return the stored session."""
    result = await stored.store.write_session(a_write(stored, session, **changes))
    assert isinstance(result, Committed)
    return replace(session, version=result.version)


async def commit_workspace(stored: Stored, workspace: Workspace, **changes: Any) -> Workspace:
    usual: dict[str, Any] = {"lease": stored.lease(), "workspace": workspace, "at_ms": T0}
    result = await stored.store.write_workspace(WorkspaceWrite(**{**usual, **changes}))
    assert isinstance(result, Committed)
    return replace(workspace, version=result.version)


async def load(stored: Stored, session_id: str) -> Session | None:
    found = await stored.store.load_session(session_id)
    return found.session if found is not None else None


@pytest.mark.parametrize("state", list(SessionState))
async def test_a_session_comes_back_as_it_was_written_in_every_state(stored: Stored, state: SessionState) -> None:
    session = await commit(stored, in_phase(a_session(), state))
    assert session.version == 1
    assert await load(stored, session.id) == session


async def test_an_unknown_session_is_none(stored: Stored) -> None:
    assert await stored.store.load_session(an_id()) is None


async def test_each_write_raises_the_version_by_one(stored: Stored) -> None:
    session = a_session()
    for version in range(1, 5):
        session = await commit(stored, session)
        assert session.version == version


async def test_a_write_from_an_old_version_is_rejected_and_changes_nothing(stored: Stored) -> None:
    first = await commit(stored, a_session())
    second = await commit(stored, in_phase(first, SessionState.ASSIGNED))
    late = in_phase(first, SessionState.CANCELLED)
    assert await stored.store.write_session(a_write(stored, late)) == Rejected(RejectedWhy.VERSION)
    assert await load(stored, first.id) == second


async def test_a_session_is_inserted_once(stored: Stored) -> None:
    session = a_session()
    await commit(stored, session)
    assert await stored.store.write_session(a_write(stored, session)) == Rejected(RejectedWhy.VERSION)


async def test_a_session_that_does_not_exist_is_not_updated(stored: Stored) -> None:
    ghost = replace(a_session(), version=3)
    assert await stored.store.write_session(a_write(stored, ghost)) == Rejected(RejectedWhy.VERSION)
    assert await load(stored, ghost.id) is None


async def test_of_writers_of_one_version_exactly_one_commits(stored: Stored) -> None:
    session = await commit(stored, a_session())
    results: list[Committed | Rejected] = []

    async def one_writer(state: SessionState) -> None:
        results.append(await stored.store.write_session(a_write(stored, in_phase(session, state))))

    async with trio.open_nursery() as nursery:
        for state in [SessionState.ASSIGNED, SessionState.CANCELLED] * 4:
            nursery.start_soon(one_writer, state)
    assert results.count(Rejected(RejectedWhy.VERSION)) == 7
    assert sum(isinstance(result, Committed) for result in results) == 1


async def test_taking_the_shards_raises_every_epoch_by_one(stored: Stored) -> None:
    again = await take_every_shard(stored.store, "test", "two")
    assert again == {shard: epoch + 1 for shard, epoch in stored.epochs.items()}
    assert sorted(again) == [*range(256), *sorted(ServerRole)]


async def test_a_write_at_a_lost_epoch_is_fenced_and_changes_nothing(stored: Stored) -> None:
    session = await commit(stored, a_session())
    await take_every_shard(stored.store, "other", "two")
    fenced = Rejected(RejectedWhy.FENCED)
    assert await stored.store.write_session(a_write(stored, in_phase(session, SessionState.CANCELLED))) == fenced
    assert await stored.store.write_session(a_write(stored, a_session(), idempotency=an_answer())) == fenced
    workspace = WorkspaceWrite(lease=stored.lease(), workspace=a_workspace(), at_ms=T0)
    assert await stored.store.write_workspace(workspace) == fenced
    assert await load(stored, session.id) == session
    assert await stored.store.find_idempotent(an_answer().key) is None


async def test_an_epoch_of_the_future_is_fenced_too(stored: Stored) -> None:
    ahead = ShardLease(7, stored.epochs[7] + 1)
    assert await stored.store.write_session(a_write(stored, a_session(), lease=ahead)) == Rejected(RejectedWhy.FENCED)


async def test_events_are_recorded_with_their_step_in_order(stored: Stored) -> None:
    session, created = recorded(a_session())
    session = await commit(stored, session, events=created)
    more = (Event(EventKind.PAUSED, T0 + 5, (("reason", "MEDIA_LOST"),)), Event(EventKind.RESUMED, T0 + 9))
    session, later = recorded(session, *more)
    await commit(stored, session, events=later)
    events = [*created, *later]
    assert list(await stored.store.session_events(session.id)) == events
    assert list(await stored.store.session_events(session.id, after=1)) == events[1:]
    assert list(await stored.store.session_events(session.id, after=1, limit=1)) == events[1:2]
    assert list(await stored.store.session_events(session.id, after=len(events))) == []


async def test_a_rejected_step_records_no_event(stored: Stored) -> None:
    session, created = recorded(a_session())
    await commit(stored, session, events=created)
    assert isinstance(await stored.store.write_session(a_write(stored, session, events=created)), Rejected)
    assert len(await stored.store.session_events(session.id)) == 1


# Idempotent answers, stored in the commit of their effect.


async def test_an_answer_is_kept_with_the_step_and_found_whatever_the_body(stored: Stored) -> None:
    answer = an_answer()
    await commit(stored, a_session(), idempotency=answer)
    asked = replace(answer.key, body_hash="another")
    assert await stored.store.find_idempotent(asked) == answer
    assert await stored.store.find_idempotent(replace(answer.key, key="k-2")) is None
    assert await stored.store.find_idempotent(replace(answer.key, method="DELETE")) is None
    assert await stored.store.find_idempotent(replace(answer.key, path="/other")) is None
    assert await stored.store.find_idempotent(replace(answer.key, workspace_id="v")) is None


async def test_a_step_whose_call_was_answered_is_rejected_and_changes_nothing(stored: Stored) -> None:
    session = await commit(stored, a_session(), idempotency=an_answer())
    again = a_write(stored, in_phase(session, SessionState.CANCELLED), idempotency=an_answer(body="other"))
    assert await stored.store.write_session(again) == Rejected(RejectedWhy.IDEMPOTENT)
    assert await load(stored, session.id) == session


async def test_a_rejected_step_keeps_no_answer(stored: Stored) -> None:
    session = await commit(stored, a_session())
    late = a_write(stored, replace(session, version=5), idempotency=an_answer())
    assert await stored.store.write_session(late) == Rejected(RejectedWhy.VERSION)
    assert await stored.store.find_idempotent(an_answer().key) is None


async def test_of_two_calls_with_one_key_exactly_one_has_its_effect(stored: Stored) -> None:
    results: list[Committed | Rejected] = []

    async def one_call() -> None:
        write = a_write(stored, a_session(), idempotency=an_answer())
        results.append(await stored.store.write_session(write))

    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(one_call)
    assert results.count(Rejected(RejectedWhy.IDEMPOTENT)) == 5


async def test_an_answer_of_an_effect_elsewhere_is_recorded_once(stored: Stored) -> None:
    assert await stored.store.record_idempotent(an_answer())
    assert not await stored.store.record_idempotent(an_answer(body="other"))
    assert await stored.store.find_idempotent(an_answer().key) == an_answer()


async def test_an_answer_that_was_recorded_with_heartbeats_stays_as_it_was(stored: Stored) -> None:
    lease, workspace_id = stored.lease(), an_id()
    await record(stored.store, a_heartbeat(workspace_id, 1), lease=lease, answers=[an_answer("a"), an_answer("b")])
    assert await stored.store.find_idempotent(an_answer("a").key) == an_answer("a")
    assert await stored.store.find_idempotent(an_answer("b").key) == an_answer("b")
    await record(stored.store, a_heartbeat(workspace_id, 2), lease=lease, answers=[an_answer("a", body="other")])
    assert await stored.store.find_idempotent(an_answer("a").key) == an_answer("a")


# Quotes.


async def test_a_quote_comes_back_and_is_consumed_with_the_session(stored: Stored) -> None:
    quote, session = a_quote(), a_session()
    await stored.store.insert_quote(quote)
    await stored.store.insert_quote(quote)
    assert await stored.store.load_quote(quote.id) == quote
    await commit(stored, session, consume_quote=quote.id)
    assert await stored.store.load_quote(quote.id) == replace(quote, consumed_by=session.id)
    assert await stored.store.load_quote(an_id()) is None


@pytest.mark.parametrize("answered", [True, False])
async def test_a_quote_is_consumed_once(stored: Stored, *, answered: bool) -> None:
    quote = a_quote()
    await stored.store.insert_quote(quote)
    await commit(stored, a_session(), consume_quote=quote.id)
    second = a_session()
    write = a_write(stored, second, consume_quote=quote.id, idempotency=an_answer() if answered else None)
    assert await stored.store.write_session(write) == Rejected(RejectedWhy.QUOTE_CONSUMED)
    assert await load(stored, second.id) is None
    assert await stored.store.find_idempotent(an_answer().key) is None


# Holds and relations in the same commit.


async def followed(stored: Stored) -> str:
    """Create a workspace whose wallet is the payer's."""
    return (await commit_workspace(stored, a_workspace(wallet_address=PAYER))).id


async def held(stored: Stored, workspace_id: str) -> int:
    wallet = await stored.ledger.wallet(workspace_id)
    assert wallet is not None
    return wallet.held_micro


async def test_a_hold_is_taken_charged_and_settled_with_the_session(stored: Stored) -> None:
    payer = await followed(stored)
    hold = HoldRequest(payer_address=PAYER, amount=MicroUsdc(750_000), is_enforced=False)
    session = await commit(stored, a_session(), take_hold=hold)
    assert await held(stored, payer) == 750_000
    ended = in_phase(session, SessionState.ENDED)
    assert isinstance(ended.phase, Ended)
    await commit(stored, ended, charge_hold=ended.phase.charged, settle=a_settlement(ended), due_at_ms=None)
    assert await held(stored, payer) == ended.phase.charged
    settlement = await stored.ledger.settlement(session.id)
    assert settlement is not None
    assert (settlement.state, settlement.payload) == (SettlementState.COMPOSED, a_settlement(ended))


async def test_a_hold_is_released_with_the_cancellation(stored: Stored) -> None:
    payer = await followed(stored)
    hold = HoldRequest(payer_address=PAYER, amount=MicroUsdc(9), is_enforced=False)
    session = await commit(stored, a_session(), take_hold=hold)
    await commit(stored, in_phase(session, SessionState.CANCELLED), release_hold=True, due_at_ms=None)
    assert await held(stored, payer) == 0


async def test_an_enforced_hold_that_is_not_covered_leaves_nothing_of_the_step(stored: Stored) -> None:
    payer, quote, session = await followed(stored), a_quote(), a_session()
    await stored.store.insert_quote(quote)
    write = a_write(
        stored,
        session,
        take_hold=HoldRequest(payer_address=PAYER, amount=MicroUsdc(1), is_enforced=True),
        consume_quote=quote.id,
        idempotency=an_answer(),
    )
    assert await stored.store.write_session(write) == Rejected(RejectedWhy.FUNDS)
    assert await load(stored, session.id) is None
    assert await stored.store.load_quote(quote.id) == quote
    assert await stored.store.find_idempotent(an_answer().key) is None
    assert await held(stored, payer) == 0


async def test_relations_are_written_with_the_step_and_their_revision_is_answered(stored: Stored) -> None:
    session, operator = await commit(stored, a_session()), an_operator()
    edge = operator_edge(session.id, operator.workspace_id)
    write = a_write(
        stored,
        in_phase(session, SessionState.ASSIGNED, operator),
        tuples=(TupleUpdate(edge),),
        idempotency=an_answer(),
    )
    result = await stored.store.write_session(write)
    assert isinstance(result, Committed)
    assert result.revision is not None
    assert await stored.relations.check(session_ref(session.id), edge.relation, workspace_ref(operator.workspace_id))
    answer = await stored.store.find_idempotent(an_answer().key)
    assert answer is not None
    assert answer.revision == result.revision


async def test_a_rejected_step_writes_no_relation_and_takes_no_hold(stored: Stored) -> None:
    payer, session = await followed(stored), await commit(stored, a_session())
    edge = operator_edge(session.id, an_id())
    late = a_write(
        stored,
        replace(session, version=0),
        tuples=(TupleUpdate(edge),),
        take_hold=HoldRequest(payer_address=PAYER, amount=MicroUsdc(5), is_enforced=False),
    )
    assert await stored.store.write_session(late) == Rejected(RejectedWhy.VERSION)
    assert not await stored.relations.check(edge.resource, edge.relation, edge.subject)
    assert await held(stored, payer) == 0


# Workspaces.


async def test_a_workspace_comes_back_as_it_was_written(stored: Stored) -> None:
    workspace = await commit_workspace(stored, a_workspace())
    assert await stored.store.load_workspace(workspace.id) == workspace
    renamed = await commit_workspace(stored, replace(workspace, name="Other"), idempotency=an_answer())
    assert renamed.version == 2
    assert await stored.store.load_workspace(workspace.id) == renamed
    assert await stored.store.load_workspace(an_id()) is None


async def test_a_slug_is_taken_once(stored: Stored) -> None:
    await commit_workspace(stored, a_workspace(slug="harbour"))
    second = a_workspace(slug="harbour")
    edge = member_edge(second.id, PAYER, Role.OWNER)
    write = WorkspaceWrite(
        lease=stored.lease(), workspace=second, at_ms=T0, tuples=(TupleUpdate(edge),), idempotency=an_answer()
    )
    assert await stored.store.write_workspace(write) == Rejected(RejectedWhy.SLUG_TAKEN)
    assert await stored.store.load_workspace(second.id) is None
    assert await stored.store.find_idempotent(an_answer().key) is None
    assert not await stored.relations.check(workspace_ref(second.id), edge.relation, wallet_ref(PAYER))


async def test_a_workspace_written_from_an_old_version_is_rejected(stored: Stored) -> None:
    workspace = await commit_workspace(stored, a_workspace())
    await commit_workspace(stored, workspace)
    for version in (0, 1, 3):
        write = WorkspaceWrite(lease=stored.lease(), workspace=replace(workspace, version=version), at_ms=T0)
        assert await stored.store.write_workspace(write) == Rejected(RejectedWhy.VERSION)


async def test_a_heartbeat_sent_again_with_a_later_instant_stays_as_it_was_first_recorded(stored: Stored) -> None:
    workspace_id = an_id()
    first = a_heartbeat(workspace_id, 1, T0)
    await stored.record(first)
    await stored.record(a_heartbeat(workspace_id, 1, T0 + 5_000))
    assert await stored.store.latest_heartbeat(workspace_id) == first


# Limits of API keys.

KEY = "99999999-9999-4999-8999-999999999999"


def a_limited_write(stored: Stored, amount: int, limits: KeyLimits, key: str = KEY, at_ms: int = T0) -> SessionWrite:
    hold = HoldRequest(
        payer_address=PAYER, amount=MicroUsdc(amount), is_enforced=False, spending=KeySpending(key, limits)
    )
    return replace(a_write(stored, a_session(), take_hold=hold), at_ms=at_ms)


def limits(per_session: int | None = None, per_day: int | None = None) -> KeyLimits:
    return KeyLimits(
        per_session=None if per_session is None else MicroUsdc(per_session),
        per_day=None if per_day is None else MicroUsdc(per_day),
    )


async def test_a_hold_above_the_limit_of_its_key_is_rejected_and_nothing_is_written(stored: Stored) -> None:
    write = a_limited_write(stored, 101, limits(per_session=100, per_day=1_000))
    assert await stored.store.write_session(write) == Rejected(RejectedWhy.KEY_LIMIT, MicroUsdc(100))
    assert await stored.store.load_session(write.session.id) is None
    assert isinstance(
        await stored.store.write_session(a_limited_write(stored, 100, limits(per_session=100))), Committed
    )


async def test_the_day_of_a_key_counts_charges_that_are_settled(stored: Stored) -> None:
    daily = limits(per_day=100)
    write = a_limited_write(stored, 60, daily)
    assert isinstance(await stored.store.write_session(write), Committed)
    await stored.ledger.charge_hold(write.session.id, 30)
    head = BlockRef(number=1, block_hash="0xb1", parent_hash="0xb0")
    settled = ((session_id_hash(write.session.id), head.number),)
    application = BlockApplication(
        headers=(head,), events=(), readings=(), settled=settled, head=head, confirmed_block=1, previous=None
    )
    await stored.ledger.apply_blocks(application, now_ms=T0)
    assert await stored.ledger.spent_by_key(KEY, now_ms=T0) == 30
    over = await stored.store.write_session(a_limited_write(stored, 71, daily))
    assert over == Rejected(RejectedWhy.KEY_LIMIT, MicroUsdc(70))


async def test_the_day_of_a_key_counts_holds_until_they_are_charged_or_released(stored: Stored) -> None:
    daily = limits(per_day=100)

    async def write(amount: int, **other: Any) -> str | Rejected:
        made = a_limited_write(stored, amount, daily, **other)
        result = await stored.store.write_session(made)
        return made.session.id if isinstance(result, Committed) else result

    first, second = await write(60), await write(40)
    assert await write(1) == Rejected(RejectedWhy.KEY_LIMIT, MicroUsdc(0))
    assert isinstance(first, str)
    assert isinstance(second, str)
    await stored.ledger.charge_hold(first, 10)
    assert await write(51) == Rejected(RejectedWhy.KEY_LIMIT, MicroUsdc(50))
    assert await stored.ledger.spent_by_key(KEY, now_ms=T0) == 50
    await stored.ledger.release_hold(second)
    assert await stored.ledger.spent_by_key(KEY, now_ms=T0) == 10
    assert await stored.ledger.spent_by_key(KEY, now_ms=T0 + DAY_MS) == 0
    assert isinstance(await write(90), str)
    assert await write(1) == Rejected(RejectedWhy.KEY_LIMIT, MicroUsdc(0))
    assert isinstance(await write(100, key="88888888-8888-4888-8888-888888888888"), str)
    assert isinstance(await write(100, at_ms=T0 + DAY_MS), str)
