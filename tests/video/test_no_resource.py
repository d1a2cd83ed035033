"""Engines whose answer has no Location, such as go2rtc's WHEP: the reader must not DELETE the endpoint itself."""

import trio

from sightline.system.clock import SystemClock
from sightline.video.external.engine import open_external
from sightline.video.options import Options
from sightline.video.worker_template import open_template
from tests.video.support.engines import ReadOnlyEngine
from tests.video.support.harness import (
    SECRET,
    Middle,
    a_frame,
    a_rig,
    a_session_id,
    play_json,
    publishing,
    signal_handler,
)
from tests.video.support.http_server import Reply, listen, serve


async def test_neither_player_nor_reader_deletes_an_endpoint_that_named_no_resource():
    asked: list[str] = []
    listeners, url = await listen()
    async with a_rig() as rig, trio.open_nursery() as nursery:
        forward = signal_handler(rig.backend, url, Middle())

        async def handle(method: str, target: str, headers: dict[str, str], body: bytes) -> Reply:
            asked.append(method)
            status, fields, answer = await forward(method, target, headers, body)
            return status, [field for field in fields if field[0] != "Location"], answer

        serve(nursery, listeners, handle)
        made = await rig.backend.create_input(a_session_id())
        whep_url = made.whep_url.replace(rig.base_url, url)
        options = Options(secret=SECRET, public_url="http://unused", workers=1)
        async with publishing(made.whip_url):
            await a_frame(rig.backend, made.ref)
            assert (await play_json(whep_url, 0.5))["frames"] > 0
            engine = ReadOnlyEngine(whep_url)
            async with (
                open_template() as template,
                open_external(engine, options, template, clock=SystemClock()) as backend,
            ):
                read = await backend.create_input(a_session_id())
                await a_frame(backend, read.ref)
                await backend.close_input(read.ref)
        nursery.cancel_scope.cancel()
    assert set(asked) == {"OPTIONS", "POST"}
