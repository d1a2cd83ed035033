"""The shards that a server owns decide which actors it may run, and under which lease they write."""

import pytest

from sightline.actors.shards import DISPATCHER_ID, EVERY_SHARD, OwnedShards, shard_of
from sightline.ports.leases import ServerRole
from sightline.ports.store import SHARDS, ShardLease, ShardLostError

TAIL = "000000-0000-4000-8000-000000000000"


def ids_in(shard: int) -> list[str]:
    """Ids in a shard in lower and upper case; a role's actor."""
    if shard >= SHARDS:
        return [DISPATCHER_ID] if shard == ServerRole.DISPATCHER else []
    return [f"{shard:02x}{TAIL}", f"{shard:02X}{TAIL}"]


@pytest.mark.parametrize("shard", EVERY_SHARD)
def test_an_actor_may_run_exactly_while_its_shard_is_owned(shard: int) -> None:
    owned = OwnedShards(dict.fromkeys(set(EVERY_SHARD) - {shard}, 1))
    for actor_id in ids_in(shard):
        assert shard_of(actor_id) == shard
        assert not owned.owns(actor_id)
        with pytest.raises(ShardLostError):
            owned.lease(actor_id)
    owned.add({shard: 7})
    for actor_id in ids_in(shard):
        assert owned.owns(actor_id)
        assert owned.lease(actor_id) == ShardLease(shard, 7)
        assert owned.admits(actor_id)
    owned.close([shard])
    assert all(map(owned.owns, ids_in(shard)))
    assert not any(map(owned.admits, ids_in(shard)))
    owned.remove([shard])
    assert not any(map(owned.owns, ids_in(shard)))
    others = [actor_id for other in EVERY_SHARD if other != shard for actor_id in ids_in(other)]
    assert all(map(owned.owns, others))
    assert all(map(owned.admits, others))
