"""What is stored of a session and a workspace reads back the same, and its events form a chain."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.domain.geofence import DeviceKind
from sightline.domain.operator import codec as operator_codec
from sightline.domain.operator import machine as operator_machine
from sightline.domain.operator.machine import ClaimByAccept, ClaimByDispatch, Occupy, Patch, Release
from sightline.domain.operator.model import Availability, WorkspaceRole
from sightline.domain.refusal import Refusal
from sightline.domain.session import codec, machine
from sightline.domain.session.messages import (
    Assign,
    Cancel,
    CancelAssignment,
    ConsumerActive,
    End,
    Event,
    EventKind,
    FixReported,
    GoLive,
    MarkShown,
    MediaBroke,
    MediaProved,
    Party,
    Say,
    SettlementMined,
    Tick,
)
from sightline.domain.session.record import chain, event_hash
from sightline.domain.value import replace
from tests.domain.builders import (
    LIMITS,
    T0,
    VIDEO,
    a_fix,
    a_requested_session,
    a_workspace,
    an_assigned_session,
    an_operator,
)

kinds = st.sampled_from(list(DeviceKind))
offsets = st.integers(0, 40_000)
fixes = st.builds(
    lambda at, north, accuracy, is_proof: a_fix(T0 + at, north_m=north, accuracy_m=accuracy, is_proof=is_proof),
    offsets,
    st.sampled_from([0.0, 520.0, 700.0, 9_000.0]),
    st.sampled_from([5.0, 150.0]),
    st.booleans(),
)
session_messages = st.one_of(
    st.builds(
        lambda kind, dispatched: Assign(an_operator(kind, coverage_lat=1.0, coverage_lng=2.0), dispatched),
        kinds,
        st.booleans(),
    ),
    st.just(GoLive(VIDEO)),
    st.builds(End, st.sampled_from(list(Party))),
    st.just(Cancel()),
    st.just(CancelAssignment()),
    st.builds(FixReported, fixes, st.integers(0, 50), st.booleans()),
    st.builds(lambda at: MediaProved(T0 + at), offsets),
    st.builds(lambda at: MediaBroke(T0 + at), offsets),
    st.just(Say("turn left")),
    st.builds(MarkShown, st.integers(0, 12)),
    st.builds(lambda at: ConsumerActive(None, T0 + int(at)), offsets),
    st.just(Tick()),
    st.just(SettlementMined("0xabc")),
)


@st.composite
def sessions(draw):
    """A session after any story, facts mostly."""
    session = a_requested_session(
        metadata_json=draw(st.sampled_from([None, '{"a":1}'])), quote_id=draw(st.sampled_from([None, "q"]))
    )
    opening = draw(st.sampled_from([[], [Assign(an_operator())], [Assign(an_operator()), GoLive(VIDEO)]]))
    now_ms = T0
    for message in [*opening, *draw(st.lists(session_messages, max_size=25))]:
        result = machine.step(session, message, now_ms, LIMITS)
        if not isinstance(result, Refusal):
            session, _ = chain(result.session, result.events)
        now_ms += draw(st.integers(0, 4_000))
    return session


@given(sessions(), st.integers(0, 1000))
def test_any_session_reads_back_as_it_was_written(session, version):
    stored = json.dumps(codec.to_doc(session))
    assert codec.from_doc(json.loads(stored), version) == replace(session, version=version)


@given(
    st.lists(
        st.one_of(
            st.builds(ClaimByDispatch, st.sampled_from("ab")),
            st.builds(ClaimByAccept, st.sampled_from("ab")),
            st.builds(Occupy, st.sampled_from("ab")),
            st.builds(Release, st.sampled_from("ab"), st.booleans()),
            st.builds(Patch, device_kind=kinds, availability=st.sampled_from([Availability.ONLINE, None])),
        ),
        max_size=10,
    ),
    st.sampled_from([(WorkspaceRole.SUPPLIER,), (WorkspaceRole.CONSUMER, WorkspaceRole.SUPPLIER)]),
)
def test_any_workspace_reads_back_as_it_was_written(told, roles):
    workspace = a_workspace(roles=roles)
    for message in told:
        result = operator_machine.step(workspace, message, T0)
        workspace = workspace if isinstance(result, Refusal) else result
    stored = json.dumps(operator_codec.to_doc(workspace))
    assert operator_codec.from_doc(json.loads(stored), 7) == replace(workspace, version=7)


def test_a_claim_stored_before_dispatches_were_told_apart_still_reads():
    doc = operator_codec.to_doc(operator_machine.step(a_workspace(), ClaimByDispatch("s"), T0))
    del doc["claims"]["s"]["is_dispatched"]
    assert operator_codec.from_doc(doc, 1).claims["s"].is_dispatched is False


def test_an_assignment_stored_before_dispatches_were_told_apart_still_reads():
    doc = codec.to_doc(an_assigned_session())
    del doc["phase"]["is_dispatched"]
    assert codec.from_doc(doc, 1).phase.is_dispatched is False


def test_a_phase_of_an_unknown_kind_is_not_guessed():
    doc = codec.to_doc(a_requested_session())
    doc["phase"] = {"is": "levitating", "operator": None}
    with pytest.raises(ValueError, match="levitating"):
        codec.from_doc(doc, 1)


events = st.lists(
    st.builds(
        Event,
        st.sampled_from(list(EventKind)),
        st.integers(0, 2**52),
        st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.integers(), st.text(max_size=5)))).map(tuple),
    ),
    max_size=6,
)


@given(events)
def test_each_event_is_hashed_over_the_one_before(recorded):
    session, chained = chain(a_requested_session(), recorded)
    head = ""
    for sequence, event, digest in chained:
        head = event_hash(head, session.id, sequence, event)
        assert digest == head
    assert (session.head_hash, session.events) == (head, len(recorded))


@given(events, events)
def test_a_chain_does_not_depend_on_how_events_were_grouped(first, second):
    at_once, _ = chain(a_requested_session(), [*first, *second])
    in_two, _ = chain(chain(a_requested_session(), first)[0], second)
    assert at_once == in_two


@given(events.filter(bool), st.data())
def test_a_changed_event_changes_the_head(recorded, data):
    place = data.draw(st.integers(0, len(recorded) - 1))
    changed = list(recorded)
    changed[place] = replace(changed[place], at_ms=changed[place].at_ms + 1)
    assert chain(a_requested_session(), recorded)[0].head_hash != chain(a_requested_session(), changed)[0].head_hash
