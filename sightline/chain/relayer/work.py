"""What the rows of one outbox do on the chain: their call, their event, and the checks before they are signed.

The relayer signs, sends, follows and resubmits in one way, whatever the rows are: settlements that take the payer's
allowance (`allowance`), permits for the token (`permits`), holds that the escrow opens (`openings`) and adds to
(`extensions`), settlements from a hold (`captures`).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final, Generic, final

from eth_utils.address import to_checksum_address

from sightline.chain.fees import ABOUT_FEES, GAS_MAX, gas_with_margin, suggested
from sightline.chain.rpc.client import JsonRpc, Request, RpcResponseError
from sightline.chain.rpc.reader import fault_text, hex_bytes, hex_int, is_call_fault
from sightline.chain.signer import Fees
from sightline.domain.errors import ChainUnavailableError, SightlineError
from sightline.domain.value import Value, replace
from sightline.ports.chain import ChainChangedError
from sightline.ports.ledger import ChainIdentity, Inclusion, RecordT, TransactionOutbox

LOG_SPAN_BLOCKS: Final = 5_000
HOLD_MISSING: Final = "its hold is in no block yet"


@final
class HoldMissingError(SightlineError):
    """The hold that a call names is in no block: it was not opened yet, or a reorganisation removed it."""

    def __init__(self) -> None:
        super().__init__(HOLD_MISSING)


class PreflightVerdict(Enum):
    """What the relayer does with a row: sign, wait or adopt. DROP: nothing is left to do."""

    SIGN = auto()
    ADOPT = auto()
    WAIT = auto()
    DROP = auto()


@final
class Finding(Value, kw_only=True):
    """The verdict on one row; `reason` says why it must wait."""

    verdict: PreflightVerdict
    reason: str = ""
    is_refused: bool = True
    """Of a row that waits: whether the contract refuses it. Else it is too early."""


@final
class ChainView(Value, kw_only=True):
    """What is needed to sign: the latest block, fees, and the relayer's next nonce on the chain."""

    head: dict[str, Any]
    fees: Fees
    base_fee_wei: int
    mined_nonce: int


@final
class Examination(Value, kw_only=True):
    """The verdicts in the order of the request, and the chain as it was asked."""

    findings: list[Finding]
    view: ChainView


@final
class ContractCall(Value, kw_only=True):
    """The data of a call and its gas limit."""

    data: bytes
    gas: int
    """By default, what the call takes at most with Ethereum's gas costs and a token like USDC."""
    gas_max: int = GAS_MAX
    """What it may take where the node estimates more."""
    refusal: str | None = None
    """Why the contract would refuse it now, as the estimate says."""

    def estimated(self, answer: Any) -> "ContractCall":
        """Return the call with the gas limit by the node's response to eth_estimateGas.

        The limit is never below `gas`. An estimate is for the present state, and a quarter above it is not enough when
        a balance that the call adds to becomes 0 before the call is mined: writing to an empty slot takes 17,100 more.
        """
        if isinstance(answer, RpcResponseError):
            # Any other error is the node's, which may lack the method, and says nothing about the call.
            return replace(self, refusal=fault_text(answer)) if is_call_fault(answer) else self
        if hex_int(answer) > self.gas_max:
            return replace(self, refusal=f"needs {hex_int(answer)} gas, and {self.gas_max} is the maximum")
        return replace(self, gas=max(self.gas, min(self.gas_max, gas_with_margin(answer))))


@final
class EventLog(Value, kw_only=True):
    """The contract's event of one session: its topics, its data and its place."""

    topics: tuple[str, ...]
    data: bytes
    log_index: int

    @classmethod
    def of(cls, log: Mapping[str, Any]) -> "EventLog":
        """Decode a log from JSON-RPC."""
        topics = tuple(str(topic).lower() for topic in log.get("topics", ()))
        return cls(topics=topics, data=hex_bytes(log["data"]), log_index=hex_int(log["logIndex"]))


@final
class FoundEvent(Value, kw_only=True):
    """An event that was found by its session, with its block and transaction."""

    inclusion: Inclusion
    event: EventLog
    depth: int


