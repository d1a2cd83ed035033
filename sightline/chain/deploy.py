"""Deploys the contracts on a public test network: `python -m sightline.chain.deploy --help`.

The deployer's key pays the gas and becomes the owner. It is read from a keystore file (the command asks for the
password) or from the environment variable SIGHTLINE_DEPLOYER_KEY. The command prints the server's settings as
KEY=value lines.
"""

import argparse
import getpass
import os
import sys
from pathlib import Path
from typing import Any, Final, final

import trio
from eth_utils.address import is_address, to_canonical_address, to_checksum_address

from sightline.chain.contracts.abi import settlement_constructor
from sightline.chain.contracts.artefacts import artefact
from sightline.chain.contracts.escrow import escrow_constructor
from sightline.chain.contracts.messages import NOBODY
from sightline.chain.contracts.terms import ADMIN_DELAY_S, MAX_RATE_MICRO, SESSION_CAP_MICRO
from sightline.chain.fees import ABOUT_FEES, GAS_MAX, gas_with_margin, suggested
from sightline.chain.rpc.client import JsonRpc, RpcOptions, RpcResponseError, open_rpc
from sightline.chain.rpc.reader import fault_text, hex_int
from sightline.chain.signer import Signer, read_keystore, require_private_key
from sightline.domain.settlement import MAIN_NETWORKS
from sightline.domain.value import Value, hiding
from sightline.system.ids import SystemIds

POLL_S: Final = 1.0
PATIENCE_S: Final = 300.0


class DeploymentError(Exception):
    """The deployment failed or its outcome is unknown; the message says which."""


@final
class Deployment(Value, kw_only=True):
    """What to deploy. With `usdc` None the test USDC is deployed too."""

    fee_receiver: str
    relayer: str | None = None
    """The relayer of a SessionSettlement; not needed with `meter`."""
    meter: str | None = None
    """The meter of a SessionEscrow, which is deployed in place of SessionSettlement."""
    standby_meter: str | None = None
    max_rate: int = MAX_RATE_MICRO
    usdc: str | None = None
    max_fee_bps: int = 5_000
    session_cap_micro: int = SESSION_CAP_MICRO
    consent_required: bool = False
    admin_delay_s: int = ADMIN_DELAY_S


@final
class Deployed(Value, kw_only=True):
    """The addresses of the deployed contracts."""

    chain_id: int
    usdc_address: str
    settlement_address: str
    start_block: int
    receipts: tuple[dict[str, Any], ...]
    """Of the created contracts: the test USDC if it is one of them, then the one that settles."""

    __repr__ = hiding("receipts")


async def deploy(rpc: JsonRpc, signer: Signer, deployment: Deployment) -> Deployed:
    """Deploy the contracts and wait for both receipts.

    Raises:
        DeploymentError: The network is a main network, the node refused a transaction, or a receipt did not arrive.
        ChainUnavailableError: The endpoint does not answer.
    """
    chain_id = hex_int(await rpc.call("eth_chainId"))
    if chain_id in MAIN_NETWORKS:
        raise DeploymentError(f"chain {chain_id} is a main network; Sightline settles on test networks")
    usdc, receipts = deployment.usdc, list[dict[str, Any]]()
    if usdc is None:
        creation = artefact("TestUSDC").bytecode + bytes(12) + to_canonical_address(signer.address)
        receipts.append(await transact(rpc, signer, chain_id=chain_id, to=None, data=creation))
        usdc = receipts[0]["contractAddress"]
    creation = _contract(deployment, signer.address, to_checksum_address(usdc))
    receipt = await transact(rpc, signer, chain_id=chain_id, to=None, data=creation)
    return Deployed(
        chain_id=chain_id,
        usdc_address=to_checksum_address(usdc),
        settlement_address=to_checksum_address(receipt["contractAddress"]),
        start_block=hex_int(receipt["blockNumber"]),
        receipts=(*receipts, receipt),
    )


def _contract(deployment: Deployment, owner: str, usdc: str) -> bytes:
    """Return the creation code of the contract that holds and settles."""
    fee_receiver = to_checksum_address(deployment.fee_receiver)
    if deployment.meter is not None:
        return artefact("SessionEscrow").bytecode + escrow_constructor(
            token=usdc, owner=owner, meter=to_checksum_address(deployment.meter),
            standby_meter=to_checksum_address(deployment.standby_meter or NOBODY), fee_receiver=fee_receiver,
            max_fee_bps=deployment.max_fee_bps, session_cap_micro=deployment.session_cap_micro,
            max_rate=deployment.max_rate, admin_delay_s=deployment.admin_delay_s,
        )  # fmt: skip
    if deployment.relayer is None:
        raise DeploymentError("SessionSettlement needs the relayer's address (--relayer), SessionEscrow --meter")
    return artefact("SessionSettlement").bytecode + settlement_constructor(
        token=usdc, owner=owner, relayer=to_checksum_address(deployment.relayer), fee_receiver=fee_receiver,
        max_fee_bps=deployment.max_fee_bps, session_cap_micro=deployment.session_cap_micro,
        consent_required=deployment.consent_required, admin_delay_s=deployment.admin_delay_s,
    )  # fmt: skip


