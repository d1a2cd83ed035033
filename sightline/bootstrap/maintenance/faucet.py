"""The `faucet` command: pays test money from the embedded chain of a running server."""

import sys

import trio

from sightline.chain.embedded.node import open_running_faucet
from sightline.config import Settings
from sightline.domain.errors import SightlineError
from sightline.system.ids import SystemIds


def run_faucet(settings: Settings, address: str, amount_micro: int) -> int:
    """Pay from the faucet of a running server's embedded chain. Returns the exit code."""
    if settings.chain_rpc_url is not None:
        sys.stderr.write("there is a faucet on the embedded chain only\n")
        return 1

    async def pay() -> None:
        async with open_running_faucet(settings.data_dir / "chain", SystemIds()) as opened:
            payment = await opened.fund(address, amount_micro)
            sys.stdout.write(f"{payment.address} got {payment.amount_micro} micro-USDC in {payment.tx_hash}\n")

    try:
        trio.run(pay)
    except (SightlineError, ValueError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0
