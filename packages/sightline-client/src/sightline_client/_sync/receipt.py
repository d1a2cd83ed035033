"""The receipt of a session, and its verification."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from sightline_client._sync.chain import Chain
from sightline_client.errors import InvalidArgumentError, ReceiptError
from sightline_client.keccak import keccak256
from sightline_client.models import (
    ReceiptContracts,
    ReceiptDocument,
    ReceiptMeter,
    ReceiptSession,
    ReceiptSettlement,
)
from sightline_client.money import MicroUsdc
from sightline_client.verification import TrustedDeployment, Verification, verify_receipt


class Receipt:
    """What was metered, charged and paid.

    Args:
        data: The JSON value that `GET /sessions/{id}/receipt` answered. Keep it: it can be verified without the server.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data

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

    def verify(self, *, deployment: TrustedDeployment | None = None, rpc: str | None = None) -> Verification:
        """Compute hash chain, seconds, charge and fee from the recorded events, and compare them with the receipt.

        This proves that the numbers of the receipt agree with each other. That the payment was made is proved only
        with `deployment` and `rpc`: anyone can write a receipt, and deploy a contract that confirms it.

        Args:
            deployment: The chain and the contracts that must have paid, from a source that you trust: constants of
                your own, or the `deployment` of a client's `config()`, which is what that service says of itself.
            rpc: URL of a node of this chain that you trust. The payment is compared with the event Settled there.

        Returns:
            The result. `skipped` has the checks that were not made, with the reason: `settled` without `deployment` or
            `rpc`, and until the payment is CONFIRMED.

        Raises:
            ReceiptError: A value is wrong; `failures` has each with its path in the receipt.
            ChainError: The node did not answer.
            InvalidArgumentError: `rpc` without `deployment`. The receipt itself cannot say which contract to trust.
        """
        if rpc is not None and deployment is None:
            raise InvalidArgumentError(
                "rpc needs deployment: the chain and the contracts that you trust. A receipt may name any contract. "
                "Pass deployment=TrustedDeployment(...), or to trust a service deployment=client.config().deployment."
            )
        chain = None if rpc is None else self._on_chain(rpc)
        result = verify_receipt(self.data, keccak256=keccak256, deployment=deployment, chain=chain)
        if not result.is_valid:
            lines = "; ".join(f"{failure.line} {failure.message}" for failure in result.failures)
            raise ReceiptError(f"The receipt is wrong: {lines}. Keep it as evidence.", result)
        return result

    def _on_chain(self, rpc: str) -> dict[str, Any] | None:
        """Read the transaction. None if the receipt names none that is confirmed."""
        settlement = self.data.get("settlement")  # not the model: the receipt may be malformed
        if not isinstance(settlement, Mapping) or settlement.get("state") != "CONFIRMED":
            return None
        node = Chain(rpc)
        mined = node.call("eth_getTransactionReceipt", settlement.get("txHash"))
        return {"chainId": int(node.call("eth_chainId"), 16), "receipt": mined}
