"""An EVM in the test process with both contracts deployed: the fastest way to test a contract."""

from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from eth_account import Account
from eth_account.messages import encode_typed_data
from eth_utils.address import to_canonical_address

from sightline.chain.contracts.abi import Consent, SettleCall, call_data, revert_reason
from sightline.chain.embedded.deploy import ContractTerms, Treasury, address_of, load_keys
from sightline.chain.embedded.machine import EvmCall, ExecutionError, Machine
from sightline.ports.clock import Clock
from sightline.system.clock import SystemClock
from sightline.system.ids import SystemIds

ETHER = 10**18
CHAIN_ID = 84_532_001
KEYS = {name: "0x" + (bytes([number]) * 32).hex() for number, name in enumerate(("payer", "payee", "stranger"), 1)}


class RevertedError(Exception):
    """A transaction reverted; the message is the contract's reason."""


@dataclass
class Evm:
    """An EVM with both contracts. `keys` holds private keys by role; `address` returns addresses."""

    machine: Machine
    treasury: Treasury
    keys: dict[str, str]
    token: str
    settlement: str

    def address(self, role: str) -> str:
        return address_of(self.keys[role])

    def send(self, role: str, to: str, data: bytes, gas: int = 1_000_000) -> dict[str, Any]:
        """Mine a transaction of a role and return its receipt.

        Raises:
            RevertedError: The transaction reverted; a second run of the call gives the reason.
        """
        sender = self.address(role)
        try:
            self.run(sender, to, data)
        except ExecutionError as error:
            raise RevertedError(revert_reason(error.output or b"") or str(error)) from error
        nonce = self.machine.nonce(to_canonical_address(sender), self.machine.head)
        fields = {
            "type": 2, "chainId": self.machine.chain_id, "nonce": nonce, "to": to, "value": 0, "data": data, "gas": gas,
            "maxFeePerGas": 10**12, "maxPriorityFeePerGas": 10**9,
        }  # fmt: skip
        raw = bytes(Account.sign_transaction(fields, self.keys[role]).raw_transaction)
        (tx_hash,) = self.treasury.execute([raw])
        receipt = self.machine.store.receipt(tx_hash)
        assert receipt is not None
        return receipt

    def run(self, sender: str, to: str, data: bytes) -> bytes:
        call = EvmCall(
            sender=to_canonical_address(sender), to=to_canonical_address(to), data=data, value=0, gas=3_000_000
        )
        # No limit of CPU time: a garbage collection in a process with many tests can use it up.
        output, _ = self.machine.run(call, self.machine.head, deadline_s=inf)
        return output

    def ask(self, to: str, signature: str, *values: Any) -> int:
        return int.from_bytes(self.run(self.address("stranger"), to, call_data(signature, values))[:32], "big")

    def balance(self, address: str) -> int:
        return self.ask(self.token, "balanceOf(address)", address)

    def settle(self, call: SettleCall, role: str = "relayer") -> dict[str, Any]:
        return self.send(role, self.settlement, call.data())

    def approve(self, role: str, amount: int) -> None:
        self.send(role, self.token, call_data("approve(address,uint256)", [self.settlement, amount]))

    def delegate(self, role: str, code_of: str) -> None:
        """Let the account of a role delegate to a contract's code (EIP-7702)."""
        key, machine = self.keys[role], self.machine
        nonce = machine.nonce(to_canonical_address(self.address(role)), machine.head)
        # The transaction itself uses the first nonce, the authorization in it the next.
        authorization = {"chainId": machine.chain_id, "address": code_of, "nonce": nonce + 1}
        fields = {
            "type": 4, "chainId": machine.chain_id, "nonce": nonce, "to": self.address("relayer"), "value": 0,
            "data": b"", "gas": 200_000, "maxFeePerGas": 10**12, "maxPriorityFeePerGas": 10**9, "accessList": [],
            "authorizationList": [Account.sign_authorization(authorization, key)],
        }  # fmt: skip
        self.treasury.execute([bytes(Account.sign_transaction(fields, key).raw_transaction)])
        code = machine.code(to_canonical_address(self.address(role)), machine.head)
        assert code[:3] == bytes.fromhex("ef0100"), "no delegation"

    def consent(
        self, call: SettleCall, *, role: str = "payer", signed_for_chain: int = CHAIN_ID, **changed: Any
    ) -> Consent:
        """Sign the terms of a session with a role's key (EIP-712)."""
        terms = {
            "max_total": call.to_amount + call.fee_amount, "max_fee_bps": call.platform_fee_bps,
            "deadline_s": 2**40,
        } | changed  # fmt: skip
        message = {
            "sessionIdHash": bytes.fromhex(call.session_id_hash[2:]), "from": call.payer, "to": call.payee,
            "maxTotal": terms["max_total"], "ratePerSecond": call.rate, "maxFeeBps": terms["max_fee_bps"],
            "deadline": terms["deadline_s"],
        }  # fmt: skip
        signable = encode_typed_data(
            domain_data={
                "name": "SessionSettlement", "version": "1", "chainId": signed_for_chain,
                "verifyingContract": self.settlement,
            },
            message_types={
                "SessionAuthorization": [
                    {"name": "sessionIdHash", "type": "bytes32"}, {"name": "from", "type": "address"},
                    {"name": "to", "type": "address"}, {"name": "maxTotal", "type": "uint256"},
                    {"name": "ratePerSecond", "type": "uint256"}, {"name": "maxFeeBps", "type": "uint256"},
                    {"name": "deadline", "type": "uint256"},
                ]
            },
            message_data=message,
        )  # fmt: skip
        signature = bytes(Account.sign_message(signable, self.keys[role]).signature)
        return Consent(**terms, signature=signature)


def an_evm(directory: Path, *, clock: Clock | None = None, chain_id: int = CHAIN_ID, **terms: Any) -> Evm:
    """Deploy both contracts on a new EVM; `terms` change the constructor arguments of the settlement contract."""
    keys = load_keys(directory, SystemIds()) | KEYS
    rich = {address_of(key): 1_000_000 * ETHER for key in keys.values()}
    machine = Machine(directory / "chain.sqlite", chain_id=chain_id, rich=rich, clock=clock or SystemClock())
    treasury = Treasury(machine, keys)
    defaults: dict[str, Any] = {
        "max_fee_bps": 3_000,
        "session_cap_micro": 10**12,
        "consent_required": False,
        "admin_delay_s": 0,
    }
    treasury.deploy(ContractTerms(**(defaults | terms)))
    token, settlement = machine.store.meta("usdcAddress"), machine.store.meta("settlementAddress")
    assert token is not None
    assert settlement is not None
    return Evm(machine, treasury, keys, token, settlement)
