"""Deploy valid and hostile contract wallets on a running embedded chain."""

import subprocess
import sys
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
from eth_abi.abi import encode
from eth_account import Account
from eth_account.messages import encode_defunct
from eth_account.signers.local import LocalAccount
from eth_utils.crypto import keccak

CHAIN_ID = 84_532_001
TEXT = "localhost wants you to sign in\nNonce: 1"
MARK_6492 = bytes.fromhex("6492" * 16)
ZERO = "0x" + "00" * 20

# Runtime code written by hand; each comment is its assembly.
RUNTIMES = {
    "looping": "5b600056",  # again: JUMP(again)
    "reverting": "60006000fd",  # REVERT
    "silent": "00",  # STOP: success and no answer
    "invalid": "fe",
    "wrong magic": "7fffffffff" + "00" * 28 + "60005260206000f3",
    "short": "7f1626ba7e" + "00" * 28 + "60005260046000f3",  # the magic in 4 bytes instead of 32
    "long": "7f1626ba7e" + "00" * 28 + "60005260406000f3",  # 64 bytes
    "padded with junk": "7f1626ba7e" + "00" * 27 + "0160005260206000f3",
    "endless answer": "63ffffffff6000f3",  # RETURN of 4 GiB
    # REVERT with OffchainLookup(address,string[],bytes,bytes4,bytes), its sender being the wallet itself.
    "off-chain lookup": "%LOOKUP%",
}
# Deploys the code in its call data, after a salt, by CREATE2 (the deterministic deployment proxy).
FACTORY = (
    "7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffe0"
    "3601600081602082378035828234f58015156039578182fd5b8082525050506014600cf3"
)


@dataclass
class WalletChain:
    """Deploys test contracts on a running embedded chain."""

    url: str
    payer: LocalAccount
    nonce: int
    wallets: dict[str, str] = field(default_factory=dict)

    def ask(self, method: str, *params: Any) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = httpx.post(self.url, json=body, timeout=30, trust_env=False).json()
        assert "error" not in answer, answer
        return answer["result"]

    def delegate(self, account: LocalAccount, code_of: str) -> None:
        """Let a new account delegate to a contract's code (EIP-7702)."""
        authorization = {"chainId": CHAIN_ID, "address": code_of, "nonce": 0}
        signed = account.sign_authorization(authorization)
        self.send(b"", self.payer.address, type=4, accessList=[], authorizationList=[signed])
        assert self.ask("eth_getCode", account.address, "latest") == "0xef0100" + code_of[2:].lower()

    def send(self, data: bytes, to: str | None = None, **more: Any) -> str:
        """Send a transaction; returns the address of the contract that it created, or an empty text."""
        transaction: dict[str, Any] = {
            "chainId": CHAIN_ID,
            "nonce": self.nonce,
            "gas": 2_000_000,
            "maxFeePerGas": 10**11,
            "maxPriorityFeePerGas": 10**9,
            "value": 0,
            "data": data,
        } | more
        if to:
            transaction["to"] = to
        raw = self.payer.sign_transaction(transaction).raw_transaction
        self.nonce += 1
        receipt = self.ask("eth_getTransactionReceipt", self.ask("eth_sendRawTransaction", "0x" + raw.hex()))
        assert receipt["status"] == "0x1", receipt
        return str(receipt["contractAddress"] or "")

    def deploy_runtime(self, runtime: bytes) -> str:
        """Deploy exactly this runtime code."""
        assert len(runtime) < 2**16
        return self.send(bytes.fromhex(f"61{len(runtime):04x}80600a3d393df3") + runtime)


def owned_wallet_code(owner: str) -> bytes:
    """Return the deployment code of the owned wallet."""
    source = Path(__file__).with_name("wallets") / "owned_wallet.vy"
    command = [Path(sys.executable).with_name("vyper"), "-f", "bytecode", source]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return bytes.fromhex(output.strip().removeprefix("0x")) + encode(["address"], [owner])


def an_account(name: str) -> LocalAccount:
    account: LocalAccount = Account.from_key(sha256(name.encode()).digest())
    return account


OWNER, STRANGER = an_account("owner"), an_account("stranger")


def with_wallets(url: str, payer_key: str) -> WalletChain:
    payer: LocalAccount = Account.from_key(payer_key)
    chain = WalletChain(url, payer, 0)
    chain.nonce = int(chain.ask("eth_getTransactionCount", payer.address, "latest"), 16)
    for name, runtime in RUNTIMES.items():
        code = off_chain_lookup() if runtime == "%LOOKUP%" else bytes.fromhex(runtime)
        chain.wallets[name] = chain.deploy_runtime(code)
    chain.wallets["factory"] = chain.deploy_runtime(bytes.fromhex(FACTORY))
    chain.wallets["good"] = chain.send(owned_wallet_code(OWNER.address))
    return chain


def off_chain_lookup() -> bytes:
    """Return code that asks its caller to fetch an answer from a web server on this machine."""
    types = ["address", "string[]", "bytes", "bytes4", "bytes"]
    selector = keccak(text=f"OffchainLookup({','.join(types)})")[:4]
    data = selector + encode(types, [ZERO, ["http://127.0.0.1:1/{data}"], b"", b"\x16\x26\xba\x7e", b""])
    head = bytes.fromhex(f"61{len(data):04x}80600c6000396000fd")
    assert len(head) == 0x0C
    return head + data


def signature_of(account: LocalAccount, text: str = TEXT) -> bytes:
    return bytes(account.sign_message(encode_defunct(text=text)).signature)


def wrapped(factory: str, preparation: bytes, inner: bytes) -> bytes:
    return encode(["address", "bytes", "bytes"], [factory, preparation, inner]) + MARK_6492


def not_yet_deployed(factory: str, salt: int) -> tuple[str, bytes]:
    """Return the future address of a wallet of OWNER, and the factory's call data that deploys it."""
    code = owned_wallet_code(OWNER.address)
    salt_bytes = salt.to_bytes(32, "big")
    place = keccak(b"\xff" + bytes.fromhex(factory[2:]) + salt_bytes + keccak(code))[12:]
    return "0x" + place.hex(), salt_bytes + code
