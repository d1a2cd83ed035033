"""`sightline device` with an IP camera: its packets are forwarded unchanged, also after the camera was away."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import av
import trio

from sightline_client.video.assets import clip_path
from sightline_client.video.live_source import open_live_track
from tests.client.api import Api
from tests.e2e.server import PLACE, Server, a_tenant, go_online, until
from tests.video.support.harness import counter_of
from tests.video.support.real_engines import CAMERA_PASSWORD, an_rtsp_camera, free_ports


@asynccontextmanager
async def a_device(url: str, key: str, source: str, log_path: Path) -> AsyncIterator[None]:
    """Run `sightline device` with a source until the block ends."""
    command = [sys.executable, "-m", "sightline.cli", "device", "--api", url, f"--lat={PLACE[0]}", f"--lng={PLACE[1]}"]
    env = os.environ | {"SIGHTLINE_API_KEY": key, "SIGHTLINE_SOURCE": source}
    with log_path.open("wb") as log_file:
        process = await trio.lowlevel.open_process(command, stdout=log_file, stderr=subprocess.STDOUT, env=env)
    try:
        yield
    finally:
        process.terminate()
        with trio.CancelScope(shield=True):
            await process.wait()


async def await_picture(api: Api, session_id: str, *, after: int = 0) -> int:
    """Wait for a frame newer than `after` in which the clip's counter can be read. Returns its sequence number."""

    frame = await until(
        lambda: api.frame(session_id),
        lambda seen: seen is not None and seen.sequence > after and counter_of(seen.jpeg) is not None,
        "a frame of the camera",
    )
    return int(frame.sequence)


async def test_a_camera_that_loses_its_power_is_forwarded_again_in_the_same_session(
    running_server: Server, tmp_path: Path
) -> None:
    (port,) = free_ports(socket.SOCK_STREAM)
    url, device_log = running_server.url, tmp_path / "device.log"
    async with AsyncExitStack() as camera, AsyncExitStack() as stack:
        source = await camera.enter_async_context(an_rtsp_camera(port, clip_path()))
        consumer = await a_tenant(url, "CONSUMER", "watcher")
        operator = await a_tenant(url, "SUPPLIER", "camera")
        await go_online(url, operator)
        await stack.enter_async_context(a_device(url, operator.key, source, device_log))
        api = await stack.enter_async_context(Api(url, key=consumer.key))
        session = await api.post("/sessions", lat=PLACE[0], lng=PLACE[1])
        await api.post(f"/sessions/{session['id']}/dispatch")
        read = lambda: api.get(f"/sessions/{session['id']}")  # noqa: E731
        await until(read, lambda seen: seen["state"] == "LIVE", "the device starts the session")
        sequence = await await_picture(api, session["id"])

        await camera.aclose()
        await until(
            lambda: trio.Path(device_log).read_text(),
            lambda said: f"cannot open rtsp://127.0.0.1:{port}/cam" in said,
            "the device notices that the camera is away",
        )
        await camera.enter_async_context(an_rtsp_camera(port, clip_path()))
        await await_picture(api, session["id"], after=sequence)

        ended = await api.post(f"/sessions/{session['id']}/end")
        assert (ended["state"], ended["endReason"]) == ("ENDED", "CONSUMER_ENDED")
    assert CAMERA_PASSWORD not in device_log.read_text() + running_server.log()


async def test_packets_of_a_camera_are_forwarded_unchanged() -> None:
    (port,) = free_ports(socket.SOCK_STREAM)

    async def some_packets(url: str) -> list[bytes]:
        track = await open_live_track(url)
        packets = [bytes(await track.recv()) for _ in range(60)]
        track.stop()
        return packets

    async with an_rtsp_camera(port, clip_path()) as url:
        await until(lambda: trio.to_thread.run_sync(can_open, url), lambda opens: opens, "the camera serves its stream")
        packets = await trio.to_thread.run_sync(asyncio.run, some_packets(url))
    with av.open(str(clip_path())) as clip:
        pictures = {bytes(packet)[-64:] for packet in clip.demux(video=0) if packet.size}
    assert [packet for packet in packets if packet[-64:] not in pictures] == []


def can_open(url: str) -> bool:
    try:
        av.open(url, options={"rtsp_transport": "tcp"}).close()
    except av.FFmpegError:
        return False
    return True