class OutboxWork(ABC, Generic[RecordT]):
    """What the rows of one outbox do."""

    event_topic: str
    """First topic of the event that says that a row is done; the second is the session's hash."""
    counts_in_block: bool = False
    """Whether a row takes effect as soon as its transaction is in a block, before it is final. With several endpoints
    two must report the block then.
    """

    def __init__(
        self, rpc: JsonRpc, outbox: TransactionOutbox[RecordT], identity: ChainIdentity, *, start_block: int
    ) -> None:
        self.rpc = rpc
        self.outbox = outbox
        self.identity = identity
        self.contract = to_checksum_address(identity.settlement_address)
        self._start_block = start_block

    @abstractmethod
    async def call(self, records: Sequence[RecordT]) -> ContractCall:
        """Build the call that does these rows in one transaction.

        Raises:
            HoldMissingError: A hold that it names is in no block.
        """

    @abstractmethod
    async def examine(self, relayer: str, records: Sequence[RecordT]) -> Examination:
        """Examine rows before they are signed.

        Raises:
            ChainChangedError: The endpoint now serves another chain.
            ChainUnavailableError: At least one query was not answered.
        """

    @abstractmethod
    async def why_unproved(self, records: Sequence[RecordT]) -> dict[str, str]:
        """Return why rows must not be signed, by session id: the database does not prove them."""

    @abstractmethod
    async def record_difference(
        self, record: RecordT, inclusion: Inclusion, event: EventLog, *, now_ms: int
    ) -> bool:  # fmt: skip
        """Record that the contract did the row with other parties or numbers; returns whether that is so."""

    async def drop(self, record: RecordT, *, now_ms: int) -> None:
        """End a row that has nothing left to do. Only kinds whose examination answers DROP have such rows."""
        raise AssertionError(f"{type(self).__name__} answers no DROP")

    def at(self, inclusion: Inclusion, event: EventLog) -> Inclusion:
        """Return the inclusion with what is kept of the event."""
        return Inclusion(
            tx_hash=inclusion.tx_hash,
            block_number=inclusion.block_number,
            block_hash=inclusion.block_hash,
            log_index=event.log_index,
        )

    def event_in(self, receipt: Mapping[str, Any], session_id_hash: str) -> EventLog | None:
        """Return the event of a session in a receipt."""
        for log in receipt.get("logs") or ():
            topics = [str(topic).lower() for topic in log.get("topics", ())]
            if topics[:2] == [self.event_topic, session_id_hash]:
                return EventLog.of(log)
        return None

    async def why_failed(self, relayer: str, record: RecordT, block_number: int) -> str:
        """Repeat a call on the state of its block to get the reason; the state within the block may have differed.

        Raises:
            ChainUnavailableError: The endpoint did not answer.
        """
        try:
            made = await self.call([record])
        except HoldMissingError as error:
            return str(error)
        call = {"from": relayer, "to": self.contract, "data": "0x" + made.data.hex()}
        try:
            await self.rpc.call("eth_call", call, hex(block_number))
        except RpcResponseError as error:
            return fault_text(error)
        return "reverted; it would succeed at the end of the same block"

    async def find(self, session_id_hash: str) -> FoundEvent | None:
        """Find the newest event of a session by its hash; None if there is none.

        Raises:
            ChainUnavailableError: The endpoint did not answer for the whole range.
        """
        head = last = hex_int(await self.rpc.call("eth_blockNumber"))
        while last >= self._start_block:
            first = max(self._start_block, last - LOG_SPAN_BLOCKS + 1)
            query = {
                "address": self.contract,
                "topics": [self.event_topic, session_id_hash],
                "fromBlock": hex(first),
                "toBlock": hex(last),
            }
            try:
                logs = await self.rpc.call("eth_getLogs", query)
            except RpcResponseError as error:
                raise ChainUnavailableError(error.message) from error
            if logs:
                newest = logs[-1]
                number, event = hex_int(newest["blockNumber"]), EventLog.of(newest)
                inclusion = Inclusion(
                    tx_hash=str(newest["transactionHash"]).lower(),
                    block_number=number,
                    block_hash=str(newest["blockHash"]).lower(),
                )
                return FoundEvent(inclusion=self.at(inclusion, event), event=event, depth=head - number)
            last = first - 1
        return None


async def ask_with_view(
    rpc: JsonRpc, identity: ChainIdentity, relayer: str, requests: Sequence[Request]
) -> tuple[ChainView, list[Any]]:
    """Send requests together with those for a `ChainView`, and return it with their answers.

    Raises:
        ChainChangedError: The endpoint now serves another chain.
        ChainUnavailableError: The endpoint did not answer.
    """
    about: list[Request] = [
        ("eth_chainId", []),
        ("eth_getBlockByNumber", ["0x0", False]),
        ("eth_getBlockByNumber", ["latest", False]),
        *ABOUT_FEES,
        ("eth_getTransactionCount", [relayer, "latest"]),
    ]
    chain_id, genesis, head, history, tip, nonce, *answers = await rpc.batch([*about, *requests])
    require_same_chain(identity, chain_id, genesis)
    if not isinstance(head, dict):
        raise ChainUnavailableError("the endpoint has no latest block")
    view = ChainView(
        head=head,
        fees=suggested(head, history, tip),
        base_fee_wei=hex_int(head.get("baseFeePerGas") or "0x0"),
        mined_nonce=hex_int(nonce),
    )
    return view, answers


def require_same_chain(identity: ChainIdentity, chain_id: Any, genesis: Any) -> None:
    """Compare an endpoint's chain id and genesis block with the recorded ones.

    Raises:
        ChainChangedError: They differ.
        ChainUnavailableError: The endpoint did not report them.
    """
    if hex_int(chain_id) != identity.chain_id:
        raise ChainChangedError(f"the endpoint's chain id is {hex_int(chain_id)}, not {identity.chain_id}")
    if not isinstance(genesis, dict):
        raise ChainUnavailableError("the endpoint did not return its genesis block")
    if str(genesis["hash"]).lower() != identity.genesis_hash:
        raise ChainChangedError("the endpoint's first block is not the one that the database knows")
