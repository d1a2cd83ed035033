"""Placement: every server computes the same owner for each shard, and living owners give only their surplus."""

from hypothesis import given
from hypothesis import strategies as st

from sightline.domain.placement import GIVEN_AT_ONCE_MAX, preferred, to_give, to_take

SHARDS = range(64)
names = st.lists(st.text("abcdef", min_size=1, max_size=4), min_size=1, max_size=6, unique=True)


@st.composite
def ownerships(draw: st.DrawFn) -> dict[str, set[int]]:
    """Servers, and for each shard its owner or none."""
    servers = draw(names)
    owners = draw(st.lists(st.sampled_from([None, *servers]), min_size=len(SHARDS), max_size=len(SHARDS)))
    return {
        server: {shard for shard, owner in zip(SHARDS, owners, strict=True) if owner == server} for server in servers
    }


@given(ownerships())
def test_each_shard_without_an_owner_is_taken_by_exactly_one_server(owned: dict[str, set[int]]) -> None:
    taken = [shard for server in owned for shard in to_take(server, SHARDS, owned)]
    assert sorted(taken) == sorted(set(SHARDS) - set().union(*owned.values()))


@given(names, st.integers(0, 1_000))
def test_a_server_that_leaves_moves_its_own_shards_only(servers: list[str], shard: int) -> None:
    chosen = preferred(shard, servers)
    for gone in servers:
        others = [server for server in servers if server != gone]
        if others and gone != chosen:
            assert preferred(shard, others) == chosen


@given(ownerships())
def test_a_server_gives_its_own_shards_to_servers_that_have_room(owned: dict[str, set[int]]) -> None:
    share = -(-len(SHARDS) // len(owned))
    for server, mine in owned.items():
        given_now = to_give(server, SHARDS, owned)
        shards = [shard for found in given_now.values() for shard in found]
        assert len(shards) == len(set(shards)) <= GIVEN_AT_ONCE_MAX
        assert mine.issuperset(shards)
        assert server not in given_now
        if shards:
            assert len(mine) > share
            assert len(mine) - len(shards) >= share
        for receiver, found in given_now.items():
            assert len(owned[receiver]) + len(found) <= share


@given(ownerships())
def test_giving_ends_when_every_server_has_its_share(owned: dict[str, set[int]]) -> None:
    for _ in range(200):
        for server in owned:
            owned[server] |= to_take(server, SHARDS, owned)
        moves = {server: to_give(server, SHARDS, owned) for server in owned}
        if not any(moves.values()):
            break
        for server, given_now in moves.items():
            for receiver, found in given_now.items():
                owned[server] -= set(found)
                owned[receiver] |= set(found)
    share = -(-len(SHARDS) // len(owned))
    assert all(len(shards) <= share * 1.1 for shards in owned.values())


def test_a_surplus_goes_to_all_servers_that_miss_shards_up_to_eight_at_once() -> None:
    owned = {"a": set(range(40)), "b": set(range(40, 60)), "c": set(range(60, 64))}
    given_now = to_give("a", SHARDS, owned)
    assert sum(map(len, given_now.values())) == GIVEN_AT_ONCE_MAX
    assert len(given_now["b"]) == 2, "the fair share is 22"


def test_a_server_knows_itself_by_its_name() -> None:
    me = "".join(("ser", "ver"))
    assert to_take(me, SHARDS, {"server": set(range(4))}) == frozenset(range(4, 64))
