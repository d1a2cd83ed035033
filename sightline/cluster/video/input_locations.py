"""Finds the server whose media workers hold an input."""

from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import Final, TypeAlias, final

import structlog
import trio

from sightline.cluster.peers.video_messages import HeldInput
from sightline.cluster.video.peers import RemoteVideoPeers
from sightline.domain.errors import VideoUnavailableError

KNOWN_MAX: Final = 65_536
ASKED_MAX: Final = 1_000
"""Sessions in one question to a server."""

log = structlog.get_logger()

Location: TypeAlias = tuple[str, HeldInput]
"""A server, and the input that it holds."""


@final
class _Question:
    """A search for one input. Several tasks may wait for it."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.found: Location | None = None
        self.error: VideoUnavailableError | None = None


@final
class InputLocations:
    """Where the inputs of other servers are, as this server has found it among servers with a valid lease.

    Searches that are due at the same time are one question to each server: after a take-over, many sessions load.
    """

    def __init__(self, peers: RemoteVideoPeers) -> None:
        self._peers = peers
        self._known: OrderedDict[str, Location] = OrderedDict()
        self._due: dict[str, _Question] = {}
        self._wakeup = trio.Event()

    def known(self, session_id: str) -> Location | None:
        """The location as it was last found, while its server has a valid lease."""
        location = self._known.get(session_id)
        return location if location is not None and location[0] in self._peers.servers() else None

    def forget(self, session_id: str) -> None:
        """Forget where an input is. The next request searches for it."""
        self._known.pop(session_id, None)

    async def find(self, session_id: str) -> Location | None:
        """Ask all other servers; None if none of them has the input.

        Raises:
            VideoUnavailableError: A server did not answer, and none of the others has it.
        """
        question = self._due.get(session_id)
        if question is None:
            question = self._due[session_id] = _Question()
            self._wakeup.set()
        await question.done.wait()
        if question.error is not None:
            raise question.error
        return question.found

    def take_lost(self, servers: frozenset[str]) -> list[tuple[str, HeldInput]]:
        """Forget, and return, the sessions whose input is on none of these servers."""
        lost = [(session_id, held) for session_id, (server, held) in self._known.items() if server not in servers]
        for session_id, _held in lost:
            del self._known[session_id]
        return lost

    async def run(self) -> None:
        """Search until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                await self._wakeup.wait()
                self._wakeup = trio.Event()
                asked, self._due = self._due, {}
                nursery.start_soon(self._search, asked)

    async def _search(self, asked: dict[str, _Question]) -> None:
        failures: list[VideoUnavailableError] = []
        session_ids = tuple(asked)

        async def ask(server: str) -> None:
            for start in range(0, len(session_ids), ASKED_MAX):
                wanted = session_ids[start : start + ASKED_MAX]
                try:
                    self._note(server, await self._peers.find(server, wanted), asked)
                except VideoUnavailableError as error:
                    failures.append(error)
                except Exception as error:  # noqa: BLE001  a wrong answer of another server must not end this one
                    log.error("video_answer_not_understood", server=server, error=repr(error)[:200])
                    failures.append(VideoUnavailableError("a server answered what is not understood"))

        async with trio.open_nursery() as nursery:
            for server in self._peers.servers():
                nursery.start_soon(ask, server)
        for question in asked.values():
            if question.found is None and failures:
                question.error = failures[0]
            question.done.set()

    def _note(self, server: str, found: Sequence[HeldInput], asked: dict[str, _Question]) -> None:
        for held in found:
            question = asked[held.session_id]  # it answers what it was asked
            question.found = self._known[held.session_id] = (server, held)
            question.done.set()
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)


def servers_of(location: Location | None, servers: frozenset[str]) -> Collection[str]:
    """The servers that may hold an input: the one known, or all while none is known."""
    return servers if location is None else (location[0],)
