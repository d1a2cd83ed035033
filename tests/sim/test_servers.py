"""Several servers on one database hold what they promise, and each promise is proved by planted bugs."""

import pytest

from sightline.cluster import shard_host
from sightline.cluster.peers import peers as peers_module
from sightline.cluster.shard_host import ShardHost
from sightline.domain.errors import UnavailableError
from simulation.memory import leases as leases_module
from simulation.memory.leases import MemoryShardLeases
from simulation.memory.store import MemoryStore
from simulation.servers import member as member_module
from simulation.servers import server as server_module
from simulation.servers.server import SimServer
from simulation.servers.world import simulate_servers
from simulation.simulate import SERVERS, simulate

SEEDS = range(60)
"""Enough worlds for each bug to show."""


def lease_trusted_too_long(patch):
    """A server trusts a renewal for longer than the lease lasts."""
    patch.setattr(leases_module, "VALID_MS", 30_000)


def epoch_read_at_write(patch):
    """An actor that was not stopped writes at the epoch of now with what it loaded under an earlier one."""
    write = SimServer._write

    async def late(self, wanted):
        lease = self._require_member().owned.lease(wanted.heartbeats[0].workspace_id)
        return await write(self, wanted._replace(lease=lease))

    patch.setattr(SimServer, "_write", late)
    patch.setattr(ShardHost, "_stop", do_nothing)


def actors_not_stopped(patch):
    """The actors of a shard go on after it was handed over."""
    patch.setattr(ShardHost, "_stop", do_nothing)


async def do_nothing(self, *arguments):
    """In place of a step that is left out."""


def theft_with_a_broken_lease(patch):
    """A server that just came back takes the shards of those that come back a moment later.

    Both the statement that takes and the server itself prevent it.
    """
    take = MemoryShardLeases.take

    async def hasty(self, incarnation, shards):
        for lease in self._leases.values():
            lease.held_since_ms = 0
        return await take(self, incarnation, shards)

    patch.setattr(MemoryShardLeases, "take", hasty)
    patch.setattr(shard_host, "OTHERS_RENEW_S", 0)


def shards_of_the_living_taken(patch):
    """A shard counts as free although a living server owns it."""
    patch.setattr(MemoryShardLeases, "_is_free", lambda self, shard, taker: self._shards_owner(shard) != taker)
    patch.setattr(
        MemoryShardLeases,
        "_shards_owner",
        lambda self, shard: self._shards[shard].owner if shard in self._shards else None,
        raising=False,
    )


def epoch_not_raised(patch):
    """A take-over keeps the epoch."""

    def unraised(self, shards):
        return {shard: max(self._epochs[shard], 1) for shard in shards}

    def holds(self, lease):
        return lease.epoch == 1

    patch.setattr(MemoryStore, "raise_epochs", unraised)
    patch.setattr(MemoryStore, "_holds", holds)


def fence_ignored(patch):
    """The store accepts writes at any epoch."""
    patch.setattr(MemoryStore, "_holds", lambda self, lease: True)


def orphans_left(patch):
    """Nobody takes the shards of a server that died."""
    patch.setattr(shard_host, "to_take", lambda me, shards, owned: frozenset())


def offered_shards_left(patch):
    """A server that is handed a shard does not take it."""
    servers = MemoryShardLeases.servers

    async def without_offers(self):
        return [leases_module.ServerState(incarnation=s.incarnation, is_valid=s.is_valid, shards=s.shards)
                for s in await servers(self)]  # fmt: skip

    patch.setattr(MemoryShardLeases, "servers", without_offers)


def nothing_given(patch):
    """A server that has too many shards keeps them."""
    patch.setattr(shard_host, "to_give", lambda me, shards, owned: {})


def lost_answer_of_a_take_forgotten(patch):
    """A shard that was taken without the answer arriving is owned and served by nobody."""
    release = member_module.RemoteLeases.release

    async def not_to_itself(self, incarnation, shards, *, to=None):
        if to != incarnation:
            await release(self, incarnation, shards, to=to)

    patch.setattr(member_module.RemoteLeases, "release", not_to_itself)


def commands_asked_again(patch):
    """A command is sent to the next owner although the first one may have handled it."""
    patch.setattr(server_module, "QUESTIONS", {server_module.Add, server_module.Get})


def ended_servers_had_no_effect(patch):
    """An ask to a server that ended is answered as if it had surely had no effect."""
    patch.setattr(peers_module, "OutcomeUnknownError", UnavailableError)


BUGS = {
    lease_trusted_too_long: {"fresh reads", "nothing lost"},
    commands_asked_again: {"at most once"},
    ended_servers_had_no_effect: {"at most once"},
    epoch_read_at_write: {"fresh reads", "nothing lost", "epochs"},
    actors_not_stopped: {"fresh reads", "nothing lost"},
    theft_with_a_broken_lease: {"no theft"},
    shards_of_the_living_taken: {"no theft", "fresh reads", "nothing lost", "healed"},
    epoch_not_raised: {"epochs"},
    fence_ignored: {"epochs"},
    orphans_left: {"healed"},
    offered_shards_left: {"healed", "balance"},
    nothing_given: {"balance"},
    lost_answer_of_a_take_forgotten: {"healed"},
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug, monkeypatch):
    bug(monkeypatch)
    for seed in SEEDS:
        violation = simulate_servers(seed).violation
        if violation is not None:
            assert violation.checker in BUGS[bug], violation
            return
    pytest.fail(f"{bug.__name__} was not found in {len(SEEDS)} worlds")


def test_worlds_without_a_bug_hold():
    for seed in range(4):
        report = simulate(seed, scenario=SERVERS)
        assert report.violation is None, report.explained()
        assert report.steps > 50
        assert {"take", "release", "read"} <= report.counts.keys()


def test_one_seed_is_one_history():
    assert simulate_servers(3).trace_hash == simulate_servers(3).trace_hash
    assert simulate_servers(3).trace_hash != simulate_servers(4).trace_hash
