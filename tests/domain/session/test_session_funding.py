"""A session whose amount the escrow contract holds: from its first start on it is bound to one operator."""

import pytest

from sightline.domain.session import codec, machine
from sightline.domain.session.messages import (
    BeginFunding,
    CancelAssignment,
    End,
    GoLive,
    Party,
    RecordNoShow,
    ReleaseHold,
    ReleaseOperator,
    Settle,
    Tick,
    Withdraw,
)
from sightline.domain.session.model import EndReason, SessionState
from sightline.domain.session.status import session_status
from sightline.domain.units import MicroUsdc
from tests.domain.builders import (
    LIMITS,
    OPERATOR,
    T0,
    VIDEO,
    a_requested_session,
    after,
    an_assigned_session,
    an_operator,
    taken,
)

TX = "0x" + "ef" * 32
WALLET = an_operator().wallet_address


def a_funding_session(at_ms: int = T0 + 1_000):
    return after(an_assigned_session(), BeginFunding(), at_ms)


def test_a_start_gives_the_chain_a_minute_beyond_its_deadline_once():
    session = a_funding_session(T0 + 100_000)
    assert machine.deadline_ms(session) == T0 + 160_000
    again = taken(machine.step(session, BeginFunding(), T0 + 110_000, LIMITS))
    assert again.session is session
    early = a_funding_session(T0 + 1_000)
    assert machine.deadline_ms(early) == T0 + 120_000, "an early start has its own deadline"


def test_a_funded_session_that_is_not_started_expires_and_returns_its_amount():
    session = a_funding_session()
    step = taken(machine.step(session, Tick(), T0 + 120_000, LIMITS))
    assert (step.session.state, step.session.phase.reason) == (SessionState.EXPIRED, EndReason.START_TIMEOUT)
    settlement = machine.settlement_of(session.terms, session.operator, 0, MicroUsdc(0))
    assert step.effects == (
        ReleaseHold(), ReleaseOperator(OPERATOR, start_timed_out=True), RecordNoShow(WALLET, T0 + 120_000),
        Settle(settlement),
    )  # fmt: skip


@pytest.mark.parametrize("message", [CancelAssignment(), End(Party.CONSUMER), End(Party.PLATFORM), Withdraw()])
def test_whoever_ends_a_funded_session_before_it_is_live_returns_its_amount(message):
    def returns(session):
        step = taken(machine.step(session, message, T0 + 2_000, LIMITS))
        return [effect for effect in step.effects if isinstance(effect, Settle)]

    assert len(returns(a_funding_session())) == 1
    assert returns(an_assigned_session()) == [], "nothing was asked of the contract"
    assert after(a_funding_session(), message, T0 + 2_000).is_terminal


def test_funding_is_only_for_an_assigned_session():
    requested = a_requested_session()
    assert machine.step(requested, BeginFunding(), T0 + 1, LIMITS) == machine.wrong_state(requested)


def test_the_transaction_of_the_hold_is_part_of_the_session_and_of_its_events():
    step = taken(machine.step(a_funding_session(), GoLive(VIDEO, TX), T0 + 2_000, LIMITS))
    assert step.events[0].facts == (("videoBackendRef", VIDEO.ref), ("holdTxHash", TX))
    ended = after(step.session, End(Party.CONSUMER), T0 + 9_000)
    for session in (step.session, ended):
        assert session_status(session, T0 + 9_000, LIMITS, OPERATOR).hold_tx_hash == TX
        assert codec.from_doc(codec.to_doc(session), session.version) == session


def test_documents_of_sessions_without_escrow_are_those_of_earlier_versions():
    """A server of the version before reads them during a rolling upgrade."""
    session = an_assigned_session()
    for each in (session, after(session, GoLive(VIDEO), T0 + 1)):
        document = codec.to_doc(each)
        assert "consent" not in document["terms"]
        assert not {"funding_at_ms", "hold_tx_hash"} & document["phase"].keys()
