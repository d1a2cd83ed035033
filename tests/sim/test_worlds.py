"""Worlds hold their promises: some seeds, every scenario, and the content of a failure report."""

import pytest

from simulation.faults import FaultRates
from simulation.scenarios import SCENARIOS, scenario_of
from simulation.simulate import simulate, simulate_many


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_holds_and_gets_something_done(scenario):
    report = simulate(1, scenario=scenario, active_s=60)
    assert report.violation is None, report.explained()
    assert report.counts["session"] > 5
    assert report.counts["ended"] == 1


def test_the_first_seeds_hold():
    summary = simulate_many(range(14))
    assert not summary.failures, summary.failures[0].explained()
    assert summary.worlds == 14
    assert summary.virtual_hours_per_minute > 0


def test_an_operator_whose_session_another_one_took_after_a_start_timeout_may_be_dispatched_again():
    report = simulate(553, scenario="city")
    assert report.violation is None, report.explained()


def test_seeds_play_every_scenario_in_turn():
    assert {scenario_of(seed) for seed in range(len(SCENARIOS))} == set(SCENARIOS)


def test_worlds_without_faults_lose_nothing_and_refuse_nobody():
    for seed in range(3):
        calm = FaultRates()
        report = simulate(seed, scenario="steady", rates=calm)
        assert report.violation is None, report.explained()
        assert report.rates == "latency_ms=3 slow_s=1 late_s=1" or "refused" not in report.rates
        assert "log" not in report.counts


def test_all_faults_at_once_are_survived():
    rates = FaultRates(
        store_refused=0.1,
        store_unknown_applied=0.05,
        store_unknown_lost=0.05,
        read_refused=0.1,
        slow=0.05,
        slow_s=2.0,
        relations_refused=0.1,
        video_refused=0.2,
        video_hangs=0.02,
        duplicate=0.1,
        late=0.1,
        crash_every_s=25,
        pause_every_s=40,
    )
    for seed in range(3):
        report = simulate(seed, scenario="city", rates=rates)
        assert report.violation is None, report.explained()


def test_a_failure_names_the_promise_the_faults_the_last_steps_and_the_command_that_repeats_it(monkeypatch):
    from simulation.checkers.rows import Transitions

    monkeypatch.setattr(Transitions, "on_session", lambda self, step: self.fail("a planted complaint"))
    report = simulate(7)
    text = report.explained()
    assert "transitions: a planted complaint" in text
    assert "faults: " in text
    assert "REQUESTED" in text
    assert text.endswith("repeat it: python -m simulation --seed 7 --scenario city")


def test_failures_are_collected_up_to_a_limit(monkeypatch):
    from simulation.checkers.rows import Transitions

    monkeypatch.setattr(Transitions, "on_session", lambda self, step: self.fail("a planted complaint"))
    summary = simulate_many(range(50), failures_max=2)
    assert len(summary.failures) == 2
    assert summary.worlds < 50


def test_a_claim_that_outlived_its_session_is_given_back_however_busy_the_operator_is():
    """The answer to the session's last write was lost, and the operator accepted others every few seconds."""
    report = simulate(749, scenario="city")
    assert report.violation is None, report.explained()
