"""Readiness of a machine with several workers depends on all of them."""

from functools import partial
from pathlib import Path

import pytest
import trio

from sightline.bootstrap.observability.sibling_workers import SiblingWorkers
from sightline.system.server_address_file import write_server_addresses

READY = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"
BODY = b'{"message":"Not ready."}'
NOT_READY = b"HTTP/1.1 503 Unavailable\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s" % (len(BODY), BODY)


async def answer(response: bytes, asked: list[bytes], stream: trio.SocketStream) -> None:
    async with stream:
        asked.append(await stream.receive_some(4_096))
        await stream.send_all(response)


@pytest.mark.parametrize(
    ("others", "is_ok", "ready"),
    [
        ([READY, READY, READY], True, 4),
        ([READY, NOT_READY, None], True, 2),
        ([NOT_READY, NOT_READY, None], False, 1),
    ],
)
async def test_a_machine_is_ready_while_half_of_its_workers_are(
    tmp_path: Path, others: list[bytes | None], *, is_ok: bool, ready: int
) -> None:
    """None: the worker does not answer; the last one of the list has a directory without an address."""
    asked: list[bytes] = []
    directories = [tmp_path / str(number) for number in range(2, 5)]
    async with trio.open_nursery() as nursery:
        for directory, response in zip(directories, others, strict=True):
            directory.mkdir()
            if response is not None:
                serve = partial(trio.serve_tcp, partial(answer, response, asked), 0, host="127.0.0.1")
                (listener,) = await nursery.start(serve)
                url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
                write_server_addresses(directory, url=url, internal_url=url)
        check = await SiblingWorkers(directories, "secret").check()
        nursery.cancel_scope.cancel()
    assert (check.is_ok, check.figures) == (is_ok, {"workersReady": ready, "workers": 4})
    assert check.detail.count("Not ready.") == others.count(NOT_READY)
    assert all(b"authorization: bearer secret" in request.lower() for request in asked)


async def test_a_worker_that_was_there_and_does_not_answer_is_not_ready(tmp_path: Path) -> None:
    write_server_addresses(tmp_path, url="http://127.0.0.1:9", internal_url="http://127.0.0.1:9")
    check = await SiblingWorkers([tmp_path], None).check()
    assert (check.is_ok, check.figures["workersReady"]) == (True, 1)
    assert "does not answer" in check.detail
