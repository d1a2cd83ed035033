"""The faucet of the embedded chain, as a server and a developer's command call it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import final

import httpx
from eth_utils.address import to_checksum_address

from sightline.chain.embedded.node import read_report
from sightline.chain.rpc.client import JsonRpc, RpcOptions, RpcResponseError, open_rpc
from sightline.domain.errors import ChainUnavailableError, OutcomeUnknownError
from sightline.ports.chain import FaucetPayment
from sightline.ports.ids import Ids


@final
class EmbeddedFaucet:
    """The faucet of the embedded chain. Requests carry the secret that is stored in the chain's data directory."""

    def __init__(self, rpc: JsonRpc, data_dir: Path) -> None:
        self._rpc = rpc
        self._secret_path = data_dir / "faucet.secret"

    async def fund(self, address: str, amount_micro: int) -> FaucetPayment:
        """Mint test USDC to the address and top up its native coin. See `PayTestMoney`."""
        secret = self._secret_path.read_text(encoding="ascii").strip()
        account = to_checksum_address(address)
        try:
            (result,) = await self._rpc.send_once([("sightline_faucet", [secret, account, str(amount_micro)])])
        except ChainUnavailableError as error:
            if isinstance(error.__cause__, httpx.ConnectError):
                raise
            raise OutcomeUnknownError(
                "the faucet did not answer in time, and may have paid. Look at the balance before you ask again"
            ) from error
        if isinstance(result, RpcResponseError):
            raise ChainUnavailableError(f"the faucet refused: {result.message}")
        return FaucetPayment(tx_hash=result["transactionHash"], address=account, amount_micro=amount_micro)


@asynccontextmanager
async def open_running_faucet(data_dir: Path, ids: Ids) -> AsyncIterator[EmbeddedFaucet]:
    """Open the faucet of an embedded chain that another process runs in this directory.

    Raises:
        ChainUnavailableError: No embedded chain has been started in this directory.
    """
    report = read_report(data_dir)
    async with open_rpc(f"http://127.0.0.1:{report['port']}", RpcOptions(), ids) as rpc:
        yield EmbeddedFaucet(rpc, data_dir)