async def transact(rpc: JsonRpc, signer: Signer, *, chain_id: int, to: str | None, data: bytes) -> dict[str, Any]:
    """Send one transaction, and return its receipt. Without `to` it creates a contract.

    Raises:
        DeploymentError: The node refused it, it reverted, or its receipt did not arrive.
        ChainUnavailableError: The endpoint does not answer.
    """
    call = {"from": signer.address, "data": "0x" + data.hex()} | ({} if to is None else {"to": to})
    what = "the contract creation" if to is None else f"the call of {to}"
    nonce, head, history, tip, gas = await rpc.batch(
        [
            ("eth_getTransactionCount", [signer.address, "pending"]),
            ("eth_getBlockByNumber", ["latest", False]),
            *ABOUT_FEES,
            ("eth_estimateGas", [call]),
        ]
    )
    if isinstance(gas, RpcResponseError):
        raise DeploymentError(f"the node could not estimate the gas of {what}: {fault_text(gas)}")
    tx_hash, raw = signer.sign(
        chain_id=chain_id, nonce=hex_int(nonce), to=to, data=data, gas=min(GAS_MAX, gas_with_margin(gas)),
        fees=suggested(head, history, tip),
    )  # fmt: skip
    (answer,) = await rpc.send_once([("eth_sendRawTransaction", ["0x" + raw.hex()])])
    if isinstance(answer, RpcResponseError):
        raise DeploymentError(f"the node refused {what}: {answer.message}")
    return await _receipt(rpc, tx_hash)


async def _receipt(rpc: JsonRpc, tx_hash: str) -> dict[str, Any]:
    with trio.move_on_after(PATIENCE_S):
        while True:
            receipt = await rpc.call("eth_getTransactionReceipt", tx_hash)
            if isinstance(receipt, dict):
                if hex_int(receipt["status"]) != 1:
                    raise DeploymentError(f"the transaction {tx_hash} reverted")
                return receipt
            await trio.sleep(POLL_S)
    raise DeploymentError(
        f"no receipt of {tx_hash} after {PATIENCE_S:.0f} s; check whether it was mined before you repeat it"
    )


def signer_of(name: str) -> Signer:
    """Return the signer of the private key in an environment variable.

    Raises:
        DeploymentError: It holds no private key.
        KeyRefusedError: The key is publicly known.
    """
    try:
        key = bytes.fromhex(os.environ.get(name, "").removeprefix("0x"))
        signer = Signer(key)
    except ValueError:
        raise DeploymentError(f"{name} is not a private key of 32 bytes in hex") from None
    require_private_key(signer.address, key)
    return signer


def _signer_in(keystore: Path) -> Signer:
    key = read_keystore(keystore, getpass.getpass(f"password of {keystore.name}: "))
    signer = Signer(key)
    require_private_key(signer.address, key)
    return signer


def _address(text: str) -> str:
    if not is_address(text):
        raise argparse.ArgumentTypeError(f"{text} is not an address")
    return to_checksum_address(text)


async def main() -> None:
    """Deploy with the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m sightline.chain.deploy", description=__doc__)
    parser.add_argument("--rpc-url", required=True)
    parser.add_argument("--relayer", type=_address, help="address of the server's relayer key: SessionSettlement")
    parser.add_argument("--meter", type=_address, help="address of the server's meter key: SessionEscrow, for escrow")
    parser.add_argument("--standby-meter", type=_address, help="a second meter, for the day on which the first is lost")
    parser.add_argument("--max-rate", type=int, default=MAX_RATE_MICRO, help="highest rate of a hold in escrow")
    parser.add_argument("--fee-receiver", type=_address, required=True)
    parser.add_argument("--usdc", type=_address, help="the network's USDC; without it a test USDC is deployed")
    parser.add_argument("--max-fee-bps", type=int, default=5_000)
    parser.add_argument("--session-cap-micro", type=int, default=SESSION_CAP_MICRO)
    parser.add_argument("--admin-delay-s", type=int, default=ADMIN_DELAY_S, help="delay of relayer and owner changes")
    parser.add_argument("--consent-required", action="store_true")
    parser.add_argument("--keystore", type=Path)
    chosen = parser.parse_args()
    signer = signer_of("SIGHTLINE_DEPLOYER_KEY") if chosen.keystore is None else _signer_in(chosen.keystore)
    deployment = Deployment(
        relayer=chosen.relayer, meter=chosen.meter, standby_meter=chosen.standby_meter, max_rate=chosen.max_rate,
        fee_receiver=chosen.fee_receiver, usdc=chosen.usdc, max_fee_bps=chosen.max_fee_bps,
        session_cap_micro=chosen.session_cap_micro, consent_required=chosen.consent_required,
        admin_delay_s=chosen.admin_delay_s,
    )  # fmt: skip
    async with open_rpc(chosen.rpc_url, RpcOptions(), SystemIds()) as rpc:
        deployed = await deploy(rpc, signer, deployment)
    sys.stdout.write(
        f"SIGHTLINE_CHAIN_RPC_URL={chosen.rpc_url}\n"
        f"SIGHTLINE_CHAIN_ID={deployed.chain_id}\n"
        f"SIGHTLINE_CHAIN_USDC_ADDRESS={deployed.usdc_address}\n"
        f"SIGHTLINE_CHAIN_SETTLEMENT_ADDRESS={deployed.settlement_address}\n"
        f"SIGHTLINE_CHAIN_START_BLOCK={deployed.start_block}\n"
    )


if __name__ == "__main__":
    trio.run(main)
