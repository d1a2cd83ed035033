"""Consumers and operators that call a server while it is killed repeatedly, and a record of all answers."""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, final

import httpx
import trio

from sightline_client.video.assets import clip_path
from tests.e2e.history import TERMINAL, History, Made, Outcome, ShownOpen, Told
from tests.e2e.server import PLACE, Server, Tenant

NO_OPERATOR: Final = "dispatch:noOperator"
FILMED_S: Final = 6.0
ASSIGNMENT_PATIENCE_S: Final = 2.0
STUDIO: Final = (PLACE[0] + 1.0, PLACE[1] + 1.0)
"""Coordinates of the filmed sessions, outside the coverage of all other operators."""


@final
@dataclass
class Stage:
    """State that the callers share: whether the server runs, and the history."""

    server: Server
    seed: str
    history: History = field(default_factory=History)
    closed: trio.Event = field(default_factory=trio.Event)
    """Once set, callers start no new sessions."""
    note: Callable[[httpx.Response, float], None] = lambda _answer, _began: None
    """Called with every answer, and with the time at which its request was sent."""
    is_database_defective: bool = False
    """Whether the database refuses right statements: 500 is an answer then, and its outcome unknown."""
    up: trio.Event = field(default_factory=trio.Event)
    down: trio.Event = field(default_factory=trio.Event)

    @property
    def is_open(self) -> bool:
        return not self.closed.is_set()

    def rng(self, name: str) -> Random:
        return Random(f"{self.seed}:{name}")

    async def progress(self, enough: int) -> None:
        """Wait until this many changes were requested: a round on a busy machine is longer but not emptier."""
        while len(self.history.made) < enough:  # noqa: ASYNC110  all callers add to the history
            await trio.sleep(0.01)

    def rise(self) -> None:
        self.down = trio.Event()
        self.up.set()

    def fall(self) -> None:
        self.up = trio.Event()
        self.down.set()


