"""Data of earlier commits starts under this code without loss. scripts/make_upgrade_data.py made the archives.

The archives are in the repository and not made from its history, because a shallow clone has no history. Each holds a
settled session, an unsettled one whose payer had approved nothing, and one that was LIVE.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest

from sightline_client import AsyncChain
from sightline_client.wallet import LocalWallet
from tests.backup.conftest import sightline
from tests.client.api import Api
from tests.e2e.server import Server, until

DATA: Final = Path(__file__).parent / "data"
COMMITS: Final = ("f83e316", "0d99db6", "17e87ec")
RECORDED: Final = ("consumerWorkspaceId", "operatorWorkspaceId", "createdAt", "startedAt", "ratePerSecondMicroUsdc")
OUTCOME: Final = ("state", "endedAt", "endReason", "cleanSeconds", "chargedMicroUsdc")


SEVERAL: Final = 2
"""Workers of a service of several servers."""


@pytest.fixture(params=COMMITS)
def old(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def start_on(server: Server, old: str, workers: int = 1) -> dict[str, Any]:
    """Restore an archive, start the server on it; returns what the old server said."""
    done = await sightline("restore", DATA / f"{old}.backup", "--data-dir", server.directory / "data")
    assert done.returncode == 0, done.stderr
    # Sessions of the archive are not too old to be kept, whenever this test runs.
    keep = {"SIGHTLINE_HISTORY_KEEP_DAYS": "36500", "SIGHTLINE_HEARTBEAT_KEEP_DAYS": "36500"}
    server.env = keep | {"SIGHTLINE_WORKERS": str(workers)}
    await server.start()
    said: dict[str, Any] = json.loads((DATA / f"{old}.json").read_text())
    return said


async def test_data_of_an_earlier_commit_starts_without_loss(server: Server, old: str) -> None:
    await continue_from(await start_on(server, old), server)


async def test_data_of_a_single_server_of_an_earlier_commit_starts_on_several(server: Server) -> None:
    said = await start_on(server, COMMITS[-1], SEVERAL)
    shown = await sightline("nodes", "--json", "--data-dir", server.directory / "data")
    assert len(json.loads(shown.stdout)["items"]) == SEVERAL, shown
    await continue_from(said, server)


async def continue_from(said: dict[str, Any], server: Server) -> None:
    """Check that nothing that the old server said is lost, and that what was open is paid."""
    config, before, tenants = said["config"], said["sessions"], said["tenants"]
    paths = {name: f"/sessions/{session['id']}" for name, session in before.items()}
    async with (
        Api(server.url, key=tenants["payer"]["key"]) as payer,
        Api(server.url, key=tenants["debtor"]["key"]) as debtor,
    ):
        settled, unsettled = await payer.get(paths["settled"]), await debtor.get(paths["unsettled"])
        for name in (*RECORDED, *OUTCOME):
            assert settled[name] == before["settled"][name], name
            assert unsettled[name] == before["unsettled"][name], name
        assert settled["settlementTxHash"] == before["settled"]["settlementTxHash"]

        # Its devices have been silent since the backup: it ends, charged up to the last proof.
        live = await until(lambda: payer.get(paths["live"]), lambda seen: seen["state"] == "ENDED", "LIVE session ends")
        assert live["endReason"] in {"LOCATION_LOST", "MEDIA_LOST"}
        assert live["cleanSeconds"] >= before["live"]["cleanSeconds"] > 0
        ran_s = datetime.fromisoformat(live["endedAt"]) - datetime.fromisoformat(live["startedAt"])
        assert live["cleanSeconds"] <= ran_s.total_seconds()

        # The unsettled session is paid as soon as its payer allows it.
        chain = AsyncChain(f"{server.url}/rpc")
        wallet = LocalWallet.from_key(tenants["debtor"]["wallet"])
        await chain.approve(
            wallet, token=config["usdcAddress"], spender=config["settlementAddress"], amount=said["funds"]
        )
        paid = {"settled": 0, "live": 0, "unsettled": 0}
        for name in paid:
            api = debtor if name == "unsettled" else payer
            receipt = await until(
                lambda api=api, name=name: api.get(f"/settlements/{before[name]['id']}"),
                lambda seen: seen["state"] == "CONFIRMED",
                f"{name} session is settled",
            )
            paid[name] = int(receipt["payload"]["toAmount"]) + int(receipt["payload"]["feeAmount"])
        assert paid["settled"] == int(settled["chargedMicroUsdc"])
        assert paid["unsettled"] == int(unsettled["chargedMicroUsdc"]) > 0
        assert paid["live"] == int(live["chargedMicroUsdc"])
        for api, spent in ((payer, paid["settled"] + paid["live"]), (debtor, paid["unsettled"])):
            left = {"trackedBalance": str(said["funds"] - spent), "heldMicroUsdc": "0"}
            await until(
                lambda api=api: api.get("/wallet"), lambda seen, left=left: left.items() <= seen.items(), str(left)
            )
