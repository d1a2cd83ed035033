"""A wallet that signs in to Sightline, approves the settlement contract and reads its balance by public endpoints."""

from typing import Any, Final, final

import httpx
import trio
from eth_account import Account
from eth_account.messages import encode_defunct
from eth_account.signers.local import LocalAccount

from sightline.client.api import Api
from sightline.client.errors import ChainError

APPROVE: Final = "095ea7b3"
BALANCE_OF: Final = "70a08231"
ALLOWANCE: Final = "dd62ed3e"
RECEIPT_TRIES: Final = 120
RECEIPT_PAUSE_S: Final = 0.25
APPROVE_GAS: Final = 120_000


def _word(value: int | str) -> str:
    number = int(value, 16) if isinstance(value, str) else value
    return f"{number:064x}"


@final
class ChainClient:
    """Client of the JSON-RPC endpoint that GET /config names."""

    def __init__(self, rpc_url: str) -> None:
        self._rpc_url = rpc_url
        self._calls = 0

    async def call(self, method: str, *params: Any) -> Any:
        """Make one JSON-RPC call.

        Raises:
            ChainError: The endpoint answered with an error.
        """
        self._calls += 1
        request = {"jsonrpc": "2.0", "id": self._calls, "method": method, "params": list(params)}
        async with httpx.AsyncClient(timeout=30.0) as http:
            answer = (await http.post(self._rpc_url, json=request)).json()
        if "error" in answer:
            raise ChainError(f"{method}: {answer['error'].get('message')}")
        return answer["result"]

    async def read_uint(self, contract: str, data: str) -> int:
        """Make an eth_call that returns one number."""
        return int(await self.call("eth_call", {"to": contract, "data": "0x" + data}, "latest"), 16)

    async def balance_of(self, token: str, address: str) -> int:
        """Return the ERC-20 balance in base units."""
        return await self.read_uint(token, BALANCE_OF + _word(address))

    async def allowance(self, token: str, owner: str, spender: str) -> int:
        """Return the ERC-20 allowance in base units."""
        return await self.read_uint(token, ALLOWANCE + _word(owner) + _word(spender))

    async def receipt(self, tx_hash: str) -> dict[str, Any]:
        """Wait for a transaction's receipt.

        Raises:
            ChainError: There was no receipt within 30 seconds.
        """
        for _ in range(RECEIPT_TRIES):
            found: dict[str, Any] | None = await self.call("eth_getTransactionReceipt", tx_hash)
            if found is not None:
                return found
            await trio.sleep(RECEIPT_PAUSE_S)
        raise ChainError(f"no receipt for {tx_hash} within 30 s")


@final
class Wallet:
    """One key pair and its address."""

    def __init__(self, account: LocalAccount | None = None) -> None:
        self._account: LocalAccount = account if account is not None else Account.create()

    @property
    def address(self) -> str:
        """The address in EIP-55 form."""
        return str(self._account.address)

    def sign(self, message: str) -> str:
        """Sign a text (EIP-191 personal_sign). Returns hex with the prefix 0x."""
        signed = self._account.sign_message(encode_defunct(text=message))
        return str(signed.signature.to_0x_hex())

    async def create_workspace(self, api: Api, *, slug: str, name: str, roles: list[str]) -> dict[str, Any]:
        """Create a workspace owned by this wallet."""
        challenge = await api.post("/workspaces/challenge", walletAddress=self.address)
        return await api.post(
            "/workspaces",
            walletAddress=self.address,
            nonce=challenge["nonce"],
            signature=self.sign(challenge["message"]),
            slug=slug,
            name=name,
            roles=roles,
        )

    async def sign_in(self, api: Api) -> dict[str, Any]:
        """Sign in; `api` stores the cookie."""
        challenge = await api.post("/auth/wallet/challenge", walletAddress=self.address)
        return await api.post(
            "/auth/wallet/login",
            walletAddress=self.address,
            nonce=challenge["nonce"],
            signature=self.sign(challenge["message"]),
        )

    async def approve(self, chain: ChainClient, *, token: str, spender: str, amount: int) -> str:
        """Allow `spender` to transfer up to `amount` base units. Waits until the transaction is mined.

        Raises:
            ChainError: The transaction failed.
        """
        gas_price = int(await chain.call("eth_gasPrice"), 16)
        transaction: dict[str, Any] = {
            "chainId": int(await chain.call("eth_chainId"), 16),
            "nonce": int(await chain.call("eth_getTransactionCount", self.address, "latest"), 16),
            "to": token,
            "value": 0,
            "gas": APPROVE_GAS,
            "maxFeePerGas": 2 * gas_price,
            "maxPriorityFeePerGas": gas_price // 2,
            "data": "0x" + APPROVE + _word(spender) + _word(amount),
        }
        signed = self._account.sign_transaction(transaction)
        tx_hash = str(await chain.call("eth_sendRawTransaction", signed.raw_transaction.to_0x_hex()))
        receipt = await chain.receipt(tx_hash)
        if int(receipt["status"], 16) != 1:
            raise ChainError(f"approval {tx_hash} reverted")
        return tx_hash
