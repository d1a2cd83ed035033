"""Deploy SessionEscrow on a public test network, and settle one session there: open, capture, confirmed at the depth.

Usage: SIGHTLINE_DEPLOYER_KEY=0x... python scripts/public_network.py --rpc-url URL
       ... --usdc ADDRESS, with SIGHTLINE_PAYER_KEY and SIGHTLINE_PAYEE, for the network's own USDC

The deployer's key pays all gas, becomes the owner of the contract, and receives the fee. Without --usdc a test USDC is
deployed and minted to the payer. Keys that are not given are made for this run: the meter's, and with the test USDC the
payer's, who needs no gas, and the payee's. Every transaction is printed with its gas and fee, then the three balances.
The exit code is 1 if anything failed or an amount is not the expected one. Main networks are refused.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import trio
from eth_abi.abi import decode
from eth_utils.address import is_address, to_checksum_address

from sightline.chain.contracts.abi import SETTLED_TOPIC, call_data
from sightline.chain.contracts.escrow import OPENED_TOPIC, escrow_call
from sightline.chain.contracts.messages import (
    CaptureItem,
    EscrowHold,
    Opening,
    SessionTerms,
    SigningDomain,
    authorization_to_open,
    batch_of,
)
from sightline.chain.costs import paid_wei
from sightline.chain.deploy import Deployed, Deployment, DeploymentError, deploy, signer_of, transact
from sightline.chain.meter import MeterKey
from sightline.chain.profile import profile_of
from sightline.chain.rpc.client import JsonRpc, RpcOptions, RpcResponseError, open_rpc
from sightline.chain.rpc.reader import hex_bytes, hex_int
from sightline.chain.signer import KeyRefusedError, Signer
from sightline.domain.errors import ChainUnavailableError
from sightline.system.ids import SystemIds
from sightline.system.keccak import session_id_hash

RATE, SECONDS, SECONDS_MAX, FEE_BPS = 1_000, 20, 60, 1_500
HELD, CHARGED = RATE * SECONDS_MAX, RATE * SECONDS
FEE = CHARGED * FEE_BPS // 10_000
HEAD_HASH: Final = bytes(32)
OPEN_WITHIN_S: Final = 3_600
POLL_S: Final = 0.5
PATIENCE_S: Final = 600.0
ids = SystemIds()


@dataclass
class Run:
    """One session on one network."""

    rpc: JsonRpc
    deployer: Signer
    payer: Signer
    payee: str
    meter_key: bytes
    deployed: Deployed

    def say(self, what: str, receipt: Mapping[str, Any]) -> None:
        """Print one transaction."""
        gas, block = hex_int(receipt["gasUsed"]), hex_int(receipt["blockNumber"])
        say(f"{what:<22} {receipt['transactionHash']}  block {block}  gas {gas:>9,}  fee {ether(paid_wei(receipt))}")

    async def send(self, what: str, to: str, data: bytes) -> dict[str, Any]:
        """Send one transaction of the deployer, and print it when it is mined."""
        receipt = await transact(self.rpc, self.deployer, chain_id=self.deployed.chain_id, to=to, data=data)
        self.say(what, receipt)
        return receipt

    async def number(self, to: str, question: str, *values: Any) -> int:
        """Ask a contract for a number."""
        return hex_int(await self.call(to, question, *values))

    async def call(self, to: str, question: str, *values: Any) -> str:
        """Ask a contract."""
        try:
            answer = await self.rpc.call(
                "eth_call", {"to": to, "data": "0x" + call_data(question, values).hex()}, "latest"
            )
        except RpcResponseError as error:
            raise DeploymentError(f"{to} does not answer {question}: {error.message}") from error
        return str(answer)

    async def balances(self) -> list[int]:
        """Read the USDC of payer, payee and fee receiver."""
        parties = (self.payer.address, self.payee, self.deployer.address)
        return [await self.number(self.deployed.usdc_address, "balanceOf(address)", each) for each in parties]

    async def open(self) -> EscrowHold:
        """Open a hold by a payment that the payer signs (EIP-3009)."""
        token, escrow = self.deployed.usdc_address, self.deployed.settlement_address
        head = await self.rpc.call("eth_getBlockByNumber", "latest", False)
        terms = SessionTerms(
            session_id_hash=hex_bytes(session_id_hash(ids.uuid())), payer=self.payer.address, payee=self.payee,
            max_amount=HELD, rate=RATE, fee_bps=FEE_BPS, open_by_s=hex_int(head["timestamp"]) + OPEN_WITHIN_S,
        )  # fmt: skip
        name, version = [
            str(decode(["string"], hex_bytes(await self.call(token, question)))[0])
            for question in ("name()", "version()")
        ]
        domain = SigningDomain(name=name, version=version, chain_id=self.deployed.chain_id, contract=token)
        v, r, s = self.payer.sign_digest(domain.digest(authorization_to_open(terms, escrow)))
        opening = await self._meter().sign(Opening(terms_hash=terms.struct_hash(), payee=self.payee))
        data = escrow_call("openWithAuthorization", terms, self.payee, r + s + bytes([v]), opening)
        receipt = await self.send("open", escrow, data)
        await self.until_confirmed(receipt)
        opened = hex_bytes(event_in(receipt, OPENED_TOPIC)["data"])
        return EscrowHold(
            session_id_hash=terms.session_id_hash, payer=self.payer.address, payee=self.payee, max_amount=HELD,
            rate=RATE, fee_bps=FEE_BPS, opened_at_s=int.from_bytes(opened[-32:]),
        )  # fmt: skip

    async def capture(self, hold: EscrowHold) -> None:
        """Capture the hold by the meter's signature; the rest returns to the payer."""
        items = [CaptureItem(hold=hold, clean_seconds=SECONDS, head_hash=HEAD_HASH)]
        signature = await self._meter().sign(batch_of(items))
        receipt = await self.send(
            "capture", self.deployed.settlement_address, escrow_call("captureMany", items, signature)
        )
        event_in(receipt, SETTLED_TOPIC)
        await self.until_confirmed(receipt)

    def _meter(self) -> MeterKey:
        return MeterKey(self.meter_key, chain_id=self.deployed.chain_id, contract=self.deployed.settlement_address)

    async def until_confirmed(self, receipt: Mapping[str, Any]) -> None:
        """Wait until the block of a transaction is as deep as the chain's profile asks, and still the chain's."""
        depth, number = profile_of(self.deployed.chain_id).depth, hex_int(receipt["blockNumber"])
        with trio.move_on_after(PATIENCE_S):
            while hex_int(await self.rpc.call("eth_blockNumber")) < number + depth:  # noqa: ASYNC110  # a chain has no event
                await trio.sleep(POLL_S)
            block = await self.rpc.call("eth_getBlockByNumber", hex(number), False)
            if block is None or block["hash"] != receipt["blockHash"]:
                raise DeploymentError(f"a reorganisation removed the block of {receipt['transactionHash']}")
            say(f"  confirmed: {depth} blocks on top")
            return
        raise DeploymentError(f"no {depth} blocks on top of block {number} after {PATIENCE_S:.0f} s")


