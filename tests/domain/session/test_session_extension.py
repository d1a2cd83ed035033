"""A LIVE session that gets more time: maximum duration, hold and end grow together, and each extension counts once."""

import pytest

from sightline.domain.escrow import ConsentKind, PayerConsent
from sightline.domain.refusal import Code, Refusal
from sightline.domain.session import codec, machine
from sightline.domain.session.messages import (
    BeginExtending,
    End,
    EventKind,
    Extend,
    ExtensionRefused,
    MediaBroke,
    Party,
    Settle,
    Tick,
)
from sightline.domain.session.model import EndReason, SessionExtension, SessionState
from sightline.domain.units import MicroUsdc
from sightline.domain.value import replace
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
    terms,
)

TERMS = terms()
TX = "0x" + "ef" * 32


def an_extension(seconds: int = 600, name: str = "one", **changes) -> SessionExtension:
    return SessionExtension(id=name, seconds=seconds, amount=MicroUsdc(seconds * TERMS.rate), **changes)


def test_an_extension_moves_maximum_hold_and_end_together():
    live = a_live_session()
    step = taken(machine.step(live, Extend(an_extension()), T0 + 6_000, LIMITS))
    extended = step.session
    assert extended.terms.max_duration_s == live.terms.max_duration_s + 600
    assert extended.terms.hold == live.terms.hold + 600 * TERMS.rate
    assert extended.terms.hold == extended.terms.rate * extended.terms.max_duration_s
    assert machine.deadline_ms(extended) == machine.deadline_ms(live) + 600_000
    assert extended.first_hold == live.terms.hold
    assert step.effects == ()
    [event] = step.events
    assert (event.kind, event.at_ms) == (EventKind.EXTENDED, T0 + 6_000)
    assert dict(event.facts) == {
        "seconds": 600,
        "maxDurationSeconds": extended.terms.max_duration_s,
        "holdMicroUsdc": str(extended.terms.hold),
    }


def test_the_same_extension_counts_once():
    once = after(a_live_session(), Extend(an_extension()), T0 + 1_000)
    again = taken(machine.step(once, Extend(an_extension()), T0 + 2_000, LIMITS))
    assert again.session is once
    assert (again.events, again.effects) == ((), ())
    twice = after(once, Extend(an_extension(name="two")), T0 + 2_000)
    assert twice.terms.max_duration_s == once.terms.max_duration_s + 600


def test_a_session_films_and_charges_past_its_former_end_and_ends_at_the_new_one():
    former_ms = TERMS.max_duration_s * 1_000
    film = Film(after(a_live_session(), Extend(an_extension(30)), T0 + 1_000))
    film.both(T0, T0 + former_ms + 29_000)
    assert film.session.state is SessionState.LIVE
    ended = taken(machine.step(film.session, Tick(), T0 + former_ms + 30_000, LIMITS)).session
    assert (ended.phase.reason, ended.phase.ended_at_ms) == (EndReason.MAX_DURATION, T0 + former_ms + 30_000)
    assert ended.phase.clean_seconds == TERMS.max_duration_s + 30
    assert ended.phase.charged == ended.terms.hold


def test_an_extension_after_the_end_is_too_late():
    live = a_live_session()
    late_ms = T0 + TERMS.max_duration_s * 1_000
    assert machine.step(live, Extend(an_extension()), late_ms, LIMITS) == machine.EXPIRED


def test_a_paused_session_can_be_extended():
    paused = after(a_live_session(), MediaBroke(T0 + 1_000), T0 + 1_000)
    assert after(paused, Extend(an_extension()), T0 + 2_000).terms.max_duration_s == TERMS.max_duration_s + 600


@pytest.mark.parametrize("session", [a_requested_session(), an_assigned_session(), an_ended_session()])
@pytest.mark.parametrize("message", [BeginExtending(an_extension()), Extend(an_extension())])
def test_only_a_live_session_is_extended(session, message):
    assert machine.step(session, message, session.newest_ms, LIMITS) == machine.not_live_yet(session)


def test_a_session_lasts_at_most_four_hours_and_the_refusal_says_what_is_left():
    most = machine.DURATION_MAX_S - TERMS.max_duration_s
    refusal = machine.step(a_live_session(), Extend(an_extension(most + 1)), T0 + 1, LIMITS)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.detail) == (Code.INVALID_INPUT, "session:duration")
    assert str(most) in refusal.message
    assert after(a_live_session(), Extend(an_extension(most)), T0 + 1).terms.max_duration_s == 14_400


def test_the_number_of_extensions_is_bounded():
    session = a_live_session()
    for number in range(machine.EXTENSIONS_MAX):
        session = after(session, Extend(an_extension(1, name=str(number))), T0 + 1_000)
    refusal = machine.step(session, Extend(an_extension(1, name="more")), T0 + 1_000, LIMITS)
    assert isinstance(refusal, Refusal)
    assert refusal.detail == "session:extensions"


def test_an_extension_that_the_contract_is_asked_for_adds_nothing_before_it_is_taken():
    live = a_live_session()
    asked = an_extension(consent=PayerConsent(kind=ConsentKind.CONSENT, open_by_s=1, signature="0xab"))
    asking = after(live, BeginExtending(asked), T0 + 1_000)
    assert (asking.terms, machine.deadline_ms(asking)) == (live.terms, machine.deadline_ms(live))
    other = machine.step(asking, BeginExtending(an_extension(name="two")), T0 + 1_100, LIMITS)
    assert isinstance(other, Refusal)
    assert (other.code, other.detail) == (Code.CONFLICT, "session:extending")
    assert after(asking, BeginExtending(asked), T0 + 1_200) == asking, "a repeat asks for the same"
    step = taken(machine.step(asking, Extend(replace(asked, tx_hash=TX)), T0 + 2_000, LIMITS))
    assert step.session.extending is None
    assert dict(step.events[0].facts)["holdTxHash"] == TX


def test_a_refused_extension_leaves_the_session_as_it_was():
    live = a_live_session()
    asking = after(live, BeginExtending(an_extension()), T0 + 1_000)
    assert after(asking, ExtensionRefused("another"), T0 + 2_000) == asking
    assert after(asking, ExtensionRefused("one"), T0 + 2_000) == live


def test_a_session_that_ends_while_the_contract_is_asked_charges_at_most_its_former_hold():
    film = Film(after(a_live_session(), BeginExtending(an_extension()), T0 + 1_000))
    film.both(T0, T0 + 9_000)
    step = taken(machine.step(film.session, End(Party.CONSUMER), T0 + 10_000, LIMITS))
    [settle] = [effect for effect in step.effects if isinstance(effect, Settle)]
    assert settle.payload.chargeable_seconds <= TERMS.max_duration_s
    late = machine.step(step.session, Extend(an_extension()), T0 + 11_000, LIMITS)
    assert late == machine.wrong_state(step.session)


def test_extensions_survive_storage_and_sessions_without_them_have_the_document_of_before():
    live = a_live_session()
    assert not {"extensions", "extending"} & codec.to_doc(live).keys()
    mandate = PayerConsent(kind=ConsentKind.CONSENT, open_by_s=1, signature="0xab")
    extended = after(live, Extend(an_extension(consent=mandate, tx_hash=TX)), T0 + 1_000)
    asking = after(extended, BeginExtending(an_extension(name="two", consent=mandate)), T0 + 2_000)
    assert codec.from_doc(codec.to_doc(asking), asking.version) == asking
