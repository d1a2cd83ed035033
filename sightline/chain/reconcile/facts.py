"""Facts of the chain: what each event of the contract means for the accounts. Shares no code with the watcher.

The payer of a hold is remembered from its Opened event. Money that comes in is matched to the holds and credits of its
transaction by payer and amount, whatever the order of the logs; what is left over is stray.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, final

from msgspec import Struct, field

from sightline.domain.errors import ChainUnavailableError
from sightline.domain.value import Value
from sightline.system.keccak import keccak256

WORD: Final = 32
NO_HASH: Final = "0x" + "00" * WORD


def event_topic(signature: str) -> str:
    """Return the first topic of an event."""
    return "0x" + keccak256(signature.encode()).hex()


TRANSFER: Final = event_topic("Transfer(address,address,uint256)")


@final
class RawLog(Value):
    """A log as the endpoint gives it, with its numbers as integers."""

    address: str
    topics: tuple[str, ...]
    words: tuple[int, ...]
    tx_hash: str
    index: int
    block: int
    block_hash: str

    @classmethod
    def of(cls, item: Any) -> "RawLog":
        """Read a log.

        Raises:
            ChainUnavailableError: The endpoint gave something else.
        """
        try:
            data = bytes.fromhex(item["data"][2:])
            return cls(
                address=item["address"].lower(),
                topics=tuple(each.lower() for each in item["topics"]),
                words=tuple(int.from_bytes(data[at : at + WORD]) for at in range(0, len(data), WORD)),
                tx_hash=item["transactionHash"].lower(),
                index=int(item["logIndex"], 16),
                block=int(item["blockNumber"], 16),
                block_hash=item["blockHash"].lower(),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ChainUnavailableError(f"the endpoint gave a log that cannot be read: {error!r}") from error

    def account(self, topic: int) -> str:
        """Return the address in a topic."""
        return "0x" + self.topics[topic][26:]


@final
class Fact(Value, kw_only=True):
    """An event with the accounts that it changes, debits positive."""

    kind: str
    tx_hash: str
    index: int
    block: int
    block_hash: str
    accounts: Mapping[str, int]
    currency: str = "micro-USDC"
    session_id_hash: str | None = None
    session_id: str | None = None
    """Where the session is known and its hash is not in the event: refunds and gas."""


@final
class Payment(Value, kw_only=True):
    """A Settled event."""

    session_id_hash: str
    payer: str
    payee: str
    to_amount: int
    fee_amount: int
    seconds: int
    tx_hash: str


@final
class ChainFacts(Struct):
    """Collects the facts of one contract, from its first block on."""

    token: str
    contract: str
    is_escrow: bool
    _payer_of: dict[str, str] = field(default_factory=dict)
    """The payer of each open hold."""
    facts: list[Fact] = field(default_factory=list)
    payments: list[Payment] = field(default_factory=list)
    opened: dict[str, int] = field(default_factory=dict)
    """Amounts of the holds that were opened in the blocks read since `take`, extensions included."""
    unexplained: list[tuple[str, int, int]] = field(default_factory=list)
    """Transactions whose transfers differ from what their events say: hash, transfers, events."""

    def read(self, logs: Iterable[RawLog]) -> None:
        """Add the logs of blocks that follow those before."""
        transactions: dict[str, list[RawLog]] = {}
        for log in sorted(logs, key=lambda each: (each.block, each.index)):
            transactions.setdefault(log.tx_hash, []).append(log)
        for tx_hash, group in transactions.items():
            before = len(self.facts)
            incoming = self._incoming(group)
            for log in group:
                reader = _READERS.get(log.topics[0]) if log.address == self.contract and log.topics else None
                if reader is not None:
                    reader(self, log, incoming)
            for log in incoming:
                self._add("STRAY", log, {"escrow": log.words[0], "stray": -log.words[0]})
            self._compare_transfers(tx_hash, group, self.facts[before:])

    def _incoming(self, logs: Sequence[RawLog]) -> list[RawLog]:
        return [log for log in logs if self._is_transfer(log) and log.account(2) == self.contract and log.words[0]]

    def _is_transfer(self, log: RawLog) -> bool:
        return log.address == self.token and log.topics[:1] == (TRANSFER,) and len(log.topics) == 3

    def _compare_transfers(self, tx_hash: str, logs: Sequence[RawLog], facts: Sequence[Fact]) -> None:
        came = sum(log.words[0] for log in self._incoming(logs))
        went = sum(log.words[0] for log in logs if self._is_transfer(log) and log.account(1) == self.contract)
        told = sum(fact.accounts.get("escrow", 0) for fact in facts)
        if came - went != told:
            self.unexplained.append((tx_hash, came - went, told))

    def _add(self, kind: str, log: RawLog, accounts: Mapping[str, int], session: str | None = None) -> None:
        self.facts.append(
            Fact(
                kind=kind,
                tx_hash=log.tx_hash,
                index=log.index,
                block=log.block,
                block_hash=log.block_hash,
                accounts={account: amount for account, amount in accounts.items() if amount},
                session_id_hash=None if session == NO_HASH else session,
            )
        )

    # One for each event.

    def _held(self, kind: str, log: RawLog, payer: str, incoming: list[RawLog]) -> None:
        amount = log.words[0]
        matching = [each for each in incoming if each.account(1) == payer and each.words[0] == amount]
        if matching:
            incoming.remove(matching[0])
        self.opened[log.topics[1]] = self.opened.get(log.topics[1], 0) + amount
        self._add(kind, log, {"escrow": amount, f"held:{payer}": -amount}, log.topics[1])

    def opened_event(self, log: RawLog, incoming: list[RawLog]) -> None:
        """Opened(id, payer, payee, maxAmount, ...)."""
        self._payer_of[log.topics[1]] = log.account(2)
        self._held("OPENED", log, log.account(2), incoming)

    def extended_event(self, log: RawLog, incoming: list[RawLog]) -> None:
        """Extended(id, extraAmount, maxAmount)."""
        self._held("EXTENDED", log, self._payer_of.get(log.topics[1], ""), incoming)

    def settled_event(self, log: RawLog, _: list[RawLog]) -> None:
        """Settled(id, payer, payee, toAmount, feeAmount, rate, seconds, feeBps)."""
        payer, payee, to_amount, fee_amount = log.account(2), log.account(3), log.words[0], log.words[1]
        accounts = Counter({f"payer:{payer}": to_amount + fee_amount})
        accounts[f"payee:{payee}"] -= to_amount
        accounts["fee"] -= fee_amount
        if self.is_escrow:
            accounts["escrow"] -= to_amount + fee_amount
            accounts[f"held:{payer}"] += to_amount + fee_amount
        self._add("SETTLED", log, accounts, log.topics[1])
        self.payments.append(
            Payment(
                session_id_hash=log.topics[1], payer=payer, payee=payee, to_amount=to_amount, fee_amount=fee_amount,
                seconds=log.words[3], tx_hash=log.tx_hash,
            )
        )  # fmt: skip

    def evidence_event(self, log: RawLog, _: list[RawLog]) -> None:
        """Evidence(id, headHash, returned)."""
        payer = self._payer_of.pop(log.topics[1], "")
        self._add("RETURNED", log, {f"held:{payer}": log.words[1], "escrow": -log.words[1]}, log.topics[1])

    def reclaimed_event(self, log: RawLog, _: list[RawLog]) -> None:
        """Reclaimed(id, payer, amount)."""
        self._payer_of.pop(log.topics[1], None)
        self._add("RECLAIMED", log, {f"held:{log.account(2)}": log.words[0], "escrow": -log.words[0]}, log.topics[1])

    def credited_event(self, log: RawLog, incoming: list[RawLog]) -> None:
        """Credited(receiver, id, amount). SessionSettlement has taken the amount from the payer for it."""
        amount = log.words[0]
        taken = [each for each in incoming if each.words[0] == amount]
        if taken and not self.is_escrow:
            incoming.remove(taken[0])
        self._add("CREDITED", log, {"escrow": amount, f"credit:{log.account(1)}": -amount}, log.topics[2])

    def withdrawn_event(self, log: RawLog, _: list[RawLog]) -> None:
        """Withdrawn(receiver, amount)."""
        self._add("WITHDRAWN", log, {f"credit:{log.account(1)}": log.words[0], "escrow": -log.words[0]})

    def stray_returned_event(self, log: RawLog, _: list[RawLog]) -> None:
        """StrayReturned(receiver, reference, amount)."""
        self._add("STRAY_RETURNED", log, {"stray": log.words[0], "escrow": -log.words[0]})


_READERS: Final[Mapping[str, Callable[[ChainFacts, RawLog, list[RawLog]], None]]] = {
    event_topic("Opened(bytes32,address,address,uint256,uint256,uint256,uint256)"): ChainFacts.opened_event,
    event_topic("Extended(bytes32,uint256,uint256)"): ChainFacts.extended_event,
    event_topic("Settled(bytes32,address,address,uint256,uint256,uint256,uint256,uint256)"): ChainFacts.settled_event,
    event_topic("Evidence(bytes32,bytes32,uint256)"): ChainFacts.evidence_event,
    event_topic("Reclaimed(bytes32,address,uint256)"): ChainFacts.reclaimed_event,
    event_topic("Credited(address,bytes32,uint256)"): ChainFacts.credited_event,
    event_topic("Withdrawn(address,uint256)"): ChainFacts.withdrawn_event,
    event_topic("StrayReturned(address,bytes32,uint256)"): ChainFacts.stray_returned_event,
}


def fee_facts(tx_hash: str, receipt: Mapping[str, Any], session_id: str | None) -> Fact:
    """Return what the sender of a transaction has paid for it."""
    names = ("gasUsed", "effectiveGasPrice", "l1Fee", "operatorFeeScalar", "operatorFeeConstant")
    gas, price, data_fee, per_gas, constant = (int(receipt.get(name) or "0x0", 16) for name in names)
    wei = gas * (price + 100 * per_gas) + data_fee + constant
    sender = str(receipt["from"]).lower()
    return Fact(
        kind="GAS",
        tx_hash=tx_hash,
        index=-1,
        block=int(receipt["blockNumber"], 16),
        block_hash=str(receipt["blockHash"]).lower(),
        accounts={"gas": wei, f"gas-key:{sender}": -wei},
        currency="wei",
        session_id=session_id,
    )


def refund_facts(receipt: Mapping[str, Any], token: str, contract: str, session_id: str) -> list[Fact]:
    """Return the transfers in the transaction of a refund."""
    found: list[Fact] = []
    for item in receipt["logs"]:
        log = RawLog.of(item)
        if log.address == token and log.topics[:1] == (TRANSFER,) and log.account(2) != contract:
            accounts = {f"refunds:{log.account(2)}": log.words[0], f"refund-account:{log.account(1)}": -log.words[0]}
            found.append(
                Fact(
                    kind="REFUND", tx_hash=log.tx_hash, index=log.index, block=log.block, block_hash=log.block_hash,
                    accounts=accounts, session_id=session_id,
                )
            )  # fmt: skip
    return found
