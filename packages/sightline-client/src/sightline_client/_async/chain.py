"""JSON-RPC client of the chain on which sessions are paid."""

from datetime import UTC, datetime
from typing import Any, Final, Protocol

import httpx2

from sightline_client.errors import ChainError
from sightline_client.keccak import keccak256
from sightline_client.models import EscrowHold, Statement
from sightline_client.runtime import async_sleep
from sightline_client.signers import require_wallet

APPROVE: Final = "095ea7b3"
BALANCE_OF: Final = "70a08231"
ALLOWANCE: Final = "dd62ed3e"
RECEIPT_TRIES: Final = 120
RECEIPT_PAUSE_S: Final = 0.25
APPROVE_GAS: Final = 120_000
CLAIM: Final = keccak256(
    b"claim((bytes32,address,address,uint256,uint256,uint256,uint256),uint256,bytes32,bool,bytes)"
)[:4].hex()
RECLAIM: Final = keccak256(b"reclaim((bytes32,address,address,uint256,uint256,uint256,uint256))")[:4].hex()
CLAIM_GAS: Final = 250_000
STATE_OF: Final = keccak256(b"stateOf(bytes32)")[:4].hex()
CLOSED: Final = 1
"""State of a session in the escrow contract once its amount was charged or returned. 0 is an unknown session."""
INTERIM_DELAY_S: Final = 3_600
RECLAIM_DELAY_S: Final = 172_800
_REASON: Final = "08c379a0"
"""Selector of Error(string), by which a contract says why it refuses a call."""
TIMEOUT_S: Final = 30.0
COIN: Final = 10**18
"""Wei in one coin."""


class TransactionSigner(Protocol):
    """A wallet that signs transactions, for example `sightline_client.wallet.LocalWallet(account)`."""

    @property
    def address(self) -> str:
        """Address of the wallet."""

    def sign_transaction(self, transaction: dict[str, Any]) -> str:
        """Return the signed transaction as hex with the prefix 0x."""


