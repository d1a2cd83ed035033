"""The contract of every store for reads: pages, recovery, heartbeats, media, demand."""

import asyncio
from typing import Any

import asyncpg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.domain.geofence import distance_m
from sightline.domain.operator.model import Availability, Claim, WorkspaceRole
from sightline.domain.session.model import (
    Assigned,
    Closed,
    Delivery,
    EndReason,
    MediaCheckpoint,
    Session,
    SessionState,
)
from sightline.domain.units import DAY_MS
from sightline.domain.value import replace
from sightline.ports.store import (
    ConsumerDispatches,
    HeartbeatWrite,
    SessionKey,
    SessionQuery,
    SessionView,
    ShardLease,
    UnfinishedSession,
)
from tests.shards import take_every_shard

from .builders import T0, a_heartbeat, a_session, a_workspace, an_answer, an_id, an_operator, in_phase
from .conftest import Stored
from .test_store_writes import commit, commit_workspace

ME = "11111111-1111-4111-8111-111111111111"
OTHER = "22222222-2222-4222-8222-222222222222"


def a_query(**changes: Any) -> SessionQuery:
    usual: dict[str, Any] = {"workspace_id": ME, "view": SessionView.PARTY, "now_ms": T0, "limit": 100}
    return SessionQuery(**{**usual, **changes})


async def listed(stored: Stored, **changes: Any) -> list[str]:
    return [session.id for session in await stored.store.list_sessions(a_query(**changes))]


def newest_first(*sessions: Session) -> list[str]:
    ordered = sorted(sessions, key=lambda each: (each.terms.created_at_ms, each.id), reverse=True)
    return [each.id for each in ordered]


async def test_each_view_lists_its_side_newest_first(stored: Stored) -> None:
    mine = [await commit(stored, a_session(consumer_workspace_id=ME, created_at_ms=T0 + n)) for n in range(3)]
    filmed = [
        await commit(stored, in_phase(a_session(created_at_ms=T0 + n), SessionState.ASSIGNED, an_operator(ME)))
        for n in range(3)
    ]
    both = await commit(stored, in_phase(a_session(consumer_workspace_id=ME), SessionState.LIVE, an_operator(ME)))
    await commit(stored, in_phase(a_session(), SessionState.LIVE))
    assert await listed(stored, view=SessionView.CONSUMER) == newest_first(*mine, both)
    assert await listed(stored, view=SessionView.OPERATOR) == newest_first(*filmed, both)
    for everything in (SessionView.PARTY, None):
        assert await listed(stored, view=everything) == newest_first(*mine, *filmed, both)


async def test_heartbeats_of_a_lost_shard_are_refused_and_those_of_other_shards_are_recorded(stored: Stored) -> None:
    lost = stored.lease(7)
    epochs = await take_every_shard(stored.store, "another", "two")
    held = ShardLease(9, epochs[9])
    batch = [
        HeartbeatWrite(lost, (a_heartbeat(ME, 1, T0),), (an_answer("lost"),)),
        HeartbeatWrite(held, (a_heartbeat(OTHER, 1, T0), a_heartbeat(OTHER, 2, T0)), (an_answer("held"),)),
    ]
    assert await stored.store.append_heartbeats(batch) == {lost}
    assert await stored.store.latest_heartbeat(ME) is None
    assert await stored.store.latest_heartbeat(OTHER) == a_heartbeat(OTHER, 2, T0)
    assert await stored.store.find_idempotent(an_answer("lost").key) is None
    assert await stored.store.find_idempotent(an_answer("held").key) == an_answer("held")


async def test_heartbeats_under_an_old_and_the_current_lease_of_one_shard_are_told_apart(stored: Stored) -> None:
    old = stored.lease(7)
    epochs = await take_every_shard(stored.store, "test", "one")
    current = ShardLease(7, epochs[7])
    batch = [
        HeartbeatWrite(old, (a_heartbeat(ME, 1, T0),)),
        HeartbeatWrite(current, (a_heartbeat(OTHER, 1, T0),)),
    ]
    assert await stored.store.append_heartbeats(batch) == {old}
    assert await stored.store.latest_heartbeat(ME) is None
    assert await stored.store.latest_heartbeat(OTHER) == a_heartbeat(OTHER, 1, T0)


