"""The `sightline dev` command: a server with a funded consumer, an operator and its device, for developing against."""

import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import trio

from sightline.cli.local import (
    COVERAGE_M,
    ESCROW,
    LOCAL_SCOPES,
    LOCAL_SETTINGS,
    LocalServer,
    LocalServerError,
    LocalTenant,
    console_url,
    exports,
    own_command,
)
from sightline.http.console.manual import is_manual_built
from sightline.http.links import other_devices_hint
from sightline_client import AsyncSightline, ConflictError
from sightline_client.commands.signals import stop_like_ctrl_c
from sightline_client.models import Availability
from sightline_client.money import MicroUsdc

FUNDS: Final = 1_000_000_000


def run_dev(*, port: int, data_dir: Path | None, place: tuple[float, float], is_escrow: bool, as_json: bool) -> int:
    """Run until Ctrl-C or SIGTERM. Returns the exit code. A temporary directory is deleted, unless its logs are needed.

    Raises:
        SightlineError: The server could not start, or has stopped.
    """
    directory = data_dir.absolute() if data_dir is not None else Path(tempfile.mkdtemp(prefix="sightline-dev-"))
    directory.mkdir(parents=True, exist_ok=True)
    local = LocalServer(directory, port=port, settings=LOCAL_SETTINGS | (ESCROW if is_escrow else {}))
    is_kept = data_dir is not None
    stop_like_ctrl_c()
    try:
        trio.run(_serve, local, place, is_escrow, as_json)
    except KeyboardInterrupt:
        return 0
    except Exception as error:
        is_kept = is_kept or not isinstance(error, LocalServerError) or error.log_path is not None
        raise
    finally:
        if not is_kept:
            shutil.rmtree(directory, ignore_errors=True)
    return 0


STARTING: Final = "Starting a server, a chain and a device. This takes up to half a minute.\n"


async def _serve(local: LocalServer, place: tuple[float, float], is_escrow: bool, as_json: bool) -> None:
    if not as_json:
        sys.stderr.write(STARTING)
    async with local.running() as server:
        wallet = await local.funded_wallet(FUNDS, local.kept_wallet("consumer"))
        suffix = wallet.address[2:10].lower()
        consumer = await local.join(wallet, "CONSUMER", f"dev-consumer-{suffix}", scopes=LOCAL_SCOPES["CONSUMER"])
        if is_escrow:
            await local.give_mandate(consumer, FUNDS)
        films = await local.funded_wallet(FUNDS, local.kept_wallet("operator"))
        operator = await local.join(films, "SUPPLIER", f"dev-operator-{suffix}")
        async with AsyncSightline(local.url, operator.key) as api:
            # In a session of an earlier run with this directory it is BUSY: the device goes on with that one first.
            is_busy = (await api.workspaces.get(operator.workspace_id)).availability_state == Availability.BUSY
            await api.workspaces.update(
                operator.workspace_id,
                availability_state=None if is_busy else Availability.ONLINE,
                coverage_lat=place[0],
                coverage_lng=place[1],
                coverage_radius_meters=COVERAGE_M,
                device_kind="PHONE",
            )
            await _report_position(api, operator, place)
        said = {
            "url": local.url,
            "consumerKey": consumer.key,
            "operatorKey": operator.key,
            "consumerWalletKey": wallet.private_key,
            "consoleUrl": console_url(local.url, wallet.private_key),
            "lat": place[0],
            "lng": place[1],
            "dataDir": str(local.data_dir),
            "logFile": str(local.log_path),
        }
        async with local.device(operator, place):
            mandate = FUNDS if is_escrow else None
            lines = exports(local.url, consumer, operator)
            text = ready_text(said, lines, has_manual=is_manual_built(), mandate=mandate)
            sys.stdout.write(json.dumps(said) + "\n" if as_json else text)
            sys.stdout.flush()
            try:
                await server.wait()
            except (KeyboardInterrupt, trio.Cancelled):
                sys.stderr.write("Stopping. This takes some seconds.\n")
                raise
    raise LocalServerError("The server has stopped.", local.log_path)


async def _report_position(api: AsyncSightline, operator: LocalTenant, place: tuple[float, float]) -> None:
    """Send a heartbeat: a quote counts only operators whose device was seen within a minute."""
    report = partial(api.workspaces.post_location, operator.workspace_id, lat=place[0], lng=place[1])
    try:
        await report(sequence=0)
    except ConflictError as error:  # a device of an earlier run with this directory has sent some
        if error.last_sequence is None:
            raise
        await report(sequence=error.last_sequence + 1)


def ready_text(said: Mapping[str, object], lines: str, *, has_manual: bool, mandate: int | None = None) -> str:
    """Say what runs, and what to open and to run.

    Args:
        lines: For a shell, with the server's address and the keys.
        mandate: Limit in micro-USDC of the consumer's mandate, with escrow.
    """
    key = said["consumerKey"]
    pays = (
        ""
        if mandate is None
        else "Payments are held in escrow. The key buys under a mandate that dev has set: at most "
        f"{MicroUsdc(mandate).usdc} USDC a session and a day, for a day.\n"
    )
    manual = f"Manual: {said['url']}/manual/\n" if has_manual else ""
    return f"""Sightline runs at {said["url"]}. The key is that of a funded consumer.
An operator films {said["lat"]}, {said["lng"]}. Ctrl-C stops it.
Data: {said["dataDir"]}
Log: {said["logFile"]}
{pays}
{lines}{own_command()} watch {said["lat"]} {said["lng"]} --seconds 60 --out frames

Console, signed in with the consumer's wallet: {said["consoleUrl"]}
API reference: {said["url"]}/docs
Claude Code: claude mcp add --transport http sightline {said["url"]}/mcp --header "Authorization: Bearer {key}"
{manual}{other_devices_hint(str(said["url"])) or ""}
"""
