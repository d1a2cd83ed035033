"""Refunds: transfers of USDC from the refund account to the payer of a session.

The refund account has a key of its own, so its nonces do not mix with the relayer's. A signed transaction is stored
before it is sent, and a refund is never signed twice: what was stored is sent again until it is mined.

A database that was restored from before does not know what was paid. So a refund is a transfer with an authorization
(EIP-3009) whose nonce is the hash of session and key: the token refuses the second one.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, final

import structlog
import trio
from eth_utils.address import to_checksum_address

from sightline.chain.contracts.abi import call_data
from sightline.chain.fees import ABOUT_FEES, suggested
from sightline.chain.rpc.client import JsonRpc, RpcResponseError
from sightline.chain.rpc.reader import hex_int
from sightline.chain.signer import Fees, Signer
from sightline.domain.errors import ChainUnavailableError, RefusedError
from sightline.domain.refusal import Code, Refusal
from sightline.domain.units import ceil_div, usdc_text
from sightline.ports.administration import AdminStore, Refund, RefundState
from sightline.ports.chain import RefundRequest
from sightline.ports.clock import Clock
from sightline.ports.ledger import NonceTakenError
from sightline.system.keccak import keccak256

TRANSFER_GAS: Final = 200_000
TRANSFER: Final = "transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32)"
TRANSFER_TYPE_HASH: Final = keccak256(
    b"TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,"
    b"bytes32 nonce)"
)
FOR_EVER: Final = 2**256 - 1
FEE_MARGIN: Final = 3
"""The maximum fee is this many times the usual one, because a refund is not signed again with higher fees."""
WAIT_S: Final = 15.0
"""How long a call waits for the transaction to be mined."""
POLL_S: Final = 0.25
MICRO: Final = 1_000_000
FaucetLine: TypeAlias = Callable[[str, int], str]
"""Return the command that gives an account this many whole test USDC."""

log = structlog.get_logger()


@final
class Refunds:
    """Pays refunds from one account. Other servers may pay from it too: the store lets each nonce be used once."""

    def __init__(
        self,
        rpc: JsonRpc,
        store: AdminStore,
        signer: Signer | None,
        *,
        chain_id: int,
        token: str,
        clock: Clock,
        fee_cap_wei: int,
        top_up: Callable[[str], Awaitable[None]] | None = None,
        faucet_line: FaucetLine | None = None,
    ) -> None:
        """Args:
        signer: None: no refund account is configured.
        top_up: Gives the account native coin; embedded chain only.
        faucet_line: Returns the command that gives it test USDC; embedded chain only.
        """
        self._rpc = rpc
        self._store = store
        self._signer = signer
        self._chain_id = chain_id
        self._token = token
        self._clock = clock
        self._fee_cap_wei = fee_cap_wei
        self._top_up = top_up
        self._faucet_line = faucet_line
        self._turn = trio.Lock()

    async def pay(self, wanted: RefundRequest) -> Refund:
        """Pay a refund, and wait for some seconds until it is mined. A repeat with the same key pays nothing more.

        Raises:
            RefusedError: No refund account, its balance is too low, the sum exceeds what was paid, or the key was used
                for another amount.
            ChainUnavailableError: The endpoint did not answer. A refund that is stored is sent by `resume`.
        """
        async with self._turn:
            while (refund := await self._stored(wanted) or await self._sign_and_store(wanted)) is None:
                log.info("refund_signed_again", session_id=wanted.session_id)
            with trio.move_on_after(WAIT_S):
                while refund.state is RefundState.SENT:
                    refund = await self._advance(refund)
                    if refund.state is RefundState.SENT:
                        await trio.sleep(POLL_S)
        return refund

    async def resume(self) -> None:
        """Send stored refunds again and record those that were mined. Call it periodically."""
        async with self._turn:
            for refund in await self._store.unfinished_refunds():
                await self._advance(refund)

    async def _stored(self, wanted: RefundRequest) -> Refund | None:
        for refund in await self._store.refunds(wanted.session_id):
            if refund.key == wanted.key:
                if (refund.amount_micro, refund.to_address) != (wanted.amount_micro, wanted.to_address):
                    message = (
                        f"The refund {wanted.key} of this session exists with {usdc_text(refund.amount_micro)} USDC. "
                        "For a further refund choose another key"
                    )
                    raise RefusedError(Refusal(Code.CONFLICT, "refunds:key", message))
                return refund
        return None

    async def _sign_and_store(self, wanted: RefundRequest) -> Refund | None:
        """Sign a refund and store it; None, and nothing was sent, if another server has taken the nonce meanwhile."""
        refunded = sum(
            refund.amount_micro
            for refund in await self._store.refunds(wanted.session_id)
            if refund.state is not RefundState.FAILED
        )
        if refunded + wanted.amount_micro > wanted.charged_micro:
            if (stored := await self._stored(wanted)) is not None:  # another server has stored this one meanwhile
                return stored
            raise _above_charge(wanted, refunded)
        signer = self._signer
        if signer is None:
            raise RefusedError(Refusal(Code.INVALID_STATE, "refunds:account", "Set SIGHTLINE_CHAIN_REFUND_KEY"))
        if self._top_up is not None:
            await self._top_up(signer.address)
        authorization = authorization_of(wanted)
        fees, nonce, balance, domain, is_paid = await self._look(signer, authorization)
        if is_paid:
            if (stored := await self._stored(wanted)) is not None:  # another server has paid it meanwhile
                return stored
            message = (
                f"The refund {wanted.key} of this session was paid on the chain; the database, which was restored from "
                "before, does not have it. Look at the transfers of the refund account"
            )
            raise RefusedError(Refusal(Code.CONFLICT, "refunds:paid", message))
        if balance < wanted.amount_micro:
            raise RefusedError(
                Refusal(Code.INVALID_STATE, "refunds:balance", self._too_little(signer.address, wanted, balance))
            )
        nonce = max(nonce, await self._store.next_refund_nonce())
        tx_hash, raw = signer.sign(
            chain_id=self._chain_id, nonce=nonce, to=self._token, gas=TRANSFER_GAS, fees=fees,
            data=_transfer(signer, wanted, authorization, domain),
        )  # fmt: skip
        refund = Refund(
            session_id=wanted.session_id, key=wanted.key, at_ms=self._clock.now_ms(), actor=wanted.actor,
            reason=wanted.reason, to_address=wanted.to_address, amount_micro=wanted.amount_micro, nonce=nonce,
            tx_hash=tx_hash, raw=raw, state=RefundState.SENT,
        )  # fmt: skip
        try:
            is_covered = await self._store.add_refund(refund, charged_micro=wanted.charged_micro)
        except NonceTakenError:
            return None
        if not is_covered:  # another server has stored one meanwhile
            raise _above_charge(wanted, refunded)
        return refund

    def _too_little(self, account: str, wanted: RefundRequest, balance: int) -> str:
        """Say what the account lacks and how it gets it."""
        lacks = f"The refund account {account} has {usdc_text(balance)} of {usdc_text(wanted.amount_micro)} USDC"
        if self._faucet_line is None:
            return f"{lacks}. Send USDC to it"
        whole = ceil_div(wanted.amount_micro - balance, MICRO)
        return f"{lacks}. Send test USDC to it: `{self._faucet_line(account, whole)}`"

    async def _look(self, signer: Signer, authorization: bytes) -> tuple[Fees, int, int, bytes, bool]:
        """Fees, next nonce, balance, the token's EIP-712 domain, and whether the authorization was used."""
        balance_of = {"to": self._token, "data": "0x" + call_data("balanceOf(address)", [signer.address]).hex()}
        state = call_data("authorizationState(address,bytes32)", [signer.address, authorization])
        head, history, tip, nonce, balance, domain, used = await self._rpc.batch(
            [
                ("eth_getBlockByNumber", ["latest", False]),
                *ABOUT_FEES,
                ("eth_getTransactionCount", [signer.address, "latest"]),
                ("eth_call", [balance_of, "latest"]),
                ("eth_call", [{"to": self._token, "data": "0x" + call_data("DOMAIN_SEPARATOR()", []).hex()}, "latest"]),
                ("eth_call", [{"to": self._token, "data": "0x" + state.hex()}, "latest"]),
            ]
        )
        for answer in (head, nonce, balance):
            if isinstance(answer, RpcResponseError):
                raise ChainUnavailableError(answer.message) from answer
        if isinstance(domain, RpcResponseError) or isinstance(used, RpcResponseError) or "0x" in (domain, used):
            message = (
                f"The token {self._token} has no transferWithAuthorization (EIP-3009), by which a refund is paid once"
            )
            raise RefusedError(Refusal(Code.INVALID_STATE, "refunds:token", message))
        fees = suggested(head, history, tip)
        if fees.max_fee_wei > self._fee_cap_wei:
            raise ChainUnavailableError("the chain's fees are over the cap; nothing was signed")
        return (
            Fees(max_fee_wei=fees.max_fee_wei * FEE_MARGIN, tip_wei=fees.tip_wei).at_most(self._fee_cap_wei),
            hex_int(nonce),
            hex_int(balance),
            bytes.fromhex(domain.removeprefix("0x")),
            hex_int(used) != 0,
        )

    async def _advance(self, refund: Refund) -> Refund:
        """Record the receipt of a refund; send it again if there is none."""
        receipt = await self._read("eth_getTransactionReceipt", refund.tx_hash)
        if receipt is None:
            (answer,) = await self._rpc.send_once([("eth_sendRawTransaction", ["0x" + refund.raw.hex()])])
            if isinstance(answer, RpcResponseError):
                log.info("refund_broadcast_answer", session_id=refund.session_id, reason=answer.message)
            return refund
        state = RefundState.CONFIRMED if hex_int(receipt["status"]) == 1 else RefundState.FAILED
        await self._store.set_refund_state(refund, state)
        log.info("refund_mined", session_id=refund.session_id, tx_hash=refund.tx_hash, state=state.value)
        stored = await self._store.refunds(refund.session_id)
        return next(each for each in stored if each.key == refund.key)

    async def _read(self, method: str, *params: Any) -> Any:
        try:
            return await self._rpc.call(method, *params)
        except RpcResponseError as error:
            raise ChainUnavailableError(error.message) from error


