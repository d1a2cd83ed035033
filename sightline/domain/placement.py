"""Which server should own which shard. Each server computes this from the same list of servers, without a leader.

A shard that nobody owns goes to the server with the highest hash of server and shard (rendezvous hashing), so that
servers do not compete for it and a change of the list moves few shards. Living owners give shards away; nobody takes
a shard from a living owner.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from math import ceil
from typing import Final

IMBALANCE: Final = 1.1
"""A server gives shards away when it owns more than this part of its fair share."""
GIVEN_AT_ONCE_MAX: Final = 8


def preferred(shard: int, servers: Collection[str]) -> str:
    """The server that takes the shard when nobody owns it; the same at every server. At least one server."""
    return max(servers, key=lambda server: hashlib.blake2b(f"{shard} {server}".encode(), digest_size=8).digest())


def to_take(me: str, shards: Collection[int], owned: Mapping[str, Collection[int]]) -> frozenset[int]:
    """The shards without an owner that `me` prefers.

    Args:
        owned: What each valid server owns; `me` is one of them.
    """
    taken = set[int]().union(*owned.values())
    return frozenset(shard for shard in shards if shard not in taken and preferred(shard, owned) == me)


def to_give(me: str, shards: Collection[int], owned: Mapping[str, Collection[int]]) -> dict[str, Sequence[int]]:
    """The shards that `me` should hand to others now, by receiver: none up to 10 % above the fair share."""
    mine, share = sorted(owned[me]), ceil(len(shards) / len(owned))
    surplus = min(len(mine) - share, GIVEN_AT_ONCE_MAX) if len(mine) > share * IMBALANCE else 0
    missing = {server: share - len(has) for server, has in owned.items() if server != me and len(has) < share}
    given: dict[str, list[int]] = {}
    # A shard whose preferred server has room goes there; the other ones to whoever misses most.
    for shard in sorted(mine, key=lambda shard: preferred(shard, owned) not in missing):
        if surplus <= 0 or not missing:
            break
        wanted = preferred(shard, owned)
        receiver = wanted if wanted in missing else max(missing, key=lambda server: (missing[server], server))
        given.setdefault(receiver, []).append(shard)
        surplus -= 1
        missing[receiver] -= 1
        if not missing[receiver]:
            del missing[receiver]
    return {receiver: tuple(found) for receiver, found in given.items()}
