"""Receipts of sessions that ran through the state machine, valid and forged, with the matching chain data."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import orjson
from eth_abi.abi import encode

from sightline.actors.types import SessionHistory
from sightline.chain.contracts.abi import SETTLED_TOPIC, TRANSFER_TOPIC, address_topic
from sightline.domain.session import machine
from sightline.domain.session.messages import (
    Assign,
    Cancel,
    End,
    Extend,
    FixReported,
    GoLive,
    MediaBroke,
    MediaProved,
    Message,
    Party,
    Say,
    Settle,
    SettlementMined,
    Step,
)
from sightline.domain.session.model import Ended, Session, SessionExtension, VideoInput
from sightline.domain.session.record import chain
from sightline.domain.session.status import meter_status, session_status
from sightline.domain.settlement import SettlementPayload
from sightline.domain.units import MicroUsdc
from sightline.domain.value import replace
from sightline.http.schemas.receipts import receipt_json
from sightline.ports.ledger import SettlementRecord, SettlementState
from sightline.ports.store import RecordedEvent
from sightline.system.keccak import session_id_hash
from tests.domain.builders import CONSUMER, LIMITS, T0, a_fix, an_operator, terms
from tests.http.fakes import CHAIN

PAYER = "0x52908400098527886E0F7030069857D2E4169EE7"
PAYEE = "0x8617E340B3D01FA5F11F306F4090FD50E238070D"
OTHER_PAYEE = "0xde709f2102306220921060314715629080e2fb77"
STRANGERS_CONTRACTS = {"settlementAddress": "0x" + "c1" * 20, "usdcAddress": "0x" + "c2" * 20}
TX = "0x" + "5e" * 32
BLOCK, LOG_INDEX = 4_711, 5

Json = dict[str, Any]


class Story:
    """A session and everything that was recorded of it."""

    def __init__(self, minimum_s: int = 0) -> None:
        agreed = terms(payer_address=PAYER, max_duration_s=60, hold=60 * 1_000, minimum_s=minimum_s)
        made = machine.create(agreed)
        self.session, self.events = made.session, list[RecordedEvent]()
        self.payload: SettlementPayload | None = None
        self.on_chain: SettlementPayload | None = None
        """What the contract settled, if it differs."""
        self._record(made)

    def tell(self, message: Message, after_ms: int) -> "Story":
        step = machine.step(self.session, message, T0 + after_ms, LIMITS)
        assert isinstance(step, Step), step
        self._record(step)
        return self

    def proved(self, first_ms: int, last_ms: int) -> "Story":
        """Heartbeats and frames every two seconds."""
        for sequence, at_ms in enumerate(range(first_ms, last_ms + 1, 2_000), first_ms):
            self.tell(FixReported(a_fix(T0 + at_ms), sequence), at_ms)
            self.tell(MediaProved(T0 + at_ms), at_ms)
        return self

    def _record(self, step: Step) -> None:
        self.session, recorded = chain(step.session, step.events)
        self.events += [RecordedEvent(*each) for each in recorded]
        self.payload = next((each.payload for each in step.effects if isinstance(each, Settle)), self.payload)

    def receipt(self) -> Json:
        shown: Json = orjson.loads(orjson.dumps(receipt_json(self._history(), self._settlement(), CHAIN)))
        return shown

    def _history(self) -> SessionHistory:
        session: Session = self.session
        return SessionHistory(
            status=session_status(session, T0 + 100_000, LIMITS, CONSUMER),
            meter=meter_status(session, T0 + 100_000, LIMITS),
            events=tuple(self.events),
        )

    def _settlement(self) -> SettlementRecord | None:
        if self.payload is None:
            return None
        is_mined = self.events[-1].event.kind.value == "SETTLED" or self.on_chain is not None
        final = SettlementState.CONFIRMED if self.on_chain is None else SettlementState.MISMATCHED
        return SettlementRecord(
            session_id=self.session.id,
            session_id_hash=session_id_hash(self.session.id),
            payload=self.payload,
            state=final if is_mined else SettlementState.COMPOSED,
            reason=None,
            tx_hash=TX if is_mined else None,
            block_number=BLOCK if is_mined else None,
            block_hash="0x" + "ab" * 32 if is_mined else None,
            confirmed_at_ms=T0 + 90_000 if is_mined else None,
            retry_at_ms=0,
            tries=0,
            notified=is_mined,
            composed_at_ms=T0 + 50_000,
            updated_at_ms=T0 + 90_000,
            log_index=LOG_INDEX if is_mined else None,
            on_chain=self.on_chain,
        )


def live(minimum_s: int = 0) -> Story:
    """A session in LIVE since T0 + 5 s."""
    video = VideoInput(ref="input-1", whip_url="http://v/whip/x", whep_url="http://v/whep/x")
    story = Story(minimum_s).tell(Assign(an_operator(wallet_address=PAYEE)), 2_000)
    return story.tell(GoLive(video), 5_000)


def settled() -> Story:
    """Two pauses that overlap in time, an end by the consumer, and a settlement."""
    story = live().proved(5_000, 13_000)
    story.tell(MediaBroke(T0 + 14_000), 14_000).proved(18_000, 20_000)
    story.proved(33_500, 41_500).tell(End(Party.CONSUMER), 42_750)
    return story.tell(SettlementMined(TX), 80_000)


def pending() -> Story:
    """An end without any proof: charged nothing, and not settled yet."""
    return live().tell(End(Party.OPERATOR), 9_000)


def short(minimum_s: int) -> Story:
    """A view of 1.2 s, of which 0.5 s were filmed before the publisher disconnected."""
    story = live(minimum_s).proved(5_400, 5_400).tell(MediaBroke(T0 + 5_500), 5_500)
    return story.tell(End(Party.CONSUMER), 6_200)


def extended() -> Story:
    """A view of 60 s that was extended twice, and filmed 80 s."""
    story = live().proved(5_000, 25_000)
    for number, at_ms in enumerate((26_000, 27_000)):
        story.tell(Extend(SessionExtension(id=str(number), seconds=15, amount=MicroUsdc(15_000))), at_ms)
    return story.proved(27_000, 85_000).tell(End(Party.CONSUMER), 85_000)


def told() -> Story:
    """A view whose consumer wrote to the operator, with letters outside of ASCII and outside of the first plane."""
    story = live().proved(5_000, 15_000)
    for number, text in enumerate(
        ("turn left", 'zur "T\u00fcr" \\ \u6771\u4eac', "\U0001f44b \u0627\u0642\u062a\u0631\u0628")
    ):
        story.tell(Say(text), 16_000 + number)
    return story.proved(17_000, 25_000).tell(End(Party.CONSUMER), 25_000)


def unextended() -> Json:
    """A receipt whose second extension adds more seconds than it says. Its hashes agree with its events."""
    story = extended()
    shown = story.events
    place = max(index for index, each in enumerate(shown) if each.event.kind.value == "EXTENDED")
    events = [each.event for each in shown]
    facts = dict(events[place].facts) | {"seconds": 5}
    events[place] = replace(events[place], facts=tuple(facts.items()))
    before = replace(story.session, head_hash="", events=0)
    story.session, recorded = chain(before, events)
    story.events = [RecordedEvent(*each) for each in recorded]
    return story.receipt()


def unproved() -> Json:
    """A receipt whose service charged the minimum although nothing was proved. Its hashes agree with its events."""
    story = live(1).tell(End(Party.OPERATOR), 9_000)
    ended = story.events.pop().event
    facts = tuple(
        {"cleanSeconds": ("cleanSeconds", 1), "chargedMicroUsdc": ("chargedMicroUsdc", "1000")}.get(name, (name, value))
        for name, value in ended.facts
    )
    assert story.payload is not None
    assert isinstance(story.session.phase, Ended)
    phase = replace(story.session.phase, clean_seconds=1, charged=MicroUsdc(1_000))
    before = replace(story.session, phase=phase, head_hash=story.events[-1].hash, events=len(story.events))
    payload = replace(story.payload, chargeable_seconds=1, to_amount=MicroUsdc(850), fee_amount=MicroUsdc(150))
    story.session, recorded = chain(before, (replace(ended, facts=facts),))
    story.events += [RecordedEvent(*each) for each in recorded]
    story.payload = payload
    return story.receipt()


def cancelled() -> Story:
    """A request that its consumer withdrew."""
    return Story().tell(Cancel(), 3_000)


def reopened() -> Story:
    """A request whose operator did not start in time, and that its consumer withdrew then."""
    return Story().tell(Assign(an_operator(wallet_address=PAYEE)), 2_000).tell(Cancel(), 130_000)


def by_other_contracts(receipt: Json) -> Json:
    """The receipt as if contracts that anyone may deploy had paid. Its own numbers agree with each other."""
    return forged(receipt, ("contracts",), receipt["contracts"] | STRANGERS_CONTRACTS)


def mismatched() -> Json:
    """A database that was restored: the chain had paid 7 seconds to another payee before."""
    story = live().proved(5_000, 13_000)
    story.tell(MediaBroke(T0 + 14_000), 14_000).proved(18_000, 20_000)
    story.proved(33_500, 41_500).tell(End(Party.CONSUMER), 42_750)
    assert story.payload is not None
    story.on_chain = replace(
        story.payload,
        to_address=OTHER_PAYEE,
        chargeable_seconds=7,
        to_amount=MicroUsdc(5_950),
        fee_amount=MicroUsdc(1_050),
    )
    return story.receipt()


def on_chain(receipt: Json, *, token: str | None = None, is_credited: bool = False) -> Json:
    """What a node of the chain answers for the settlement of a true receipt.

    Args:
        token: Another token than the receipt's that moved the amounts.
        is_credited: The token refused the payee: its part is a credit at the settlement contract.
    """
    payload, contracts = receipt["settlement"]["payload"], receipt["contracts"]
    amounts = [int(payload[name]) for name in ("toAmount", "feeAmount", "ratePerSecond")]
    data = encode(["uint256"] * 5, [*amounts, payload["chargeableSeconds"], payload["platformFeeBps"]])
    payer, payee = address_topic(payload["from"]), address_topic(payload["to"])
    collector = address_topic("0x" + "fe" * 20)
    token = (token or contracts["usdcAddress"]).lower()
    receiver = address_topic(contracts["settlementAddress"]) if is_credited else payee
    logs = [
        _log(token, [TRANSFER_TOPIC, payer, receiver], encode(["uint256"], amounts[:1]), LOG_INDEX - 2),
        _log(token, [TRANSFER_TOPIC, payer, collector], encode(["uint256"], amounts[1:2]), LOG_INDEX - 1),
        _log(
            contracts["settlementAddress"].lower(),
            [SETTLED_TOPIC, payload["sessionIdHash"], payer, payee],
            data,
            LOG_INDEX,
        ),
    ]
    mined = {"transactionHash": TX, "blockNumber": hex(BLOCK), "status": "0x1", "logs": logs}
    return {"chainId": contracts["chainId"], "receipt": mined}


def _log(address: str, topics: list[str], data: bytes, index: int) -> Json:
    return {"address": address, "topics": topics, "data": "0x" + data.hex(), "logIndex": hex(index)}


def leaves(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The paths of all scalars of decoded JSON."""
    if isinstance(value, dict):
        return [leaf for name, each in value.items() for leaf in leaves(each, (*path, name))]
    if isinstance(value, list):
        return [leaf for index, each in enumerate(value) for leaf in leaves(each, (*path, index))]
    return [path]


def line_of(path: Sequence[str | int]) -> str:
    """The path as a verifier writes it."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def value_at(receipt: Json, path: tuple[str | int, ...]) -> Any:
    value: Any = receipt
    for part in path:
        value = value[part]
    return value


def forged(receipt: Json, path: tuple[str | int, ...], value: object) -> Json:
    """The receipt with another value at a path."""
    other = deepcopy(receipt)
    value_at(other, path[:-1])[path[-1]] = value
    return other
