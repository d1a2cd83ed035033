"""Stand-ins for engines: their documented APIs over HTTP, with our own forwarder as media.

The JSON has the fields of the MediaMTX 1.x control API and of Cloudflare's Stream API as documented in
November 2026. What they cannot show is the engines' own WebRTC stacks; for MediaMTX, interop/test_mediamtx.py does.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import orjson

from sightline.domain.access import Holder
from sightline.ports.video import MediaKind, SignalRequest, VideoInput
from sightline.video.external.engine import EngineInput, PresenceReport
from sightline.video.external.mediamtx import MediaMtx
from sightline.video.tokens import ref_of, session_of_ref
from tests.video.support.harness import Rig
from tests.video.support.http_server import Reply

JSON = [("Content-Type", "application/json")]


async def _forward(
    rig: Rig, session_id: str, kind: str, base: str, method: str, rest: str, headers: Any, body: bytes
) -> Reply:
    """Let our forwarder answer in place of the engine."""
    described = rig.backend.describe_input(session_id)
    url = described.whip_url if kind == "whip" else described.whep_url
    request = SignalRequest(
        kind=kind,
        method=method,
        token=url.rpartition("/")[2],
        resource=rest or None,
        headers=headers,
        body=body,
        base_url="",
    )
    reply = await rig.backend.signal(request)
    location = f"{base}/{dict(reply.headers).get('Location', '').rpartition('/')[2]}"
    fields = [(name, location if name == "Location" else value) for name, value in reply.headers]
    return reply.status, fields, reply.body


class ReadOnlyEngine:
    """An `Engine` with one WHEP endpoint that always exists."""

    name = "read only"

    def __init__(self, read_url: str) -> None:
        self._read_url = read_url

    async def open(self, session_id: str) -> EngineInput:
        described = VideoInput(ref=ref_of(session_id), whip_url="", whep_url=self._read_url)
        return EngineInput(input=described, read_url=self._read_url)

    async def close(self, session_id: str) -> None:
        """Nothing to remove."""

    def describe(self, session_id: str) -> VideoInput | None:
        del session_id
        return None

    def session_of(self, ref: str) -> str | None:
        return session_of_ref(ref)

    def whep_url_for(self, whep_url: str, holder: Holder) -> str:
        del holder
        return whep_url

    async def end_withdrawn_viewers(self) -> None:
        """Do nothing."""

    async def hook(self, headers: Mapping[str, str], body: bytes, report: PresenceReport) -> int:
        del headers, body, report
        return 404

    async def watch(self, report: PresenceReport) -> None:
        """Do nothing: presence comes from the reader alone."""


@dataclass
class FakeMediaMtx:
    """MediaMTX with one wildcard path and an auth callback."""

    rig: Rig
    base_url: str
    adapter: MediaMtx | None = None
    sessions: dict[str, str] = field(default_factory=dict)
    kicked: list[str] = field(default_factory=list)
    readers: list[tuple[str, str]] = field(default_factory=list)
    """Path and query of each viewer that was let in, our own reader too."""

    async def handle(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Reply:
        path, _, query = target.partition("?")
        if path == "/v3/paths/list":
            return 200, JSON, orjson.dumps(self._paths())
        if path.startswith("/v3/paths/get/"):
            found = [row for row in self._paths()["items"] if row["name"] == path.rpartition("/")[2]]
            return (200, JSON, orjson.dumps(found[0])) if found else (404, JSON, b"{}")
        if path == "/v3/webrtcsessions/list":
            rows = [{"id": str(uuid.uuid4()), "path": name, "state": "publish"} for name in self.sessions]
            rows += [{"id": query, "path": name, "state": "read", "query": query} for name, query in self.readers]
            return 200, JSON, orjson.dumps({"itemCount": len(rows), "pageCount": 1, "items": rows})
        if path.startswith("/v3/webrtcsessions/kick/"):
            self.kicked.append(gone := unquote(path.rpartition("/")[2]))
            self.readers = [each for each in self.readers if each[1] != gone]
            return 200, [], b""
        name, kind, *rest = path.strip("/").split("/")
        asked = {"action": "publish" if kind == "whip" else "read", "path": name, "query": query, "protocol": "webrtc"}
        if method == "POST" and (
            self.adapter is None or await self.adapter.hook({}, orjson.dumps(asked), lambda *_: None) != 200
        ):
            return 401, [], b""
        if method == "POST" and kind == "whep":
            self.readers.append((name, query))
        if name not in self.sessions:
            self.sessions[name] = str(uuid.UUID(hex=name.removeprefix("live_")))
            await self.rig.backend.create_input(self.sessions[name])
        base = f"{self.base_url}/{name}/{kind}"
        status, fields, answer = await _forward(
            self.rig, self.sessions[name], kind, base, method, "/".join(rest), headers, body
        )
        return (404 if status == 409 else status), fields, answer  # MediaMTX answers an idle WHEP with 404

    def _paths(self) -> dict[str, Any]:
        live = set()
        for event in self.rig.events:
            (live.add if event.kind is not MediaKind.DISCONNECTED else live.discard)(event.session_id)
        rows = [
            {"name": name, "ready": session in live, "readyTime": None, "tracks": ["H264"], "bytesReceived": 1}
            for name, session in self.sessions.items()
        ]
        return {"itemCount": len(rows), "pageCount": 1, "items": rows}


@dataclass
class FakeCloudflare:
    """Cloudflare's live inputs of one account."""

    rig: Rig
    base_url: str
    token: str = "t0ken"
    inputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    failing: bool = False

    async def handle(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Reply:
        path = target.partition("?")[0]
        if path.startswith("/client/v4/accounts/acc/stream/live_inputs"):
            return await self._api(method, path.partition("live_inputs")[2].strip("/"), headers, body)
        uid, _, side, *rest = path.strip("/").split("/")
        kind = {"publish": "whip", "play": "whep"}[side]
        base = f"{self.base_url}/{uid}/webRTC/{side}"
        return await _forward(self.rig, uid, kind, base, method, "/".join(rest), headers, body)

    async def _api(self, method: str, uid: str, headers: dict[str, str], body: bytes) -> Reply:
        if self.failing:
            return 503, [], b"upstream"
        if headers.get("authorization") != f"Bearer {self.token}":
            return 403, JSON, self._answer(None, errors=[{"code": 10000, "message": "Authentication error"}])
        if method == "GET" and not uid:
            rows = [{name: row[name] for name in ("uid", "meta", "created")} for row in self.inputs.values()]
            return 200, JSON, self._answer({"liveInputs": rows, "total": len(rows), "range": len(rows)})
        if method == "POST":
            uid = str(uuid.uuid4())
            await self.rig.backend.create_input(uid)
            self.inputs[uid] = {
                "uid": uid,
                "meta": orjson.loads(body)["meta"],
                "created": datetime.now(tz=UTC).isoformat(),
                "webRTC": {"url": f"{self.base_url}/{uid}/webRTC/publish"},
                "webRTCPlayback": {"url": f"{self.base_url}/{uid}/webRTC/play"},
                "recording": {"mode": "off"},
                "status": None,
            }
            return 200, JSON, self._answer(self.inputs[uid])
        if uid not in self.inputs:
            return 404, JSON, self._answer(None, errors=[{"code": 10003, "message": "Not found"}])
        if method == "DELETE":
            await self.rig.backend.close_input(self.rig.backend.describe_input(uid).ref)
            del self.inputs[uid]
            return 204, [], b""
        return 200, JSON, self._answer(self.inputs[uid])

    @staticmethod
    def _answer(result: Any, errors: list[dict[str, Any]] | None = None) -> bytes:
        return orjson.dumps({"result": result, "success": not errors, "errors": errors or [], "messages": []})
