"""A whole service of several servers holds what it promises, and each promise is proved by planted bugs."""

import pytest

from sightline.actors.session.actor import SessionActor
from sightline.cluster import connected_servers, shard_host
from sightline.cluster.peers import peers as peers_module
from sightline.domain.errors import UnavailableError
from simulation.simulate import SEVERAL, simulate

SEEDS = range(40)
"""Enough worlds for each bug to show."""


def lost_reports_not_repaired(patch):
    """Neither the next heartbeat nor a missing frame makes a session read the heartbeats that it was not told."""
    patch.setattr(connected_servers, "_read_again", lambda registry, watchers, server: None)
    patch.setattr(SessionActor, "_require_no_gap", lambda self, report: None)


def sent_creation_had_no_effect(patch):
    """A creation that was sent to a server which then ended is answered as surely without effect."""
    patch.setattr(peers_module, "OutcomeUnknownError", UnavailableError)


def orphans_left(patch):
    """Nobody takes the shards of a server that died."""
    patch.setattr(shard_host, "to_take", lambda me, shards, owned: frozenset())


def outdated_route_kept(patch):
    """A server goes on asking a server that has answered that it does not own the shard."""
    patch.setattr(peers_module.Routes, "forget", lambda self, shard, server: None)
    patch.setattr(peers_module.Routes, "read", lambda *_: None)


BUGS = [
    (lost_reports_not_repaired, 7, {"folded"}),
    (sent_creation_had_no_effect, 2, {"no effect"}),
    (orphans_left, 0, {"healed"}),
    (outdated_route_kept, 1, {"healed"}),
]
"""Each bug with the first seed that shows it, and the checkers that may report it."""


@pytest.mark.parametrize(("bug", "first", "checkers"), BUGS, ids=[bug.__name__ for bug, _, _ in BUGS])
def test_a_planted_bug_is_found(bug, first, checkers, monkeypatch):
    bug(monkeypatch)
    for seed in sorted(SEEDS, key=lambda seed: seed != first):
        violation = simulate(seed, scenario=SEVERAL).violation
        if violation is not None:
            assert violation.checker in checkers, violation
            return
    pytest.fail(f"{bug.__name__} was not found in {len(SEEDS)} worlds")


def test_worlds_without_a_bug_hold_and_play_every_part():
    played = set()
    for seed in range(3):
        report = simulate(seed, scenario=SEVERAL)
        assert report.violation is None, report.explained()
        assert report.steps > 50
        played |= report.counts.keys()
    assert {"shards", "session", "beats", "reply", "part", "folded"} <= played


def test_a_session_reads_an_assignment_that_was_stored_after_its_server_had_given_up():
    """The operator's server was suspended for four seconds, and stored the assignment when it went on."""
    report = simulate(139, scenario=SEVERAL)
    assert report.violation is None, report.explained()


def test_one_seed_is_one_history():
    assert simulate(3, scenario=SEVERAL).trace_hash == simulate(3, scenario=SEVERAL).trace_hash
