"""Short texts of the consumer to the operator of a LIVE session: recorded, bounded, without effect on the meter."""

import pytest

from sightline.domain.refusal import Code, Refusal
from sightline.domain.session import codec, machine
from sightline.domain.session.machine import MESSAGES_MAX, MESSAGES_PER_MINUTE
from sightline.domain.session.messages import End, EventKind, Extend, MarkShown, Party, Say
from sightline.domain.session.model import Live
from tests.domain.builders import (
    LIMITS,
    T0,
    Film,
    a_live_session,
    a_requested_session,
    after,
    an_assigned_session,
    an_ended_session,
    taken,
)
from tests.domain.session.test_session_extension import an_extension


def messages_of(session):
    assert isinstance(session.phase, Live)
    return [(each.number, each.text) for each in session.phase.messages]


def test_a_message_is_an_event_and_is_kept_with_the_session():
    step = taken(machine.step(a_live_session(), Say("turn left"), T0 + 6_000, LIMITS))
    assert messages_of(step.session) == [(1, "turn left")]
    [event] = step.events
    assert (event.kind, event.at_ms, event.facts) == (
        EventKind.MESSAGE, T0 + 6_000, (("number", 1), ("text", "turn left")),
    )  # fmt: skip
    assert step.effects == ()
    assert codec.from_doc(codec.to_doc(step.session), step.session.version) == step.session


def test_a_document_of_an_earlier_version_has_no_messages():
    doc = codec.to_doc(a_live_session())
    assert "messages" not in doc["phase"]
    assert messages_of(codec.from_doc(doc, 1)) == []


def test_an_ended_session_keeps_its_messages_where_earlier_versions_do_not_read_them():
    live = after(after(a_live_session(), Say("left"), T0 + 1_000), MarkShown(1), T0 + 2_000)
    ended = after(live, End(Party.CONSUMER), T0 + 3_000)
    assert (ended.phase.messages, ended.messages_shown) == (live.phase.messages, 1)
    doc = codec.to_doc(ended)
    assert "messages" not in doc["phase"]
    assert codec.from_doc(doc, ended.version) == ended
    del doc["ended_messages"]
    assert codec.from_doc(doc, ended.version).phase.messages == ()
    assert "ended_messages" not in codec.to_doc(an_ended_session())


def test_messages_change_nothing_of_the_charge():
    quiet, talking = Film(a_live_session()), Film(after(a_live_session(), Say("closer"), T0 + 1))
    charges = []
    for film in (quiet, talking):
        film.both(T0 + 2_000, T0 + 30_000)
        charges.append(after(film.session, End(Party.CONSUMER), T0 + 30_000).phase.charged)
    assert charges[0] == charges[1] > 0


def test_the_newest_messages_of_a_minute_are_kept_and_one_more_waits():
    session = a_live_session()
    for number in range(MESSAGES_PER_MINUTE):
        session = after(session, Say(f"text {number}"), T0 + number * 1_000)
    refusal = machine.step(session, Say("one more"), T0 + 30_500, LIMITS)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.detail, refusal.retry_after_s) == (Code.RATE_LIMITED, "session:messages", 30)
    later = after(Film(session).both(T0 + 10_000, T0 + 60_000).session, Say("one more"), T0 + 60_000)
    assert messages_of(later)[0] == (2, "text 1")
    assert messages_of(later)[-1] == (MESSAGES_PER_MINUTE + 1, "one more")


def test_a_session_takes_so_many_messages_and_no_more():
    film = Film(after(a_live_session(), Extend(an_extension(3_600)), T0))
    for number in range(1, MESSAGES_MAX + 1):
        film.both(T0 + number * 6_000, T0 + number * 6_000 + 4_000).tell(Say("left"), T0 + number * 6_000 + 5_000)
    refusal = machine.step(film.session, Say("left"), film.session.newest_ms + 1_000, LIMITS)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.detail) == (Code.INVALID_STATE, "session:messages")


@pytest.mark.parametrize("session", [a_requested_session(), an_assigned_session(), an_ended_session()])
def test_only_a_live_session_takes_messages(session):
    refusal = machine.step(session, Say("left"), session.newest_ms + 1, LIMITS)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.detail) == (Code.INVALID_STATE, "session:state")


def test_messages_are_shown_up_to_the_number_that_the_device_has_shown():
    session = after(after(a_live_session(), Say("left"), T0 + 1_000), Say("right"), T0 + 2_000)
    assert session.messages_shown == 0
    step = taken(machine.step(session, MarkShown(1), T0 + 3_000, LIMITS))
    assert (step.session.messages_shown, step.events, step.effects) == (1, (), ())
    assert codec.from_doc(codec.to_doc(step.session), step.session.version) == step.session
    assert after(step.session, MarkShown(200), T0 + 4_000).messages_shown == 2


def test_a_repeated_or_lower_number_leaves_the_session_as_it_is():
    session = after(after(a_live_session(), Say("left"), T0 + 1_000), MarkShown(1), T0 + 2_000)
    for number in (0, 1, 2):
        assert taken(machine.step(session, MarkShown(number), T0 + 3_000, LIMITS)).session is session
    assert taken(machine.step(a_live_session(), MarkShown(3), T0 + 3_000, LIMITS)).session.messages_shown == 0
    assert "messages_shown" not in codec.to_doc(a_live_session())
