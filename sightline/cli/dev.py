"""The `sightline dev` command: a server with a funded consumer, an operator and its device, for developing against."""

import json
import sys
import tempfile
from pathlib import Path
from typing import Final

import trio

from sightline.cli.local import COVERAGE_M, LocalServer, LocalServerError, console_url
from sightline_client import AsyncSightline
from sightline_client.commands.signals import stop_like_ctrl_c

FUNDS: Final = 1_000_000_000
SETTINGS: Final = {"SIGHTLINE_WEBHOOK_ALLOW_LOOPBACK": "true"}
"""Webhooks can be tried with a program on the same machine."""


def run_dev(*, port: int, data_dir: Path | None, place: tuple[float, float], as_json: bool) -> int:
    """Run until Ctrl-C or SIGTERM. Returns the exit code."""
    directory = data_dir if data_dir is not None else Path(tempfile.mkdtemp(prefix="sightline-dev-"))
    directory.mkdir(parents=True, exist_ok=True)
    local = LocalServer(directory, port=port, settings=SETTINGS)
    stop_like_ctrl_c()
    try:
        trio.run(_serve, local, place, as_json)
    except KeyboardInterrupt:
        return 0
    except LocalServerError as error:
        sys.stderr.write(f"{error}\nserver log: {local.log_path}\n")
        return 1
    return 0


async def _serve(local: LocalServer, place: tuple[float, float], as_json: bool) -> None:
    async with local.running() as server:
        wallet = await local.funded_wallet(FUNDS)
        suffix = wallet.address[2:10].lower()
        consumer = await local.join(wallet, "CONSUMER", f"dev-consumer-{suffix}", scopes=["webhooks:write"])
        operator = await local.join(await local.funded_wallet(FUNDS), "SUPPLIER", f"dev-operator-{suffix}")
        async with AsyncSightline(local.url, operator.key) as api:
            await api.workspaces.update(
                operator.workspace_id,
                availability_state="ONLINE",
                coverage_lat=place[0],
                coverage_lng=place[1],
                coverage_radius_meters=COVERAGE_M,
                device_kind="PHONE",
            )
            # A quote counts only operators whose device was seen within a minute.
            await api.workspaces.post_location(operator.workspace_id, lat=place[0], lng=place[1], sequence=0)
        said = {
            "url": local.url,
            "consumerKey": consumer.key,
            "operatorKey": operator.key,
            "consumerWalletKey": wallet.private_key,
            "consoleUrl": console_url(local.url, wallet.private_key),
            "lat": place[0],
            "lng": place[1],
            "dataDir": str(local.directory),
        }
        async with local.device(operator, place):
            sys.stdout.write(json.dumps(said) + "\n" if as_json else _text(said))
            sys.stdout.flush()
            await server.wait()
    raise LocalServerError("the server has stopped")


def _text(said: dict[str, object]) -> str:
    return f"""Sightline runs at {said["url"]}. The key is that of a funded consumer.
An operator films {said["lat"]}, {said["lng"]}. Ctrl-C stops it. Data and logs: {said["dataDir"]}

export SIGHTLINE_URL={said["url"]}
export SIGHTLINE_API_KEY={said["consumerKey"]}
export SIGHTLINE_WALLET_KEY={said["consumerWalletKey"]}
sightline watch {said["lat"]} {said["lng"]} --seconds 60 --out frames

Console, signed in with the consumer's wallet: {said["consoleUrl"]}
API reference: {said["url"]}/docs   MCP server: {said["url"]}/mcp
Manual: {said["url"]}/manual/
"""
