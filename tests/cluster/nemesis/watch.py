"""Callers that only watch: how long sessions do not answer, whether a read is stale, which errors occur."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from random import Random
from typing import Final

import httpx
import trio

from sightline.domain.value import Value
from tests.cluster.nemesis.system import Service
from tests.e2e.traffic import Caller

WATCHED: Final = 16
WATCH_EVERY_S: Final = 0.15
READ_TIMEOUT_S: Final = 5.0
SLOW_S: Final = 6.0
FAR: Final = (-40.0, 120.0)
"""No operator covers it."""


class Read(Value):
    """One read of a session, repeated until it was answered."""

    session_id: str
    began: float
    ended: float

    @property
    def took_s(self) -> float:
        return self.ended - self.began


@dataclass
class Watch:
    """Reads waiting sessions of many shards all the time, each at a random server that is a door."""

    service: Service
    consumer: Caller
    rng: Random
    reads: list[Read] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)
    timeouts: list[str] = field(default_factory=list)
    """Reads that got no answer at all within `READ_TIMEOUT_S`."""

    async def open(self) -> None:
        """Create the sessions."""
        for _ in range(WATCHED):
            wish = {"lat": FAR[0], "lng": FAR[1], "waitTimeoutSeconds": 3_600}
            self.sessions.append((await self.consumer.act("POST", "/sessions", wish)).data["id"])

    async def run(self) -> None:
        headers = {"authorization": f"Bearer {self.consumer.tenant.key}"}
        limits = httpx.Limits(max_connections=4 * WATCHED)
        http = httpx.AsyncClient(headers=headers, timeout=READ_TIMEOUT_S, limits=limits)
        async with http, trio.open_nursery() as nursery:
            for session_id in self.sessions:
                nursery.start_soon(self._follow, http, session_id)

    async def _follow(self, http: httpx.AsyncClient, session_id: str) -> None:
        while self.consumer.stage.is_open:
            await trio.sleep(self.rng.uniform(0, 2 * WATCH_EVERY_S))
            began = trio.current_time()
            while not await self._answers(http, session_id):  # noqa: ASYNC110  the server sets no trio event
                await trio.sleep(0.02)
            self.reads.append(Read(session_id, began, trio.current_time()))

    async def _answers(self, http: httpx.AsyncClient, session_id: str) -> bool:
        began = trio.current_time()
        try:
            url = f"{self.service.url}/api/v1/sessions/{session_id}"
            answer = await http.get(url)
        except httpx.TimeoutException as error:
            self.timeouts.append(f"{type(error).__name__} after {READ_TIMEOUT_S:g} s: {url}")
            return False
        except httpx.TransportError:
            return False
        self.consumer.stage.note(answer, began)
        return answer.status_code == 200

    async def until_all_answered(self, since: float) -> None:
        """Wait until every session has answered a read that began after this time."""
        missing = set(self.sessions)
        while missing:
            await trio.sleep(0.01)
            missing -= {read.session_id for read in self.reads[-8 * WATCHED :] if read.began >= since}

    def pauses(self, since: float, sessions: Collection[str]) -> list[float]:
        """The longest read of each session that ended after this time: how long it did not answer."""
        longest = dict.fromkeys(sessions, 0.0)
        for read in reversed(self.reads):
            if read.ended < since - 60:
                break
            if read.ended >= since and read.session_id in longest:
                longest[read.session_id] = max(longest[read.session_id], read.took_s)
        return sorted(longest.values())


@dataclass
class Register:
    """A name that one caller changes and others read: no read may return an older name than was acknowledged before."""

    writer: Caller
    acknowledged: int = 0
    reads: int = 0

    async def write(self) -> None:
        number = 0
        while self.writer.stage.is_open:
            number += 1
            told = await self.writer.act("PATCH", f"/workspaces/{self.writer.id}", {"name": f"Register {number}"})
            assert told.is_done, told
            self.acknowledged = number
            await self.writer.pause(0.1)

    async def read(self) -> None:
        while self.writer.stage.is_open:
            least = self.acknowledged
            told = await self.writer._send("GET", f"/workspaces/{self.writer.id}", None, {})
            if told is not None and told.is_done and least:
                self.reads += 1
                seen = int(told.data["name"].rpartition(" ")[2])
                if seen < least:
                    text = f"a read returned name {seen} of {self.writer.id} after {least} was acknowledged"
                    self.writer.stage.history.unexpected.append(text)
            await self.writer.pause(0.05)


@dataclass
class Answers:
    """Counts of the answers that callers got."""

    statuses: Counter[int] = field(default_factory=Counter)
    unexpected: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)
    """Answers that took longer than `SLOW_S`."""

    def note(self, answer: httpx.Response, began: float) -> None:
        self.statuses[answer.status_code] += 1
        took_s = trio.current_time() - began
        if took_s > SLOW_S:
            path = answer.request.url.path
            self.slow.append(
                f"{answer.request.method} {path}: {answer.status_code} after {took_s:.1f} s {answer.text[:200]}"
            )
        if answer.status_code == 503 and "retry-after" not in answer.headers:
            said = f"{answer.request.method} {answer.request.url.path} was answered 503 without Retry-After"
            self.unexpected.append(f"{said}: {answer.text[:300]}")

    def since(self, before: Counter[int]) -> Counter[int]:
        return self.statuses - before
