"""A whole service of several servers holds what it promises, and each promise is proved by planted bugs."""

import pytest

from sightline.actors import build
from sightline.actors.messages import FactsMissed
from sightline.actors.ownership import shard_host
from sightline.actors.ownership.shard_host import ShardHost
from sightline.actors.remote import peers as peers_module
from sightline.actors.session.actor import SessionActor
from sightline.actors.workspace.actor import WorkspaceActor
from sightline.sim.simulate import SEVERAL, simulate

SEEDS = range(40)
"""Enough worlds for each bug to show."""


def gap_ignored(patch):
    """A server that misses frames of another one does not let its sessions read what is recorded."""
    patch.setattr(build, "_read_again", lambda registry, watchers, server: None)


def missed_facts_ignored(patch):
    """A session that is told that it may have missed facts does not read them."""
    handle = SessionActor.handle

    async def deaf(self, envelope):
        if not isinstance(envelope.message, FactsMissed):
            await handle(self, envelope)

    patch.setattr(SessionActor, "handle", deaf)


def lease_not_checked(patch):
    """A server answers from memory after its lease has run out."""
    patch.setattr(ShardHost, "is_valid", lambda self: self._valid_until_ms > 0)


def lease_trusted_too_long(patch):
    """A server trusts a renewal for longer than the lease lasts."""
    patch.setattr(shard_host, "VALID_MS", 30_000)


def claims_not_reconciled(patch):
    """A claim whose release was lost is kept for ever."""
    patch.setattr(WorkspaceActor, "_arm_reconciliation", lambda self: None)


def orphans_left(patch):
    """Nobody takes the shards of a server that died."""
    patch.setattr(shard_host, "to_take", lambda me, shards, owned: frozenset())


def outdated_route_kept(patch):
    """A server goes on asking a server that has answered that it does not own the shard."""
    patch.setattr(peers_module.Routes, "forget", lambda self, shard, server: None)
    patch.setattr(peers_module.Routes, "read", lambda self, owned: None)


BUGS = [
    (gap_ignored, 3, {"folded"}),
    (missed_facts_ignored, 3, {"folded"}),
    (lease_not_checked, 12, {"fresh reads"}),
    (lease_trusted_too_long, 7, {"fresh reads"}),
    (claims_not_reconciled, 10, {"busy"}),
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


def test_one_seed_is_one_history():
    assert simulate(3, scenario=SEVERAL).trace_hash == simulate(3, scenario=SEVERAL).trace_hash
