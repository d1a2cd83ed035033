"""Broadcasts signed transactions and classifies the node's answers."""

from collections.abc import Sequence
from typing import Final, final

from sightline.chain.rpc.client import JsonRpc, RpcResponseError, is_perhaps_sent
from sightline.domain.value import Value
from sightline.ports.ledger import Attempt

FEES_TOO_LOW: Final = "the node wants higher fees"

# Error texts with which nodes ask for higher fees.
_FEE_TOO_LOW: Final = ("less than block base fee", "transaction underpriced", "fee too low", "max fee per gas")


@final
class Answers(Value, kw_only=True):
    """Hashes that the node has or may have, and the transactions that it refused with its error text."""

    taken: list[str]
    refused: list[tuple[Attempt, str]]


async def broadcast(rpc: JsonRpc, attempts: Sequence[Attempt]) -> Answers:
    """Send each transaction once, in the order of the nonces.

    Raises:
        ChainUnavailableError: The node did not answer; it may have any of the transactions.
    """
    ordered = sorted(attempts, key=lambda attempt: attempt.nonce)
    answers = await rpc.send_once([("eth_sendRawTransaction", ["0x" + item.raw.hex()]) for item in ordered])
    taken: list[str] = []
    refused: list[tuple[Attempt, str]] = []
    for attempt, answer in zip(ordered, answers, strict=True):
        if not isinstance(answer, RpcResponseError) or is_perhaps_sent(answer):
            taken.append(attempt.tx_hash)
        elif any(text in answer.message.lower() for text in _FEE_TOO_LOW):
            refused.append((attempt, FEES_TOO_LOW))
        else:
            refused.append((attempt, answer.message))
    return Answers(taken=taken, refused=refused)
