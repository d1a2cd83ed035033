"""Kill a server under load repeatedly: nothing acknowledged is lost, and no effect happens twice."""

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from tests.e2e.history import violations
from tests.e2e.server import Server, until
from tests.e2e.town import Town, a_town, find, repeat_some, start_traffic

# If the server dies while a request is being sent, httpx leaves the request's body to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Async generator 'httpx:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ROUNDS: Final = int(os.environ.get("SIGHTLINE_KILL_ROUNDS", "3"))
"""`make nightly` runs 50."""
SEED: Final = os.environ.get("SIGHTLINE_KILL_SEED", "1")


async def kill_rounds(town: Town, rounds: int) -> list[float]:
    """Kill and start the server repeatedly, also during a start. Returns the seconds from each kill to ready."""
    stage, rng, took_s = town.stage, town.stage.rng("killer"), []
    for _ in range(rounds):
        enough = len(stage.history.made) + rng.randint(5, 30)
        await trio.sleep(rng.uniform(0.2, 1.5))
        await stage.progress(enough)
        stage.fall()
        await stage.server.kill()
        if rng.random() < 0.25:
            stage.server.spawn()
            await trio.sleep(rng.uniform(0.1, 2.5))
            await stage.server.kill()
        killed = trio.current_time()
        await stage.server.start()
        took_s.append(trio.current_time() - killed)
        stage.rise()
        await repeat_some(town)
    return took_s


async def work(town: Town, rounds: int) -> list[float]:
    """Run all traffic while the server is killed; returns the seconds of each restart."""
    async with trio.open_nursery() as nursery:
        start_traffic(town, nursery)
        took_s = await kill_rounds(town, rounds)
        await until(_film_sessions(town), _any_clean_second, "a filmed session has clean seconds")
        town.stage.closed.set()
    return took_s


def _film_sessions(town: Town) -> Callable[[], Awaitable[Any]]:
    filming = town.consumers[-1]
    return lambda: filming.read("/sessions", view="consumer", state=["LIVE", "ENDED"])


def _any_clean_second(page: dict[str, Any]) -> bool:
    return any(session["cleanSeconds"] > 0 for session in page["items"])


async def crash_and_check(server: Server, rounds: int, seed: str) -> None:
    async with a_town(server, seed) as town:
        took_s = await work(town, rounds)
        found = await find(town)
    history = town.stage.history
    wrong = violations(history, found)
    lost = sum(made.lost for made in history.made)
    charged = sum(int(session["chargedMicroUsdc"]) for session in found.sessions.values())
    sys.stdout.write(
        f"{rounds} rounds, seed {seed}: {len(history.made)} changes ({lost} of unknown outcome, repeated), "
        f"{len(found.sessions)} sessions ({len(found.meters)} live once, {charged} micro-USDC charged), "
        f"{history.acknowledged} heartbeats; kill to ready {min(took_s):.2f}..{max(took_s):.2f} s\n"
    )
    assert not wrong, "\n".join([f"SIGHTLINE_KILL_SEED={seed} SIGHTLINE_KILL_ROUNDS={rounds}", *wrong])
    assert any(session["cleanSeconds"] > 0 for session in found.sessions.values())
    assert history.acknowledged > 0


@pytest.fixture
def strict_server(data_directory: Path) -> Server:
    return Server(data_directory, env={"SIGHTLINE_DISPATCH_MODE": "strict"})


@pytest.mark.timeout(600 + 36 * ROUNDS)
async def test_nothing_is_lost_or_doubled_by_kill_9_under_load(strict_server: Server) -> None:
    try:
        await crash_and_check(strict_server, ROUNDS, SEED)
    finally:
        strict_server.end()
