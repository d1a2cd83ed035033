"""`sightline backup` and `sightline restore`: a copy made under load is consistent, and bad input changes nothing."""

import sys
from pathlib import Path

import pytest
import trio

from tests.backup.conftest import sightline
from tests.e2e.history import state_violations
from tests.e2e.server import Server, until
from tests.e2e.town import Town, a_town, find, start_traffic

pytestmark = [
    # If the server dies while a request is being sent, httpx leaves the request's body to the garbage collector.
    pytest.mark.filterwarnings("ignore:Async generator 'httpx:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


async def back_up_under_load(town: Town, file: Path) -> None:
    """Run all traffic, back up in the middle of it, go on, and cancel the traffic."""
    stage = town.stage
    async with trio.open_nursery() as nursery:
        start_traffic(town, nursery)
        filming = town.consumers[-1]
        await until(
            lambda: filming.read("/sessions", view="consumer", state=["LIVE"]),
            lambda page: any(session["cleanSeconds"] > 0 for session in page["items"]),
            "a filmed session has clean seconds",
        )
        await stage.progress(len(stage.history.made) + 20)
        done = await sightline("backup", file, "--data-dir", stage.server.directory / "data")
        assert done.returncode == 0, done.stderr
        await stage.progress(len(stage.history.made) + 20)
        nursery.cancel_scope.cancel()


@pytest.mark.interop
async def test_a_backup_under_load_restores_to_sums_that_agree_with_the_chain(
    server: Server, data_directory: Path
) -> None:
    file, restored = data_directory / "drill.backup", data_directory / "restored"
    async with a_town(server, "backup drill") as town:
        await back_up_under_load(town, file)
        town.stage.fall()
        await server.kill()
        done = await sightline("restore", file, "--data-dir", restored / "data")
        assert done.returncode == 0, done.stderr
        server.directory = restored
        await server.start()
        town.stage.rise()
        found = await find(town)
    wrong = state_violations(found)
    charged = sum(int(session["chargedMicroUsdc"]) for session in found.sessions.values())
    sys.stdout.write(
        f"{len(found.sessions)} sessions restored, {charged} micro-USDC charged, {file.stat().st_size} bytes\n"
    )
    assert not wrong, "\n".join(wrong)
    assert found.sessions