@final
class Caller:
    """A caller with one credential, which repeats each change with its key until the outcome is known."""

    def __init__(self, stage: Stage, tenant: Tenant, name: str) -> None:
        self.stage = stage
        self.tenant = tenant
        self.id = tenant.workspace_id
        self.rng = stage.rng(name)
        self._name = name
        self._count = 0
        limits = httpx.Limits(max_connections=20)
        headers = {"authorization": f"Bearer {tenant.key}"}
        self._http = httpx.AsyncClient(headers=headers, timeout=35.0, limits=limits)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["Caller"]:
        async with self._http:
            yield self

    def make(self, method: str, path: str, body: dict[str, Any] | None = None) -> Made:
        """Add a change to the history, to be sent by `attempt`."""
        self._count += 1
        made = Made(self.id, method, path, f"{self._name} {self._count}", body, began=trio.current_time())
        self.stage.history.made.append(made)
        return made

    async def act(self, method: str, path: str, body: dict[str, Any] | None = None) -> Told:
        """Make a change, and repeat it until its outcome is known."""
        return await self.repeat(self.make(method, path, body))

    async def repeat(self, made: Made) -> Told:
        """Send the call with its key until an answer is final, and record that answer."""
        while (told := await self.attempt(made)) is None:
            await self.pause(0.02)
        return told

    async def attempt(self, made: Made) -> Told | None:
        """Send the call with its key once, and record a final answer; None if there is none."""
        told = await self._send(made.method, made.path, made.body, {"idempotency-key": made.key})
        if told is None or told.status == 504:
            made.lost += 1
            return None
        if _is_for_now(told):
            return None
        if not made.told:
            made.ended = trio.current_time()
        made.told.append(told)
        return told

    async def read(self, path: str, **query: Any) -> dict[str, Any]:
        """Read, and repeat until there is an answer."""
        while True:
            began = trio.current_time()
            told = await self._send("GET", path, None, {}, query)
            if told is not None and not _is_for_now(told) and told.status != 504:
                assert told.is_done, (path, told)
                self._note_open(told.data, began)
                return told.data
            await self.pause(0.02)

    def _note_open(self, data: dict[str, Any], began: float) -> None:
        if data.get("state") == "REQUESTED":
            self.stage.history.shown_open.append(ShownOpen(data["id"], began, trio.current_time()))

    async def read_all(self, path: str, **query: Any) -> list[dict[str, Any]]:
        """Read all pages of a list."""
        items: list[dict[str, Any]] = []
        cursor: dict[str, Any] = {}
        while True:
            page = await self.read(path, limit=100, **query, **cursor)
            items += page["items"]
            if page["nextCursor"] is None:
                return items
            cursor = {"cursor": page["nextCursor"]}

    async def send_once(self, path: str, body: dict[str, Any]) -> Told | None:
        """Send a change once and without a key; None if its outcome is unknown."""
        told = await self._send("POST", path, body, {})
        return None if told is None or told.status == 504 else told

    async def _send(
        self, method: str, path: str, body: Any, headers: dict[str, str], query: dict[str, Any] | None = None
    ) -> Told | None:
        await self.stage.up.wait()
        began = trio.current_time()
        try:
            # Looked up for each call: another server may have taken over.
            url = f"{self.stage.server.url}/api/v1{path}"
            answer = await self._http.request(method, url, json=body, headers=headers, params=query)
        except httpx.TransportError:
            return None
        self.stage.note(answer, began)
        if answer.status_code >= 500 and answer.status_code not in (503, 504):
            if self.stage.is_database_defective:
                return None
            said = f"{method} {path} was answered {answer.status_code}: {answer.text[:300]}"
            self.stage.history.unexpected.append(said)
            return None
        return Told(answer.status_code, answer.json())

    async def pause(self, seconds: float) -> None:
        """Wait for about this many seconds."""
        await trio.sleep(self.rng.uniform(0, 2 * seconds))

    # Behaviour of a consumer.

    async def consume(self) -> None:
        """Create sessions in every way the API allows, while the stage is open."""
        while self.stage.is_open:
            if self.rng.random() < 0.2:
                await self._create_unkeyed()
                continue
            created = await self.act("POST", "/sessions", await self._wish())
            if not created.is_done:
                continue  # its quote has expired, or was used while the clock was stepped
            session_id, mood = created.data["id"], self.rng.random()
            if mood < 0.15:
                await self.act("DELETE", f"/sessions/{session_id}")
            elif mood < 0.75:
                await self._dispatch(session_id)
            else:
                await self._await_state(session_id, {"REQUESTED"}, ASSIGNMENT_PATIENCE_S)
                await self.act("DELETE", f"/sessions/{session_id}")

    async def _create_unkeyed(self) -> None:
        """Create a session once and without a key, so that no retry hides the effect of a refusal."""
        marker = f"{self._name} {self.rng.getrandbits(64):x}"
        wish = {"lat": PLACE[0], "lng": PLACE[1], "waitTimeoutSeconds": 3600, "metadata": {"marker": marker}}
        told = await self.send_once("/sessions", wish)
        if told is None:
            self.stage.history.unkeyed[marker] = Outcome.UNKNOWN
        elif told.is_done:
            self.stage.history.unkeyed[marker] = Outcome.DONE
            await self.act("DELETE", f"/sessions/{told.data['id']}")
        else:
            self.stage.history.unkeyed[marker] = Outcome.REFUSED
            await self.pause(0.1)

    async def _wish(self) -> dict[str, Any]:
        wish = {"lat": PLACE[0], "lng": PLACE[1], "maxDurationSeconds": 600, "waitTimeoutSeconds": 3600}
        if self.rng.random() < 0.3:
            quote = await self.read("/pricing/quote", lat=PLACE[0], lng=PLACE[1], durationSeconds=600)
            wish["quoteId"] = quote["quoteId"]
        return wish

    async def _dispatch(self, session_id: str) -> None:
        dispatched = await self.act("POST", f"/sessions/{session_id}/dispatch")
        if not dispatched.is_done:
            await self.act("DELETE", f"/sessions/{session_id}")
            return
        await self._await_state(session_id, {"ASSIGNED"}, 3 * ASSIGNMENT_PATIENCE_S)
        await self.pause(0.3)
        if self.rng.random() < 0.5:
            await self.act("POST", f"/sessions/{session_id}/end")

    async def _await_state(self, session_id: str, past: set[str], patience_s: float) -> None:
        """Wait until the session has left these states, up to a time limit."""
        with trio.move_on_after(patience_s):
            while (await self.read(f"/sessions/{session_id}"))["state"] in past and self.stage.is_open:
                await self.pause(0.05)

    # Behaviour of an operator.

    async def operate(self) -> None:
        """Accept, start, cancel and end sessions while the stage is open."""
        while self.stage.is_open:
            mine = await self.read("/sessions", view="operator", state=["ASSIGNED", "LIVE"])
            for session in mine["items"]:
                await self._work_on(session)
            if not mine["items"] and self.rng.random() < 0.5:
                await self._accept_one()
            if self.rng.random() < 0.05:
                await self.act("PATCH", f"/workspaces/{self.id}", {"name": f"Renamed {self.rng.randrange(10**6)}"})
            await self.pause(0.05)

    async def _work_on(self, session: dict[str, Any]) -> None:
        path, mood = f"/sessions/{session['id']}", self.rng.random()
        if session["state"] == "LIVE" and mood < 0.15:
            await self.act("POST", f"{path}/end")
        elif session["state"] == "ASSIGNED" and mood < 0.2:
            await self.act("POST", "/sessions/cancel-all-assignments")
        elif session["state"] == "ASSIGNED":
            await self.act("POST", f"{path}/start")

    async def _accept_one(self) -> None:
        offered = (await self.read("/sessions", view="open"))["items"]
        for session in self.rng.sample(offered, min(2, len(offered))):
            body = {"operatorWorkspaceId": self.id}
            await self.act("POST", f"/sessions/{session['id']}/accept", body)

    async def beat(self, place: tuple[float, float] = PLACE) -> None:
        """Send heartbeats with increasing sequences, one at a time or in batches."""
        sequence = 0
        while self.stage.is_open:
            size = self.rng.choice((1, 1, 1, 5))
            fixes = [
                {"lat": place[0], "lng": place[1], "accuracyMeters": 5, "sequence": sequence + nth + 1}
                for nth in range(size)
            ]
            sequence += size
            if size == 1:
                told = await self.send_once(f"/workspaces/{self.id}/location", fixes[0])
                accepted = [sequence] if told is not None and told.is_done else []
            else:
                told = await self.send_once(f"/workspaces/{self.id}/locations", {"items": fixes})
                items = told.data["items"] if told is not None and told.is_done else []
                accepted = [item["sequence"] for item in items if item["ok"]]
            for one in accepted:
                self.stage.history.acknowledge(self.id, one)
            await self.pause(0.05)

    async def last_sequence(self) -> int:
        """Return the newest sequence that the server has; its refusal of an older one contains it."""
        while True:
            told = await self.send_once(f"/workspaces/{self.id}/location", {"lat": 0, "lng": 0, "sequence": 0})
            if told is not None and told.detail == "location:sequence":
                return int(told.body["lastSequence"])
            if told is not None and told.is_done:
                return -1  # there was none


