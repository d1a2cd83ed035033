"""Streams of other servers: who follows what, and news for them.

Each server tells the others what its streams follow, at each change and every few seconds. That message is numbered
like all others, so that a server notices within these seconds if it missed news, and lets its streams read again.
"""

from collections.abc import Iterable
from typing import Final, final

import trio

from sightline.actors.messages import ActorChanged, DeviceMoved, Followed, FollowedChanged, RequestChanged
from sightline.actors.watchers import Watchers
from sightline.cluster.peers.peers import Peers

TELL_EVERY_S: Final = 5.0


@final
class RemoteStreams:
    """Implements `OtherStreams`. Attach it to the watchers, and `run` it."""

    def __init__(self, watchers: Watchers, peers: Peers) -> None:
        self._watchers = watchers
        self._peers = peers
        self._followers: dict[tuple[str, str], set[str]] = {}
        """The servers of which a stream follows an actor."""
        self._operators: set[str] = set()
        """The servers of which a stream reports requests."""
        peers.listen(Followed, self._take_all)
        peers.listen(FollowedChanged, self._take_change)
        peers.listen(ActorChanged, lambda _, news: watchers.wake(news.kind, news.id, news.session_id))
        peers.listen(DeviceMoved, lambda _, news: watchers.wake_move(news.kind, news.id))
        peers.listen(RequestChanged, lambda _, news: watchers.wake_request(news.session_id, news.lat, news.lng))

    async def run(self) -> None:
        """Tell the others what is followed here: every few seconds, and at once when a server comes or goes."""
        known: frozenset[str] = frozenset()
        while True:
            others = self._peers.routes.others
            self._forget(known - others)
            for server in sorted(others):
                self._peers.tell(server, Followed(self._watchers.followed, self._watchers.has_operators))
            known = others
            with trio.move_on_after(TELL_EVERY_S):
                while self._peers.routes.others == known:
                    await self._peers.routes.changed.wait()

    # What happens here.

    def follow(self, kind: str, actor_id: str, *, is_on: bool) -> None:
        """Tell the others that an actor is followed here."""
        self._tell(self._peers.routes.others, FollowedChanged(str(kind), actor_id, is_on))

    def notify(self, kind: str, actor_id: str, session_id: str | None) -> None:
        """Tell the servers that follow an actor of this one."""
        self._tell(self._followers.get((kind, actor_id), ()), ActorChanged(str(kind), actor_id, session_id))

    def notify_move(self, kind: str, actor_id: str) -> None:
        """Tell the servers that follow a session of which the device moved."""
        followers = self._followers.get((kind, actor_id))
        if followers is not None:
            self._tell(followers, DeviceMoved(str(kind), actor_id))

    def notify_request(self, session_id: str, lat: float, lng: float) -> None:
        """Tell the servers with operators that look for requests."""
        self._tell(self._operators, RequestChanged(session_id, lat, lng))

    def _tell(self, servers: Iterable[str], news: object) -> None:
        # In an order that does not depend on the process, for the simulator.
        for server in sorted(servers):
            self._peers.tell(server, news)

    # What other servers say.

    def _take_all(self, server: str, followed: Followed) -> None:
        self._forget({server})
        for watch in followed.watches:
            self._followers.setdefault(watch, set()).add(server)
        if followed.has_operators:
            self._operators.add(server)

    def _take_change(self, server: str, change: FollowedChanged) -> None:
        key = (change.kind, change.id)
        if change.is_on:
            self._followers.setdefault(key, set()).add(server)
        elif (servers := self._followers.get(key)) is not None:
            servers.discard(server)
            if not servers:
                del self._followers[key]

    def _forget(self, servers: Iterable[str]) -> None:
        gone = set(servers)
        if gone:
            self._operators -= gone
            kept = {key: names - gone for key, names in self._followers.items()}
            self._followers = {key: names for key, names in kept.items() if names}
