"""Rate limits of several servers: each tells the others what callers took."""

from collections.abc import Callable
from typing import Final, NoReturn, final

import trio

from sightline.actors.messages import RatesSpent
from sightline.cluster.peers.peers import Peers

TELL_EVERY_S: Final = 0.1
ITEMS_MAX: Final = 2_000
"""In one message."""


@final
class RemoteRates:
    """Collects what callers take here and sends it to the other servers every 100 ms; a message may be lost."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._spent: dict[tuple[str, str], int] = {}

    @property
    def servers(self) -> int:
        """Number of servers, this one included."""
        return len(self._peers.routes.servers)

    def spent(self, rate: str, key: str, cost: int) -> None:
        """Send it to the other servers soon."""
        bucket = (str(rate), key)
        self._spent[bucket] = self._spent.get(bucket, 0) + cost

    def attach(self, take: Callable[[str, str, int], None]) -> None:
        """Call `take` with the class, key and tokens of what others tell."""

        def take_all(_sender: str, news: RatesSpent) -> None:
            for rate, key, cost in news.spent:
                take(rate, key, cost)

        self._peers.listen(RatesSpent, take_all)

    async def run(self) -> NoReturn:
        """Tell the others until cancelled."""
        while True:
            if self.servers < 2:  # a server that is alone has nothing to tell
                await self._peers.routes.changed.wait()
                continue
            # At fixed times, not 100 ms after a request: the servers' buckets would be full at the same moment.
            await trio.sleep(TELL_EVERY_S)
            items = [(rate, key, cost) for (rate, key), cost in self._spent.items()]
            self._spent.clear()
            for start in range(0, len(items), ITEMS_MAX):
                self._peers.tell_all(RatesSpent(tuple(items[start : start + ITEMS_MAX])))