def authorization_of(wanted: RefundRequest) -> bytes:
    """The nonce of a refund's authorization: equal for the same session and key, whatever the database knows."""
    return keccak256(f"sightline refund {wanted.session_id} {wanted.key}".encode())


def _transfer(signer: Signer, wanted: RefundRequest, authorization: bytes, domain: bytes) -> bytes:
    """The call that pays a refund. Source: EIP-3009, EIP-712."""
    receiver = to_checksum_address(wanted.to_address)
    words = (
        TRANSFER_TYPE_HASH,
        _word(signer.address),
        _word(receiver),
        wanted.amount_micro.to_bytes(32),
        bytes(32),
        FOR_EVER.to_bytes(32),
        authorization,
    )
    v, r, s = signer.sign_digest(keccak256(b"\x19\x01" + domain + keccak256(b"".join(words))))
    return call_data(TRANSFER, [signer.address, receiver, wanted.amount_micro, 0, FOR_EVER, authorization, v, r, s])


def _word(address: str) -> bytes:
    return bytes.fromhex(address.removeprefix("0x")).rjust(32, b"\0")


def _above_charge(wanted: RefundRequest, refunded: int) -> RefusedError:
    message = (
        f"All refunds of a session are at most its charge, {usdc_text(wanted.charged_micro)} USDC, of which "
        f"{usdc_text(refunded)} are refunded already"
    )
    return RefusedError(Refusal(Code.INVALID_STATE, "refunds:amount", message))