async def film(consumer: Caller, operator: Caller, seconds: float) -> None:
    """Run filmed sessions one after the other: published by WHIP, again after each restart, ended by the consumer."""
    while consumer.stage.is_open:
        wish = {"lat": STUDIO[0], "lng": STUDIO[1], "maxDurationSeconds": 600, "waitTimeoutSeconds": 3600}
        session_id = (await consumer.act("POST", "/sessions", wish)).data["id"]
        started = await _start(consumer, operator, session_id)
        if started is None:
            continue
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_publish, consumer.stage, started.data["whipUrl"])
            with trio.move_on_after(seconds):
                await consumer.stage.closed.wait()
            nursery.cancel_scope.cancel()
        await consumer.act("POST", f"/sessions/{session_id}/end")


async def _start(consumer: Caller, operator: Caller, session_id: str) -> Told | None:
    """Dispatch and start a session; None if it ended before that, as when the clock jumps past its deadline."""
    while not (await consumer.act("POST", f"/sessions/{session_id}/dispatch")).is_done:
        if (await consumer.read(f"/sessions/{session_id}"))["state"] in TERMINAL:
            return None
        await consumer.pause(0.05)
    started = await operator.act("POST", f"/sessions/{session_id}/start")
    return started if started.is_done else None


async def _publish(stage: Stage, whip_url: str) -> None:
    path = httpx.URL(whip_url).path  # any of several servers takes it
    while True:
        await stage.up.wait()
        program = [sys.executable, "-m", "sightline_client.video.publish"]
        command = [*program, str(clip_path()), "--whip", stage.server.url + path]
        async with trio.open_nursery() as nursery:

            async def until_down(scope: trio.CancelScope = nursery.cancel_scope) -> None:
                await stage.down.wait()
                scope.cancel()

            nursery.start_soon(until_down)
            await trio.run_process(command, check=False, capture_stdout=True, capture_stderr=True)
            nursery.cancel_scope.cancel()


async def bring_to_an_end(consumer: Caller, operators: dict[str, Caller]) -> None:
    """End or cancel every open session of the consumer."""
    while True:
        sessions = await consumer.read_all("/sessions", view="consumer")
        rest = [session for session in sessions if session["state"] not in TERMINAL]
        if not rest:
            return
        for session in rest:
            match session["state"]:
                case "REQUESTED":
                    await consumer.act("DELETE", f"/sessions/{session['id']}")
                case "ASSIGNED":
                    await operators[session["operatorWorkspaceId"]].act("POST", "/sessions/cancel-all-assignments")
                case _:
                    await consumer.act("POST", f"/sessions/{session['id']}/end")


def _is_for_now(told: Told) -> bool:
    """Return whether the answer says that the call had no effect and may be repeated."""
    if told.status in (408, 429, 503):  # 408: the server was suspended before it had read the body
        return told.detail != NO_OPERATOR
    return told.detail == "idempotency:inProgress"