def event_in(receipt: Mapping[str, Any], topic: str) -> Mapping[str, Any]:
    """Return the event of a receipt; its absence is a failure."""
    for log in receipt["logs"]:
        if log["topics"][0].lower() == topic:
            return dict(log)
    raise DeploymentError(f"the contract skipped the session in {receipt['transactionHash']}")


def ether(wei: int) -> str:
    """Write an amount of the native coin."""
    return f"{wei / 10**18:.12f}"


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def settle(rpc: JsonRpc, deployer: Signer, usdc: str | None) -> bool:
    """Deploy, settle one session, and return whether every amount is the expected one."""
    own_token = usdc is None
    meter_key = ids.token_bytes(32)
    payer = Signer(ids.token_bytes(32)) if own_token else signer_of("SIGHTLINE_PAYER_KEY")
    payee = Signer(ids.token_bytes(32)).address if own_token else os.environ.get("SIGHTLINE_PAYEE", "")
    if not is_address(payee):
        raise DeploymentError("SIGHTLINE_PAYEE is not an address; the operator's part of the session goes to it")
    if os.environ.get("SIGHTLINE_CHAIN_METER_KEY"):
        signer_of("SIGHTLINE_CHAIN_METER_KEY")
        meter_key = hex_bytes(os.environ["SIGHTLINE_CHAIN_METER_KEY"])
    deployed = await deploy(
        rpc, deployer, Deployment(fee_receiver=deployer.address, meter=Signer(meter_key).address, usdc=usdc)
    )
    run = Run(rpc, deployer, payer, to_checksum_address(payee), meter_key, deployed)
    profile = profile_of(deployed.chain_id)
    say(f"chain {deployed.chain_id}, {profile.name or 'without a profile'}: confirmed at {profile.depth} blocks")
    created = ("deploy TestUSDC", "deploy SessionEscrow") if own_token else ("deploy SessionEscrow",)
    for what, receipt in zip(created, deployed.receipts, strict=True):
        run.say(what, receipt)
    if own_token:
        minted = call_data("mint(address,uint256)", [payer.address, HELD])
        await run.send("mint", deployed.usdc_address, minted)
    before = await run.balances()
    await run.capture(await run.open())
    after = await run.balances()
    expected = (-CHARGED, CHARGED - FEE, FEE)
    is_right = True
    for who, start, end, change in zip(("payer", "payee", "fee receiver"), before, after, expected, strict=True):
        is_right &= end - start == change
        say(f"{who:<14} {start:>12} -> {end:>12} micro-USDC  {end - start:+d}, expected {change:+d}")
    held = await run.number(deployed.settlement_address, "totalHeld()")
    say(f"held by {deployed.settlement_address}: {held}")
    return is_right and held == 0


async def main(arguments: Sequence[str] | None = None) -> int:
    """Run with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rpc-url", default=os.environ.get("SIGHTLINE_CHAIN_RPC_URL"), help="also a comma list")
    parser.add_argument("--usdc", help="the network's USDC; without it a test USDC is deployed")
    chosen = parser.parse_args(arguments)
    if not chosen.rpc_url:
        parser.error("--rpc-url or SIGHTLINE_CHAIN_RPC_URL is needed")
    try:
        async with open_rpc(chosen.rpc_url, RpcOptions(), ids) as rpc:
            is_right = await settle(rpc, signer_of("SIGHTLINE_DEPLOYER_KEY"), chosen.usdc)
    except (DeploymentError, ChainUnavailableError, KeyRefusedError, RpcResponseError) as error:
        say(f"failed: {error}")
        return 1
    say("settled" if is_right else "failed: a balance is not the expected one")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(trio.run(main))
