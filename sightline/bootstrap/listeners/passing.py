"""Chooses the worker that serves a connection: the one beside the actor that the first request names."""

import re
from functools import partial
from pathlib import Path
from typing import Final

from sightline.cluster.peers.peers import Peers
from sightline.cluster.routes import Routes
from sightline.http.server import ConnectionPassing

FIRST_LINE: Final = re.compile(rb"[A-Z]+ /api/v1/(?:sessions|workspaces)/([0-9a-fA-F]{2})")
"""A session or a workspace with the first two digits of its id, which are its shard."""


def connection_passing(peers: Peers, directory: Path | None) -> ConnectionPassing | None:
    """Pass connections to the workers beside this one.

    A device or an agent that keeps its connection then talks to the process that has its actor in memory.

    Args:
        directory: Of this worker; None: it has none beside it.
    """
    if directory is None or not ConnectionPassing.is_possible(directory, peers.routes.me):
        return None
    return ConnectionPassing(directory, peers.routes.me, partial(_choose, peers.routes))


def _choose(routes: Routes, first: bytes) -> str | None:
    found = FIRST_LINE.match(first)
    owner = routes.owner(int(found[1], 16)) if found is not None else None
    return None if owner == routes.me else owner
