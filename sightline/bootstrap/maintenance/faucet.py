"""The `faucet` command: pays test money from the embedded chain of a running server."""

import json
import sys
from collections.abc import Callable
from typing import TypeAlias

import trio

from sightline.bootstrap.maintenance.error_lines import print_error, print_warning
from sightline.chain.embedded.faucet import open_running_faucet
from sightline.config import Settings
from sightline.domain.errors import SightlineError
from sightline.domain.units import usdc_text
from sightline.system.ids import SystemIds
from sightline.system.server_address_file import read_server_addresses

OtherServer: TypeAlias = Callable[[str, str | None], str | None]
"""Says, from the hash of a payment and the URL of the server that was paid, that the caller uses another server."""


def run_faucet(settings: Settings, address: str, amount_micro: int, *, as_json: bool, other_server: OtherServer) -> int:
    """Pay from the faucet of a running server's embedded chain, and name that server. Returns the exit code."""
    if settings.chain_rpc_url is not None:
        message = "Only the embedded chain has a faucet, and SIGHTLINE_CHAIN_RPC_URL names another chain."
        print_error(message, code="NO_FAUCET", as_json=as_json)
        return 1

    async def pay() -> None:
        async with open_running_faucet(settings.data_dir / "chain", SystemIds()) as opened:
            payment = await opened.fund(address, amount_micro)
        addresses = read_server_addresses(settings.data_dir)
        url = None if addresses is None else addresses.url
        if as_json:
            facts = {
                "address": payment.address,
                "amountMicroUsdc": str(payment.amount_micro),
                "txHash": payment.tx_hash,
                "url": url,
                "dataDir": str(settings.data_dir),
            }
            sys.stdout.write(json.dumps(facts) + "\n")
        else:
            got = f"{payment.address} got {usdc_text(payment.amount_micro)} test USDC in {payment.tx_hash}"
            server = "of the server" if url is None else f"of the server at {url}"
            sys.stdout.write(f"{got}, on the chain {server} with the data directory {settings.data_dir}\n")
        warning = other_server(payment.tx_hash, url)
        if warning is not None:
            print_warning(warning, as_json=as_json)

    try:
        trio.run(pay)
    except (SightlineError, ValueError, OSError) as error:
        print_error(str(error), code=type(error).__name__, as_json=as_json)
        return 1
    return 0