class AsyncChain:
    """Client of the JSON-RPC endpoint that GET /config names (`rpc_url`). Needs no key."""

    def __init__(self, rpc_url: str) -> None:
        self._rpc_url = rpc_url
        self._calls = 0

    async def call(self, method: str, *params: Any) -> Any:
        """Make one JSON-RPC call.

        Raises:
            ChainError: The endpoint cannot be reached, or answered with an error.
        """
        self._calls += 1
        request = {"jsonrpc": "2.0", "id": self._calls, "method": method, "params": list(params)}
        try:
            async with httpx2.AsyncClient(timeout=TIMEOUT_S) as http:
                answer = (await http.post(self._rpc_url, json=request)).json()
        except (httpx2.TransportError, ValueError) as error:
            # Without the URL: that of a provider has a secret.
            raise ChainError(
                f"{method}: no answer from the node ({error}). Check its URL (rpc=), and that it runs."
            ) from error
        if "error" in answer:
            raise ChainError(f"{method}: {_refusal_of(answer['error'])}")
        return answer["result"]

    async def read_uint(self, contract: str, data: str) -> int:
        """Make an eth_call that returns one number."""
        output = await self.call("eth_call", {"to": contract, "data": "0x" + data}, "latest")
        if output == "0x":
            raise ChainError(f"No contract at {contract} answers on the chain of this node.")
        return int(output, 16)

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
            await async_sleep(RECEIPT_PAUSE_S)
        raise ChainError(f"no receipt for {tx_hash} within 30 s")

    async def approve(self, wallet: TransactionSigner, *, token: str, spender: str, amount: int) -> str:
        """Allow `spender` to transfer up to `amount` base units. Waits until the transaction is mined.

        Raises:
            ChainError: The transaction failed.
        """
        return await self.send(wallet, to=token, data="0x" + APPROVE + _word(spender) + _word(amount), gas=APPROVE_GAS)

    async def send(self, wallet: TransactionSigner, *, to: str, data: str, gas: int) -> str:
        """Send a transaction of the wallet and wait until it is mined. Returns its hash.

        Args:
            data: Call data as hex with the prefix 0x.
            gas: Gas limit.

        Raises:
            ChainError: The wallet has no coin for the gas, the transaction was refused or reverted, or there is no
                receipt after 30 seconds.
        """
        require_wallet(wallet)
        gas_price = int(await self.call("eth_gasPrice"), 16)
        await self._require_gas(wallet.address, 2 * gas_price * gas)
        transaction: dict[str, Any] = {
            "chainId": int(await self.call("eth_chainId"), 16),
            "nonce": int(await self.call("eth_getTransactionCount", wallet.address, "latest"), 16),
            "to": to,
            "value": 0,
            "gas": gas,
            "maxFeePerGas": 2 * gas_price,
            "maxPriorityFeePerGas": gas_price // 2,
            "data": data,
        }
        tx_hash = str(await self.call("eth_sendRawTransaction", wallet.sign_transaction(transaction)))
        receipt = await self.receipt(tx_hash)
        if int(receipt["status"], 16) != 1:
            raise ChainError(f"transaction {tx_hash} reverted")
        return tx_hash

    async def _require_gas(self, address: str, wei: int) -> None:
        """Raise ChainError if an account has not enough of the chain's coin for a transaction."""
        balance = int(await self.call("eth_getBalance", address, "latest"), 16)
        if balance < wei:
            raise ChainError(
                f"The wallet {address} has {balance / COIN:g} of the chain's native coin; the gas of this transaction "
                f"may take {wei / COIN:g}. Send it some. On an embedded chain, `sightline faucet {address} 1 "
                "--data-dir DIRECTORY` does it; the directory is that of the server."
            )

    # Escrow.

    async def claim(self, wallet: TransactionSigner, statement: Statement) -> str:
        """Collect a session's charge from the escrow contract by the meter's statement. Returns the transaction's hash.

        Anybody may send it. A statement that is not final is accepted from an hour after the session's latest end.

        Raises:
            ChainError: The contract refuses it, for example too early, or the session is closed already. Nothing is
                sent then.
        """
        signature = statement.signature.removeprefix("0x")
        data = [
            CLAIM, _hold(statement.hold), _word(statement.clean_seconds), statement.head_hash.removeprefix("0x"),
            _word(int(statement.is_final)), _word(11 * 32), _word(len(signature) // 2), signature.ljust(192, "0"),
        ]  # fmt: skip
        early = (
            "The statement is not final: the session was live when the meter signed it. The contract takes it from "
            f"{_date(_latest_end_s(statement.hold) + INTERIM_DELAY_S)}, an hour after the session's latest end, and a "
            "final one at once"
        )
        return await self._close(wallet, statement, "0x" + "".join(data), early)

    async def reclaim(self, wallet: TransactionSigner, statement: Statement) -> str:
        """Return a hold that nobody closed to its payer, from 48 hours after its latest end. Returns the hash.

        Anybody may send it.

        Raises:
            ChainError: The contract refuses it: too early, or the session is closed already. Nothing is sent then.
        """
        early = (
            f"The contract returns this hold from {_date(_latest_end_s(statement.hold) + RECLAIM_DELAY_S)}, 48 hours "
            "after the session's latest end, if nobody has charged it until then"
        )
        return await self._close(wallet, statement, "0x" + RECLAIM + _hold(statement.hold), early)

    async def _close(self, wallet: TransactionSigner, statement: Statement, data: str, early: str) -> str:
        """Send a call that closes a session, unless the contract would refuse it.

        Args:
            early: What to say where the contract finds it too early.
        """
        require_wallet(wallet)
        contract, session = statement.escrow_address, statement.session_id
        state = await self.read_uint(contract, STATE_OF + _word(statement.hold.session_id_hash))
        if state == CLOSED:
            raise ChainError(
                f"The escrow contract has closed session {session}: it is paid already, or its amount was returned. "
                "Nothing was sent."
            )
        if state == 0:
            raise ChainError(f"The escrow contract {contract} holds nothing for session {session}. Nothing was sent.")
        call = {"from": wallet.address, "to": contract, "data": data}
        try:
            # The next block's time counts. A node that does not know `pending` refuses the call otherwise.
            await self.call("eth_call", call, "pending")
        except ChainError as error:
            if "revert" in str(error):
                raise ChainError(f"{_why_refused(str(error), early)}. Nothing was sent.") from error
        return await self.send(wallet, to=contract, data=data, gas=CLAIM_GAS)


def _why_refused(said: str, early: str) -> str:
    if "too early" in said:
        return early
    if "no such hold" in said:
        return (
            "The escrow contract holds another amount for this session than the statement says: it was extended. Use "
            "the newest statement"
        )
    return f"The escrow contract would refuse it ({said})"


def _refusal_of(error: dict[str, Any]) -> str:
    """Return the message of a JSON-RPC error, with the contract's reason, which some nodes give as data only."""
    message, data = str(error.get("message")), error.get("data")
    if not isinstance(data, str) or not data.startswith("0x" + _REASON):
        return message
    words = data[2 + len(_REASON) :]
    text = words[128 : 128 + 2 * int(words[64:128] or "0", 16)]
    reason = bytes.fromhex(text).decode(errors="replace")
    return message if reason in message else f"{message}: {reason}"


def _latest_end_s(hold: EscrowHold) -> int:
    """Return the Unix time up to which a session can last."""
    return hold.opened_at + int(hold.max_amount) // int(hold.rate_per_second)


def _date(unix_s: int) -> str:
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M} UTC"


def _hold(hold: EscrowHold) -> str:
    numbers = (int(hold.max_amount), int(hold.rate_per_second), hold.fee_bps, hold.opened_at)
    return "".join(_word(word) for word in (hold.session_id_hash, hold.payer, hold.payee, *numbers))


def _word(value: int | str) -> str:
    number = int(value, 16) if isinstance(value, str) else value
    return f"{number:064x}"
