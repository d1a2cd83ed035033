"""The receipt of a session, and its verification."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from sightline_client._async.chain import AsyncChain
from sightline_client._async.transport import AsyncTransport
from sightline_client.errors import ReceiptError
from sightline_client.keccak import keccak256
from sightline_client.models import (
    ChainConfig,
    ReceiptContracts,
    ReceiptDocument,
    ReceiptMeter,
    ReceiptSession,
    ReceiptSettlement,
)
from sightline_client.money import MicroUsdc
from sightline_client.verification import Verification, verify_receipt


class AsyncReceipt:
    """What was metered, charged and paid.

    Args:
        data: The JSON value that `GET /sessions/{id}/receipt` answered. Keep it: it can be verified without the server.
        transport: Connection to the server, for `verify(rpc=True)`.
    """

    def __init__(self, data: Mapping[str, Any], *, transport: AsyncTransport | None = None) -> None:
        self.data = data
        self._transport = transport

    @cached_property
    def _document(self) -> ReceiptDocument:
        try:
            return ReceiptDocument.model_validate(self.data)
        except ValidationError as error:
            raise ReceiptError(f"The receipt is malformed: {error}. Call verify() for all wrong values.") from error

    @property
    def session(self) -> ReceiptSession:
        """Terms and outcome of the session."""
        return self._document.session

    @property
    def meter(self) -> ReceiptMeter:
        """The meter, with the windows that are not charged."""
        return self._document.meter

    @property
    def settlement(self) -> ReceiptSettlement:
        """The payment and its place on the chain."""
        return self._document.settlement

    @property
    def contracts(self) -> ReceiptContracts:
        """The chain and the contracts of the payment."""
        return self._document.contracts

    @property
    def seconds(self) -> int:
        """Seconds that are charged."""
        return self.session.clean_seconds

    @property
    def charged(self) -> MicroUsdc:
        """The charge."""
        return self.session.charged_micro_usdc

    @property
    def tx_hash(self) -> str | None:
        """The transaction that paid; None for a session that is not settled."""
        return self.settlement.tx_hash

    async def verify(self, *, rpc: bool | str = False) -> Verification:
        """Compute hash chain, seconds, charge and fee from the recorded events, and compare them with the receipt.

        Args:
            rpc: Also compare the payment with the event Settled on the chain: the URL of a node that you trust, or
                True for the node that the server names.

        Returns:
            The result. `skipped` has the checks that were not made: `settled` without `rpc`, and until the payment is
            CONFIRMED.

        Raises:
            ReceiptError: A value is wrong; `failures` has each with its path in the receipt.
            ChainError: The node did not answer.
        """
        chain = await self._on_chain(rpc) if rpc else None
        result = verify_receipt(self.data, keccak256=keccak256, chain=chain)
        if not result.is_valid:
            lines = "; ".join(f"{failure.line} {failure.message}" for failure in result.failures)
            raise ReceiptError(f"The receipt is wrong: {lines}. Keep it as evidence.", result)
        return result

    async def _on_chain(self, rpc: bool | str) -> dict[str, Any] | None:
        """Read the transaction. None if the receipt names none that is confirmed."""
        settlement = self.data.get("settlement")  # not the model: the receipt may be malformed
        if not isinstance(settlement, Mapping) or settlement.get("state") != "CONFIRMED":
            return None
        if isinstance(rpc, str):
            url = rpc
        elif self._transport is None:
            raise ValueError("rpc=True needs a receipt that a client has read. Pass the URL of a node: rpc=URL.")
        else:
            url = (await self._transport.get(ChainConfig, "/config")).rpc_url
        node = AsyncChain(url)
        mined = await node.call("eth_getTransactionReceipt", settlement.get("txHash"))
        return {"chainId": int(await node.call("eth_chainId"), 16), "receipt": mined}
