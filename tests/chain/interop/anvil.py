"""Anvil as a child process: a node with a mempool, forks and fee spikes. See scripts/interop_anvil.sh."""

import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio
from eth_account import Account
from eth_utils.address import to_canonical_address

from sightline.chain.contracts.abi import settlement_constructor
from sightline.chain.contracts.artefacts import artefact
from sightline.chain.contracts.escrow import escrow_constructor
from sightline.chain.embedded.deploy import address_of, contract_address
from sightline.chain.rpc.client import JsonRpc, RpcOptions, open_rpc
from tests.chain.world import clock, ids, until

CHAIN_ID = 84_532_777
# A command such as anvil_reorg must not be repeated.
PATIENT = RpcOptions(timeout_ms=120_000, tries=1)
FEE_RECEIVER = "0x" + "fe" * 20
INSTALLED = Path(__file__).parents[3] / ".interop" / "anvil" / "anvil"


def anvil_binary() -> str:
    found = os.environ.get("SIGHTLINE_ANVIL") or (str(INSTALLED) if INSTALLED.exists() else shutil.which("anvil"))
    assert found, "anvil is not here: run scripts/interop_anvil.sh"
    return found


@dataclass
class Anvil:
    """A running anvil with both contracts and automine off: `mine` makes blocks."""

    url: str
    rpc: JsonRpc
    treasury_key: str
    relayer_key: str
    token: str
    settlement: str
    meter_key: str = ""
    """Of SessionEscrow; empty with SessionSettlement."""
    chain_id: int = CHAIN_ID
    blocks: trio.Lock = field(default_factory=trio.Lock)
    """Held while blocks are made or replaced: anvil 1.7.1 loses some when it does both at once."""

    async def mine(self, count: int = 1) -> None:
        async with self.blocks:
            await self.rpc.call("anvil_mine", hex(count))

    async def reorganise(self, depth: int) -> None:
        """Replace the last blocks by empty ones."""
        async with self.blocks:
            await self.rpc.call("anvil_reorg", depth, [])

    async def pending(self) -> dict[str, Any]:
        content: dict[str, Any] = (await self.rpc.call("txpool_content"))["pending"]
        return content

    async def until_pending(self) -> None:
        async def waits() -> bool:
            return bool(await self.pending())

        await until("a transaction waits in the pool", waits)

    async def deploy(self) -> None:
        treasury = address_of(self.treasury_key)
        for key in (self.treasury_key, self.relayer_key):
            await self.rpc.call("anvil_setBalance", address_of(key), hex(10**24))
        arguments = settlement_constructor(
            token=self.token, owner=treasury, relayer=address_of(self.relayer_key), fee_receiver=FEE_RECEIVER,
            max_fee_bps=3_000, session_cap_micro=10**15, consent_required=False, admin_delay_s=0,
        )  # fmt: skip
        contract = artefact("SessionSettlement").bytecode + arguments
        if self.meter_key:
            contract = artefact("SessionEscrow").bytecode + escrow_constructor(
                token=self.token, owner=treasury, meter=address_of(self.meter_key), standby_meter="0x" + "00" * 20,
                fee_receiver=FEE_RECEIVER, max_fee_bps=3_000, session_cap_micro=10**15, max_rate=10_000,
                admin_delay_s=0,
            )  # fmt: skip
        creations = (artefact("TestUSDC").bytecode + bytes(12) + to_canonical_address(treasury), contract)
        for nonce, creation in enumerate(creations):
            fields = {
                "type": 2, "chainId": self.chain_id, "nonce": nonce, "value": 0, "data": creation, "gas": 5_000_000,
                "maxFeePerGas": 10**11, "maxPriorityFeePerGas": 10**9,
            }  # fmt: skip
            raw = bytes(Account.sign_transaction(fields, self.treasury_key).raw_transaction)
            await self.rpc.call("eth_sendRawTransaction", "0x" + raw.hex())
        await self.mine()


@asynccontextmanager
async def open_anvil(
    *, treasury_key: str | None = None, genesis_s: int | None = None, is_escrow: bool = False, chain_id: int = CHAIN_ID
) -> AsyncIterator[Anvil]:
    """Run a new anvil with automine off. The same treasury key gives the same contract addresses."""
    given = ("--chain-id", str(chain_id), "--no-mining", "--timestamp", str(genesis_s or clock.now_ms() // 1_000))
    async with anvil_process(*given) as url, open_rpc(url, PATIENT, ids) as rpc:
        treasury = treasury_key or "0x" + ids.token_bytes(32).hex()
        relayer = "0x" + ids.token_bytes(32).hex()
        anvil = Anvil(
            url=url, rpc=rpc, treasury_key=treasury, relayer_key=relayer,
            token=contract_address(address_of(treasury), 0), settlement=contract_address(address_of(treasury), 1),
            meter_key="0x" + ids.token_bytes(32).hex() if is_escrow else "", chain_id=chain_id,
        )  # fmt: skip
        await anvil.deploy()
        yield anvil


@asynccontextmanager
async def anvil_process(*arguments: str) -> AsyncIterator[str]:
    """Run anvil; gives its URL."""
    command = [anvil_binary(), "--port", "0", "--hardfork", "cancun", *arguments]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    try:
        said = b""
        with trio.fail_after(90):
            while b"Listening on " not in said or not said.endswith(b"\n"):
                chunk = await process.stdout.receive_some()
                assert chunk, said.decode()
                said += chunk
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_drain, process.stdout)
            yield "http://" + said.partition(b"Listening on ")[2].split()[0].decode()
            nursery.cancel_scope.cancel()
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            await process.stdout.aclose()


async def _drain(stream: trio.abc.ReceiveStream) -> None:
    async for _ in stream:
        pass
