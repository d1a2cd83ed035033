"""A disk that becomes read-only while the server runs: no call is acknowledged, and afterwards nothing is lost.

ext4 on a loop device, ended by `mount -o remount,abort`, as after an error of the device. A plain remount is refused by
the kernel while files are open for writing.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trio

from sightline.system.server_address_file import read_server_addresses
from sightline_client import SightlineError
from tests.e2e.server import PLACE, Server, until
from tests.nemesis.restored_money import FUNDS, consumer_has, end_and_settle, film_until
from tests.nemesis.test_clock_steps import a_pair

pytestmark = pytest.mark.interop

DISK_MB = 1_200


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # e2fsck exits with 1 when it has corrected errors.
    assert done.returncode in ((0, 1) if command[0] == "e2fsck" else (0,)), (command, done.stdout, done.stderr)


class LoopDisk:
    """An ext4 file system in a file."""

    def __init__(self, image: Path, path: Path) -> None:
        self.image = image
        self.path = path

    def make(self) -> None:
        with self.image.open("wb") as file:
            file.truncate(DISK_MB * 1024 * 1024)
        run("mkfs.ext4", "-q", "-F", str(self.image))
        self.path.mkdir()
        self.mount()
        self.path.chmod(0o711)

    def mount(self) -> None:
        run("mount", "-o", "loop,errors=remount-ro", str(self.image), str(self.path))

    def abort(self) -> None:
        run("mount", "-o", "remount,abort", str(self.path))

    async def repair(self) -> None:
        async def unmounted() -> bool:
            done = await trio.run_process(["umount", str(self.path)], check=False, capture_stderr=True)
            return done.returncode == 0

        await until(unmounted, bool, "the processes that were killed have closed their files")
        run("e2fsck", "-p", str(self.image))
        self.mount()


@pytest.fixture
def disk(data_directory: Path) -> Iterator[LoopDisk]:
    made = LoopDisk(data_directory / "disk.img", data_directory / "disk")
    data_directory.chmod(0o711)
    made.make()
    yield made
    subprocess.run(["umount", "--lazy", str(made.path)], check=False)


@pytest.fixture
def server(disk: LoopDisk) -> Iterator[Server]:
    made = Server(disk.path)
    yield made
    made.end()


async def readiness(server: Server) -> int:
    where = read_server_addresses(server.directory / "data")
    assert where is not None
    async with httpx.AsyncClient(timeout=10) as http:
        try:
            return (await http.get(f"{where.internal_url}/readyz")).status_code
        except httpx.TransportError:
            return 0


async def test_a_read_only_disk_loses_nothing(server: Server, disk: LoopDisk) -> None:
    await server.start()
    pair = await a_pair(server)
    await pair.go_live()
    await film_until(pair, 2)
    charged = sum(map(int, await end_and_settle(pair)))
    disk.abort()
    await until(lambda: readiness(server), lambda status: status != 200, "the server is not ready")
    async with pair.watcher() as watcher:
        with pytest.raises((SightlineError, httpx.TransportError)):
            await watcher.post("/sessions", lat=PLACE[0], lng=PLACE[1], maxDurationSeconds=600)
    await server.kill_everything()
    await disk.repair()
    await server.start()
    await consumer_has(pair, FUNDS - charged)
    async with pair.watcher() as watcher:
        sessions = (await watcher.get("/sessions", view="consumer"))["items"]
    assert [session["id"] for session in sessions] == [pair.session_id], "a refused call had an effect"
    await pair.go_live()
    await film_until(pair, 2)
    again = sum(map(int, await end_and_settle(pair)))
    assert min(charged, again) > 0
    await consumer_has(pair, FUNDS - charged - again)
