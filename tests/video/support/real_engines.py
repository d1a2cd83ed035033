"""Real engines as child processes: MediaMTX and go2rtc, which scripts/interop_engines.sh installs."""

import os
import re
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import orjson
import trio

from sightline.domain.value import Value
from sightline.ports.video import LocalVideo
from tests.video.support.http_server import Handler, Reply

ROOT: Final = Path(__file__).resolve().parents[3]
ENGINES: Final = ROOT / ".interop" / "engines"
MANUAL: Final = ROOT / "docs" / "ops" / "video.md"
PATIENCE_S: Final = 20.0
CAMERA_PASSWORD: Final = "camera-password"


def free_ports(*kinds: socket.SocketKind) -> list[int]:
    """Return a different free port for each kind."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket(socket.AF_INET, kind)) for kind in kinds]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def manual_settings() -> str:
    """Return the mediamtx.yml of the manual."""
    block = re.search(r"Copy into `mediamtx.yml`.*?```yaml\n(.*?)```", MANUAL.read_text(), re.DOTALL)
    assert block is not None, f"{MANUAL} has no settings for MediaMTX"
    return block[1]


@asynccontextmanager
async def _running(name: str, arguments: list[str], probe_url: str, env: dict[str, str]) -> AsyncIterator[int]:
    """Run an engine until the block ends; waits until it answers."""
    program = ENGINES / name
    assert program.exists(), "run scripts/interop_engines.sh"
    with tempfile.TemporaryDirectory(prefix=f"sightline-{name}-") as folder:
        log_path = Path(folder) / "log"
        with log_path.open("wb") as log:
            process = await trio.lowlevel.open_process(
                [str(program), *arguments], cwd=folder, env=os.environ | env, stdout=log, stderr=subprocess.STDOUT
            )
        try:
            assert await _answers(process, probe_url), log_path.read_text()[-2000:]
            yield process.pid
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()


async def _answers(process: trio.Process, url: str) -> bool:
    """Wait for the first answer; false if the engine exits or does not answer."""
    with trio.move_on_after(PATIENCE_S):
        async with httpx.AsyncClient() as http:
            while process.poll() is None:
                try:
                    if url.startswith("rtsp:"):
                        await (await trio.open_tcp_stream("127.0.0.1", urlsplit(url).port or 0)).aclose()
                        return True
                    return (await http.get(url)).is_success
                except (httpx.TransportError, OSError):
                    await trio.sleep(0.02)
    return False


def hooks_of(backend: LocalVideo) -> Handler:
    """The routes of the internal listener that engines call."""

    async def handle(method: str, target: str, headers: dict[str, str], body: bytes) -> Reply:
        assert method == "POST"
        return await backend.engine_hook(target.rpartition("/")[2], headers, body), [], b""

    return handle


class RealMediaMtx(Value):
    """A running MediaMTX."""

    media_url: str
    api_url: str
    pid: int

    async def listing(self, kind: str) -> list[dict[str, Any]]:
        """Return what its API lists of a kind: paths, webrtcsessions."""
        async with httpx.AsyncClient() as http:
            reply = await http.get(f"{self.api_url}/v3/{kind}/list")
        rows: list[dict[str, Any]] = reply.json()["items"]
        return rows


def mediamtx_ports() -> list[int]:
    """Free ports for MediaMTX: WebRTC over HTTP, media, API."""
    return free_ports(socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_STREAM)


@asynccontextmanager
async def a_mediamtx(hook_url: str, ports: list[int] | None = None) -> AsyncIterator[RealMediaMtx]:
    """Run MediaMTX with the manual's settings, changed in the addresses only.

    Args:
        hook_url: The internal listener, which MediaMTX asks who may publish and play.
        ports: The result of `mediamtx_ports`, to restart with the same ports.
    """
    media, udp, api = ports or mediamtx_ports()
    env = {
        "MTX_WEBRTCADDRESS": f"127.0.0.1:{media}",
        "MTX_WEBRTCLOCALUDPADDRESS": f"127.0.0.1:{udp}",
        "MTX_WEBRTCADDITIONALHOSTS": "127.0.0.1",
        "MTX_APIADDRESS": f"127.0.0.1:{api}",
        "MTX_AUTHHTTPADDRESS": f"{hook_url}/internal/engines/mediamtx",
    }
    media_url, api_url = f"http://127.0.0.1:{media}", f"http://127.0.0.1:{api}"
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as settings:
        settings.write(manual_settings())
        settings.flush()
        async with _running("mediamtx", [settings.name], f"{api_url}/v3/paths/list", env) as pid:
            yield RealMediaMtx(media_url, api_url, pid)


@asynccontextmanager
async def an_rtsp_camera(port: int, clip: Path) -> AsyncIterator[str]:
    """Run an IP camera: a MediaMTX that serves the clip by RTSP in a loop, unchanged, to who knows its password.

    It is killed at the end of the block, as when a camera loses its power. Yields the URL with the password.
    """
    (api,) = free_ports(socket.SOCK_STREAM)
    push = f"ffmpeg -nostdin -loglevel error -re -stream_loop -1 -i {clip} -c copy -f rtsp rtsp://127.0.0.1:{port}/cam"
    reader = {"user": "viewer", "pass": CAMERA_PASSWORD, "permissions": [{"action": "read"}]}
    anyone = {"user": "any", "permissions": [{"action": "publish"}, {"action": "api"}]}
    settings = {
        "api": True,
        "apiAddress": f"127.0.0.1:{api}",
        "authInternalUsers": [reader, anyone],
        "rtspAddress": f"127.0.0.1:{port}",
        "rtspTransports": ["tcp"],
        **dict.fromkeys(("rtmp", "hls", "webrtc", "srt"), False),
        "paths": {"cam": {"runOnInit": push, "runOnInitRestart": True}},
    }
    with tempfile.NamedTemporaryFile("wb", suffix=".yml") as file:  # JSON is YAML too
        file.write(orjson.dumps(settings))
        file.flush()
        async with _running("mediamtx", [file.name], f"http://127.0.0.1:{api}/v3/paths/list", {}):
            yield f"rtsp://viewer:{CAMERA_PASSWORD}@127.0.0.1:{port}/cam"


@asynccontextmanager
async def an_rtsp_bridge(whep_url: str) -> AsyncIterator[str]:
    """Run MediaMTX with the settings of deploy/, on a free port; yields the RTSP URL."""
    (port,) = free_ports(socket.SOCK_STREAM)
    url = f"rtsp://127.0.0.1:{port}/live"
    env = {
        "MTX_RTSPADDRESS": f"127.0.0.1:{port}",
        "MTX_PATHS_LIVE_SOURCE": whep_url.replace("http", "whep", 1),
    }
    async with _running("mediamtx", [str(ROOT / "deploy" / "mediamtx-rtsp.yml")], url, env):
        yield url


class Received(Value):
    """The video that go2rtc has received for a stream."""

    codecs: list[str]
    packets: int
    bytes_: int


class RealGo2Rtc(Value):
    """A running go2rtc."""

    url: str
    pid: int

    def whip_url(self, stream: str) -> str:
        return f"{self.url}/api/webrtc?dst={stream}"

    def whep_url(self, stream: str) -> str:
        return f"{self.url}/api/webrtc?src={stream}"

    async def received(self, stream: str) -> Received:
        """Return what the sources of a stream have sent so far."""
        async with httpx.AsyncClient() as http:
            reply = await http.get(f"{self.url}/api/streams", params={"src": stream})
        receivers = [one for source in reply.json()["producers"] for one in source.get("receivers", [])]
        video = [one for one in receivers if one["codec"]["codec_type"] == "video"]
        return Received(
            codecs=[str(one["codec"]["codec_name"]) for one in video],
            packets=sum(one.get("packets", 0) for one in video),
            bytes_=sum(one.get("bytes", 0) for one in video),
        )


@asynccontextmanager
async def a_go2rtc(streams: dict[str, str]) -> AsyncIterator[RealGo2Rtc]:
    """Run go2rtc with these streams: name -> source, or "" for a stream that is published to it."""
    (port,) = free_ports(socket.SOCK_STREAM)
    config = {
        "api": {"listen": f"127.0.0.1:{port}"},
        "rtsp": {"listen": ""},
        "srtp": {"listen": ""},
        "webrtc": {"listen": "", "ice_servers": [], "filters": {"loopback": True}},
        "streams": streams,
    }
    url = f"http://127.0.0.1:{port}"
    async with _running("go2rtc", ["-config", orjson.dumps(config).decode()], f"{url}/api/streams", {}) as pid:
        yield RealGo2Rtc(url, pid)