async def test_a_batch_whose_leases_are_all_lost_records_nothing(stored: Stored) -> None:
    lost = {stored.lease(7), stored.lease(9)}
    await take_every_shard(stored.store, "another", "two")
    batch = [HeartbeatWrite(lease, (a_heartbeat(ME, lease.shard, T0),)) for lease in lost]
    assert await stored.store.append_heartbeats(batch) == lost
    assert await stored.store.latest_heartbeat(ME) is None


async def test_a_list_gives_whole_sessions(stored: Stored) -> None:
    session = await commit(stored, in_phase(a_session(consumer_workspace_id=ME), SessionState.ENDED))
    assert list(await stored.store.list_sessions(a_query())) == [session]


async def test_states_and_times_narrow_a_list_and_its_bounds_are_exclusive(stored: Stored) -> None:
    states = [SessionState.REQUESTED, SessionState.LIVE, SessionState.ENDED, SessionState.CANCELLED]
    made = [
        await commit(stored, in_phase(a_session(consumer_workspace_id=ME, created_at_ms=T0 + n), state))
        for n, state in enumerate(states)
    ]
    assert await listed(stored, states=frozenset({SessionState.LIVE, SessionState.CANCELLED})) == newest_first(
        made[1], made[3]
    )
    assert await listed(stored, created_after_ms=T0, created_before_ms=T0 + 3) == newest_first(made[1], made[2])


