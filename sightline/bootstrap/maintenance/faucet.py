"""The `faucet` command: pays test money from the embedded chain of a running server."""

import json
import sys
from pathlib import Path

import trio

from sightline.bootstrap.maintenance.error_lines import print_error
from sightline.chain.embedded.faucet import open_running_faucet
from sightline.config import Settings
from sightline.domain.errors import SightlineError
from sightline.domain.units import usdc_text
from sightline.system.ids import SystemIds


def chain_directory(data_dir: Path) -> Path:
    """Return the directory of the embedded chain, also if `data_dir` is that of `sightline dev`, which holds `data`."""
    own, of_dev = data_dir / "chain", data_dir / "data" / "chain"
    return of_dev if of_dev.is_dir() and not own.is_dir() else own


def run_faucet(settings: Settings, address: str, amount_micro: int, *, as_json: bool) -> int:
    """Pay from the faucet of a running server's embedded chain. Returns the exit code."""
    if settings.chain_rpc_url is not None:
        message = "Only the embedded chain has a faucet, and SIGHTLINE_CHAIN_RPC_URL names another chain."
        print_error(message, code="NO_FAUCET", as_json=as_json)
        return 1

    async def pay() -> None:
        async with open_running_faucet(chain_directory(settings.data_dir), SystemIds()) as opened:
            payment = await opened.fund(address, amount_micro)
        if as_json:
            facts = {
                "address": payment.address,
                "amountMicroUsdc": str(payment.amount_micro),
                "txHash": payment.tx_hash,
            }
            sys.stdout.write(json.dumps(facts) + "\n")
        else:
            sys.stdout.write(
                f"{payment.address} got {usdc_text(payment.amount_micro)} test USDC in {payment.tx_hash}\n"
            )

    try:
        trio.run(pay)
    except (SightlineError, ValueError, OSError) as error:
        print_error(str(error), code=type(error).__name__, as_json=as_json)
        return 1
    return 0