@pytest.mark.parametrize("view", [SessionView.CONSUMER, SessionView.PARTY, SessionView.OPEN])
async def test_pages_give_every_session_once_however_many_share_an_instant(stored: Stored, view: SessionView) -> None:
    made = [
        await commit(stored, a_session(consumer_workspace_id=ME, created_at_ms=T0 + number // 4))
        for number in range(11)
    ]
    seen: list[str] = []
    after: SessionKey | None = None
    while page := await stored.store.list_sessions(a_query(view=view, limit=3, after=after)):
        seen += [session.id for session in page]
        after = SessionKey(page[-1].terms.created_at_ms, page[-1].id)
    assert seen == newest_first(*made)


async def test_the_open_view_shows_requests_inside_the_coverage_until_their_deadline(stored: Stored) -> None:
    near = await commit(stored, a_session(lat=52.52, lng=13.40))
    far = await commit(stored, a_session(lat=52.60, lng=13.40))
    await commit(stored, in_phase(a_session(lat=52.52, lng=13.40), SessionState.ASSIGNED))
    over = await commit(stored, a_session(lat=52.52, lng=13.40, wait_timeout_s=10))
    circle = (52.52, 13.40, 1_000.0)
    assert await listed(stored, view=SessionView.OPEN, coverage=circle) == newest_first(near, over)
    assert await listed(stored, view=SessionView.OPEN) == newest_first(near, far, over)
    assert await listed(stored, view=SessionView.OPEN, coverage=circle, now_ms=T0 + 10_000) == [near.id]


async def test_the_open_view_includes_the_rim_and_crosses_the_date_line(stored: Stored) -> None:
    session = await commit(stored, a_session(lat=0.0, lng=179.999))
    rim = distance_m(0.0, -179.999, 0.0, 179.999)
    assert await listed(stored, view=SessionView.OPEN, coverage=(0.0, -179.999, rim + 0.001)) == [session.id]
    assert await listed(stored, view=SessionView.OPEN, coverage=(0.0, -179.999, rim - 0.001)) == []


async def test_an_operators_sessions_of_a_state_come_oldest_first(stored: Stored) -> None:
    operator = an_operator()
    made = [
        await commit(stored, in_phase(a_session(created_at_ms=T0 + n % 2), SessionState.ASSIGNED, operator))
        for n in range(4)
    ]
    await commit(stored, in_phase(a_session(), SessionState.LIVE, operator))
    await commit(stored, in_phase(a_session(), SessionState.ASSIGNED))
    found = await stored.store.sessions_of_operator(operator.workspace_id, SessionState.ASSIGNED)
    assert list(found) == newest_first(*made)[::-1]


async def test_dispatches_of_a_consumer_are_its_unstarted_sessions_and_its_newest_abandoned_ones(
    stored: Stored,
) -> None:
    def closed(at_ms: int, reason: EndReason, *, is_dispatched: bool = True, consumer: str = ME) -> Session:
        session = in_phase(a_session(consumer_workspace_id=consumer), SessionState.EXPIRED)
        assert isinstance(session.phase, Closed)
        phase = replace(session.phase, closed_at_ms=at_ms, reason=reason, is_dispatched=is_dispatched)
        return replace(session, phase=phase)

    def assigned(*, is_dispatched: bool, consumer: str = ME) -> Session:
        session = in_phase(a_session(consumer_workspace_id=consumer), SessionState.ASSIGNED)
        assert isinstance(session.phase, Assigned)
        return replace(session, phase=replace(session.phase, is_dispatched=is_dispatched))

    assert await stored.store.dispatches_of(ME) == ConsumerDispatches()
    unstarted = {(await commit(stored, assigned(is_dispatched=True))).id for _ in range(4)}
    await commit(stored, assigned(is_dispatched=False))
    await commit(stored, assigned(is_dispatched=True, consumer=OTHER))
    for state in (SessionState.REQUESTED, SessionState.LIVE, SessionState.ENDED, SessionState.CANCELLED):
        await commit(stored, in_phase(a_session(consumer_workspace_id=ME), state))
    for session in (
        closed(T0 + 4, EndReason.START_TIMEOUT),
        closed(T0 + 2, EndReason.CONSUMER_CANCELLED),
        closed(T0 + 3, EndReason.START_TIMEOUT),
        closed(T0 + 1, EndReason.START_TIMEOUT),
        closed(T0 + 9, EndReason.OPERATOR_CANCELLED),
        closed(T0 + 9, EndReason.START_TIMEOUT, is_dispatched=False),
        closed(T0 + 9, EndReason.START_TIMEOUT, consumer=OTHER),
    ):
        assert isinstance(session.phase, Closed)
        await commit(stored, session, at_ms=session.phase.closed_at_ms)
    assert await stored.store.dispatches_of(ME) == ConsumerDispatches(frozenset(unstarted), (T0 + 4, T0 + 3, T0 + 2))


async def test_recovery_sees_every_session_that_is_not_over(stored: Stored) -> None:
    operator = an_operator()
    made = {
        state: await commit(stored, in_phase(a_session(), state, operator), due_at_ms=T0 + 5) for state in SessionState
    }
    found = {each.id: each for each in await stored.store.unfinished_sessions()}
    assert set(found) == {
        made[state].id for state in (SessionState.REQUESTED, SessionState.ASSIGNED, SessionState.LIVE)
    }
    live = made[SessionState.LIVE].id
    assert found[live] == UnfinishedSession(
        id=live,
        state=SessionState.LIVE,
        operator_workspace_id=operator.workspace_id,
        video_ref="input-1",
        due_at_ms=T0 + 5,
    )
    requested = found[made[SessionState.REQUESTED].id]
    assert (requested.operator_workspace_id, requested.video_ref) == (None, None)


async def test_checkpoints_of_media_are_joined(stored: Stored) -> None:
    session, other = [await commit(stored, in_phase(a_session(), SessionState.LIVE)) for _ in range(2)]

    async def known() -> list[MediaCheckpoint | None]:
        found = [await stored.store.load_session(each.id) for each in (session, other)]
        return [each.media for each in found if each is not None]

    assert await known() == [None, None]
    bare = MediaCheckpoint(proved_at_ms=T0)
    later = MediaCheckpoint(proved_at_ms=T0 + 10, delivery=Delivery(T0 + 4, T0 + 8, 3))
    await stored.store.checkpoint_media({session.id: later, other.id: bare})
    await stored.store.checkpoint_media({session.id: MediaCheckpoint(proved_at_ms=T0 + 5), other.id: bare})
    assert await known() == [later, bare]
    earlier = MediaCheckpoint(proved_at_ms=T0 + 6, delivery=Delivery(T0 + 4, T0 + 6, 2))
    await stored.store.checkpoint_media({session.id: earlier, other.id: earlier})
    await stored.store.checkpoint_media({})
    assert await known() == [later, earlier]


# Heartbeats.


async def test_a_heartbeat_comes_back_as_it_was_recorded(stored: Stored) -> None:
    plain = a_heartbeat(ME, 0)
    full = a_heartbeat(
        OTHER,
        2**53 - 1,
        T0,
        session_id=an_id(),
        heading_degrees=359.9,
        speed_mps=1.25,
        altitude_m=-3.5,
        battery_percent=80.0,
        source="FUSED",
        is_mock=False,
    )
    full = full._replace(is_fresh=False, fix=replace(full.fix, is_proof=False))
    await stored.record(plain, full)
    assert await stored.store.latest_heartbeat(ME) == plain
    assert await stored.store.latest_heartbeat(OTHER) == full
    assert await stored.store.latest_heartbeat(an_id()) is None


@pytest.mark.parametrize("source", ["", "NULL", 'a"b\\c', "{1,2}", " x ", "é\n\t'--", None])
async def test_any_text_in_a_heartbeat_comes_back_as_it_was(stored: Stored, source: str | None) -> None:
    beats = [a_heartbeat(ME, 1, source=source), a_heartbeat(ME, 2, source="GPS"), a_heartbeat(ME, 3, source=source)]
    await stored.record(*beats)
    assert await stored.store.latest_heartbeat(ME) == beats[2]


@pytest.mark.parametrize("value", [0.1 + 0.2, -0.0, 1e-300, 359.99999999999994])
async def test_numbers_in_a_heartbeat_keep_every_digit(stored: Stored, value: float) -> None:
    beat = a_heartbeat(ME, 1, heading_degrees=value)
    await stored.record(beat, a_heartbeat(OTHER, 1))
    assert await stored.store.latest_heartbeat(ME) == beat


async def test_the_newest_heartbeat_is_that_of_the_highest_sequence_across_days(stored: Stored) -> None:
    beats = [a_heartbeat(ME, number, T0 + number * DAY_MS) for number in range(4)]
    await stored.record(*beats[2:])
    await stored.record(*beats[:2])
    await stored.store.append_heartbeats([])
    assert await stored.store.latest_heartbeat(ME) == beats[3]


async def test_heartbeats_recorded_again_are_there_once(stored: Stored) -> None:
    session = in_phase(a_session(), SessionState.LIVE, an_operator(ME))
    await commit(stored, session)
    beats = [a_heartbeat(ME, number, T0 + 60_000 + number) for number in range(5, 9)]
    await stored.record(*beats[:3])
    await stored.record(*beats)
    found = await stored.store.load_session(session.id)
    assert found is not None
    assert list(found.heartbeats) == beats


async def test_a_live_session_is_loaded_with_the_heartbeats_it_has_not_taken_in(stored: Stored) -> None:
    session = in_phase(a_session(), SessionState.LIVE, an_operator(ME))
    await commit(stored, session)
    started_at_ms = T0 + 2_000
    before = a_heartbeat(ME, 9, started_at_ms - 1)
    taken = a_heartbeat(ME, 3, started_at_ms)
    newer = [a_heartbeat(ME, number, started_at_ms + number) for number in (10, 11, 12)]
    await stored.record(*reversed(newer), before, taken, a_heartbeat(OTHER, 20, started_at_ms + 1))
    found = await stored.store.load_session(session.id)
    assert found is not None
    assert list(found.heartbeats) == newer


async def test_a_session_that_is_not_live_is_loaded_without_heartbeats(stored: Stored) -> None:
    session = await commit(stored, in_phase(a_session(), SessionState.ENDED, an_operator(ME)))
    await stored.record(a_heartbeat(ME, 50, T0 + 60_000))
    found = await stored.store.load_session(session.id)
    assert found is not None
    assert found.heartbeats == ()


async def test_a_workspace_is_read_as_last_seen_by_its_newest_heartbeat(stored: Stored) -> None:
    workspace = await commit_workspace(stored, a_workspace(last_sequence=5, last_seen_at_ms=T0))
    beat = a_heartbeat(workspace.id, 4, T0 + 9)
    await stored.record(beat)
    placed = replace(workspace, last_place=(beat.fix.lat, beat.fix.lng))
    assert await stored.store.load_workspace(workspace.id) == placed
    newest = a_heartbeat(workspace.id, 7, T0 + 20)
    newest = newest._replace(fix=replace(newest.fix, lat=9.5, lng=-9.5))
    await stored.record(a_heartbeat(workspace.id, 6, T0 + 10), newest)
    seen = replace(workspace, last_sequence=7, last_seen_at_ms=T0 + 20, last_place=(9.5, -9.5))
    assert await stored.store.load_workspace(workspace.id) == seen
    assert list(await stored.store.workspaces([workspace.id])) == [seen]


# Workspaces.


async def test_several_workspaces_are_read_by_id_and_unknown_ones_left_out(stored: Stored) -> None:
    made = [await commit_workspace(stored, a_workspace()) for _ in range(3)]
    found = await stored.store.workspaces([made[0].id, an_id(), made[2].id, made[0].id])
    assert {each.id: each for each in found} == {made[0].id: made[0], made[2].id: made[2]}
    assert len(found) == 2
    assert list(await stored.store.workspaces([])) == []


async def test_the_dispatcher_learns_of_suppliers_that_are_on_or_hold_a_claim(stored: Stored) -> None:
    claim = Claim(session_id=an_id(), at_ms=T0)
    wanted = [
        a_workspace(availability=Availability.ONLINE),
        a_workspace(availability=Availability.BUSY, claims={claim.session_id: claim}),
        a_workspace(claims={claim.session_id: claim}),
        a_workspace(availability=Availability.ONLINE, roles=(WorkspaceRole.CONSUMER, WorkspaceRole.SUPPLIER)),
    ]
    others = [a_workspace(), a_workspace(availability=Availability.ONLINE, roles=(WorkspaceRole.CONSUMER,))]
    stored_now = [await commit_workspace(stored, each) for each in [*wanted, *others]]
    found = {each.id: each for each in await stored.store.suppliers()}
    assert found == {each.id: each for each in stored_now[:4]}
    await commit_workspace(stored, replace(stored_now[0], availability=Availability.OFFLINE))
    assert stored_now[0].id not in {each.id for each in await stored.store.suppliers()}


async def test_recovery_of_a_shard_sees_what_is_unfinished_in_it_alone(stored: Stored) -> None:
    def id_in(shard: int) -> str:
        return f"{shard:02x}{an_id()[2:]}"

    ids = {shard: (id_in(shard), id_in(shard)) for shard in (0, 1, 127, 255)}
    for session_id, workspace_id in ids.values():
        await commit(stored, in_phase(a_session(id=session_id), SessionState.REQUESTED), due_at_ms=T0)
        await commit_workspace(stored, a_workspace(id=workspace_id, availability=Availability.ONLINE))
    for shard, (session_id, workspace_id) in ids.items():
        assert [each.id for each in await stored.store.unfinished_sessions(shard)] == [session_id]
        assert [each.id for each in await stored.store.suppliers(shard)] == [workspace_id]
    assert await stored.store.unfinished_sessions(2) == []
    assert len(await stored.store.unfinished_sessions()) == len(ids)


# Distances.


def points() -> st.SearchStrategy[tuple[float, float]]:
    """Coordinates with the six decimals that are stored."""
    lat, lng = st.integers(-90_000_000, 90_000_000), st.integers(-180_000_000, 180_000_000)
    return st.tuples(lat.map(lambda each: each / 1e6), lng.map(lambda each: each / 1e6))


@settings(max_examples=60, deadline=None)
@given(pairs=st.lists(st.tuples(points(), points()), min_size=1, max_size=20))
def test_the_database_measures_distance_as_the_domain_does(
    postgres_dsn: str, migrated_template: str, pairs: list[tuple[tuple[float, float], tuple[float, float]]]
) -> None:

    columns = [list(column) for column in zip(*[(*a, *b) for a, b in pairs], strict=True)]
    arrays = ", ".join(f"${number}::float8[]" for number in range(1, 5))
    asked = f"SELECT distance_m(a, b, c, d) FROM unnest({arrays}) AS p(a, b, c, d)"

    async def measured() -> list[float]:
        connection = await asyncpg.connect(postgres_dsn.replace("/postgres?", f"/{migrated_template}?"))
        try:
            return [row[0] for row in await connection.fetch(asked, *columns)]
        finally:
            await connection.close()

    expected = [distance_m(*a, *b) for a, b in pairs]
    assert asyncio.run(measured()) == pytest.approx(expected, rel=1e-9, abs=1e-6)
