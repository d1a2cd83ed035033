"""What the relayer decides about one row of the escrow's outboxes, by the chain's answers and the recorded session.

The node answers in the test process, so that each number is tried at the limit and one beside it.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import rlp
from eth_abi.abi import encode

from sightline.chain.contracts.abi import address_topic, call_data
from sightline.chain.contracts.escrow import CLOSED, escrow_call
from sightline.chain.contracts.messages import SLACK_S, CaptureItem, Permit, batch_of
from sightline.chain.gas_key import LocalGasKey
from sightline.chain.meter import MeterKey
from sightline.chain.relayer.captures import REORGANISED_S, CaptureWork
from sightline.chain.relayer.extensions import ExtensionWork
from sightline.chain.relayer.inclusion import Sighting
from sightline.chain.relayer.openings import OpeningWork, hold_of
from sightline.chain.relayer.options import RelayerOptions
from sightline.chain.relayer.permits import PermitWork, permit_data
from sightline.chain.relayer.resubmission import Resubmission
from sightline.chain.relayer.sender import Sender
from sightline.chain.relayer.work import EventLog, Finding, OutboxWork, PreflightVerdict
from sightline.chain.rpc.client import JsonRpc
from sightline.chain.signer import Fees, Signer
from sightline.domain.errors import ChainUnavailableError
from sightline.domain.escrow import ConsentKind, PayerConsent
from sightline.domain.session.machine import settlement_of
from sightline.domain.session.model import Assigned, Closed, Ended, Session, SessionExtension, SessionState
from sightline.domain.units import MicroUsdc
from sightline.domain.value import replace
from sightline.ports.escrow import AllowancePermit, HoldExtension, HoldOpening
from sightline.ports.ledger import Attempt, Inclusion, SettlementRecord, SettlementState
from sightline.system.ids import SystemIds
from sightline.system.keccak import keccak256, session_id_hash
from tests.chain.relayer.settling_node import RefusedCallError, SettlingNode, open_node, word
from tests.contract.builders import PAYEE, PAYER, a_session, an_id, an_operator, in_phase

RATE, HOLD, OPENED_S = 1_000, 60_000, 1_700_000_000
RELAYER = "0x" + "d4" * 20
CONSENT = PayerConsent(kind=ConsentKind.CONSENT, open_by_s=OPENED_S + 600, signature="0x" + "11" * 65)
SIGN, ADOPT, WAIT, DROP = PreflightVerdict
NEVER = bytes(32)
REFUSAL = "execution reverted: paused"
WAITING = (SettlementState.COMPOSED, SettlementState.REVERTED, SettlementState.FAILED, SettlementState.WRITTEN_OFF)
INCLUSION = Inclusion(tx_hash="0xaa", block_number=1, block_hash="0xbb")
ROW: dict[str, Any] = {
    "reason": None, "tx_hash": None, "block_number": None, "block_hash": None, "confirmed_at_ms": None,
    "retry_at_ms": 0, "tries": 0, "notified": True, "composed_at_ms": 0, "updated_at_ms": 0,
}  # fmt: skip
STATE_OF, NONCES = call_data("stateOf(bytes32)", [NEVER])[:4], call_data("nonces(address)", [PAYER])[:4]


class EscrowNode(SettlingNode):
    """A node that answers what is asked before a row is signed."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = OPENED_S
        """Time of the newest block."""
        self.coming_s: int | None = None
        """Time of the block that would be made now; None if the node does not know one."""
        self.states: dict[str, bytes] = {}
        """The contract's state of sessions by their hash."""
        self.nonce = 0
        """The token's next nonce of every owner."""
        self.refusal: RefusedCallError | None = None
        """Why the contract refuses the call that would be signed."""
        self.trials: list[dict[str, Any]] = []
        self.broadcast: list[bytes] = []

    def _eth_sendRawTransaction(self, raw: str) -> str:  # noqa: N802
        self.broadcast.append(bytes.fromhex(raw[2:]))
        return "0x" + keccak256(self.broadcast[-1]).hex()

    def _eth_getBlockByNumber(self, tag: str, is_full: bool) -> dict[str, Any] | None:  # noqa: N802
        if tag == "pending":
            return None if self.coming_s is None else {"timestamp": hex(self.coming_s)}
        block = super()._eth_getBlockByNumber(tag, is_full)
        return None if block is None else block | {"timestamp": hex(self.now_s)}

    def _eth_call(self, call: dict[str, Any], _tag: str) -> str:
        data = bytes.fromhex(call["data"][2:])
        if data[:4] == STATE_OF:
            return "0x" + self.states.get("0x" + data[4:].hex(), NEVER).hex()
        if data[:4] == NONCES:
            return word(self.nonce)
        self.trials.append(call)
        if self.refusal is not None:
            raise self.refusal
        return "0x"


@dataclass
class Rows:
    """What the database has of holds and sessions; keeps what is written about a row."""

    holds: dict[str, HoldOpening] = field(default_factory=dict)
    known: dict[str, Session] = field(default_factory=dict)
    failed: list[tuple[str, SettlementState, str]] = field(default_factory=list)
    withdrawn: list[tuple[str, str]] = field(default_factory=list)
    signed: list[Attempt] = field(default_factory=list)
    revived: list[str] = field(default_factory=list)
    sharing: list[Any] = field(default_factory=list)
    """The rows of the transaction that is replaced."""

    async def openings(self, session_ids: list[str]) -> dict[str, HoldOpening]:
        return {each: self.holds[each] for each in session_ids if each in self.holds}

    async def sessions(self, session_ids: list[str]) -> dict[str, Session]:
        return {each: self.known[each] for each in session_ids if each in self.known}

    async def mark_waiting(
        self, session_id: str, state: SettlementState, *, reason: str, retry_at_ms: int, now_ms: int
    ) -> None:
        assert retry_at_ms == now_ms, "it is examined again at once"
        self.failed.append((session_id, state, reason))

    async def attempts_at(self, relayer: str, nonce: int) -> list[Attempt]:
        return [each for each in self.signed if each.nonce == nonce]

    async def of_transaction(self, tx_hash: str) -> list[Any]:
        return self.sharing

    async def store_signed(self, relayer: str, attempts: list[Attempt], *, now_ms: int) -> None:
        self.signed += attempts

    async def mark_sent(self, attempts: list[Attempt], *, now_ms: int) -> None:
        pass

    async def revive(self, session_ids: list[str]) -> None:
        self.revived += session_ids

    async def withdraw(self, permit_id: str, *, reason: str, now_ms: int) -> None:
        self.withdrawn.append((permit_id, reason))


@dataclass
class Bench:
    """The four kinds of work on one node and one set of rows."""

    node: EscrowNode
    rpc: JsonRpc
    rows: Any = field(default_factory=Rows)
    meter: MeterKey = field(default_factory=lambda: MeterKey(b"\x7e" * 32, chain_id=7, contract="0x" + "cc" * 20))

    @property
    def captures(self) -> CaptureWork:
        return CaptureWork(self.rpc, self.rows, self.rows, self.rows, self.node.identity, self.meter, RelayerOptions())

    @property
    def openings(self) -> OpeningWork:
        return OpeningWork(self.rpc, self.rows, self.node.identity, self.meter, start_block=0)

    @property
    def extensions(self) -> ExtensionWork:
        return ExtensionWork(self.rpc, self.rows, self.rows, self.node.identity, self.meter, start_block=0)

    @property
    def permits(self) -> PermitWork:
        return PermitWork(self.rpc, self.rows, self.node.identity, start_block=0)

    def knows(self, session: Session, **changed: Any) -> HoldOpening:
        """Record a session and its hold, which is open on the chain."""
        opening = an_opening(session, **changed)
        self.rows.known[session.id], self.rows.holds[session.id] = session, opening
        hold = hold_of(opening)
        if hold is not None:
            self.node.states[opening.session_id_hash] = hold.hash()
        return opening


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    node = EscrowNode()
    async with open_node(node) as rpc:
        yield Bench(node, rpc)


async def verdict(work: OutboxWork[Any], *rows: Any) -> Finding:
    """What is decided about the last row."""
    return (await work.examine(RELAYER, list(rows))).findings[-1]


def of_state(state: SessionState = SessionState.ENDED, seconds: int = 60, **terms: Any) -> Session:
    chosen: dict[str, Any] = {"rate": MicroUsdc(RATE), "hold": MicroUsdc(HOLD), "consent": CONSENT, **terms}
    session = in_phase(a_session(**chosen), state, an_operator())
    if isinstance(session.phase, Ended):
        charged = MicroUsdc(seconds * RATE)
        session = replace(session, phase=replace(session.phase, clean_seconds=seconds, charged=charged))
    if isinstance(session.phase, Assigned):
        session = replace(session, phase=replace(session.phase, funding_at_ms=1))
    return session


def an_opening(session: Session, **changed: Any) -> HoldOpening:
    fields: dict[str, Any] = {
        "state": SettlementState.MINED, "payer": PAYER, "payee": PAYEE, "max_amount": session.terms.hold,
        "rate": session.terms.rate, "fee_bps": session.terms.platform_fee_bps, "consent": session.terms.consent,
        "opened_at_s": OPENED_S,
    }  # fmt: skip
    return HoldOpening(session_id=session.id, session_id_hash=session_id_hash(session.id), **ROW | fields | changed)


def a_charge(session: Session, seconds: int = 60) -> SettlementRecord:
    payload = settlement_of(session.terms, session.operator or an_operator(), seconds, MicroUsdc(seconds * RATE))
    return SettlementRecord(
        session_id=session.id, session_id_hash=session_id_hash(session.id), payload=payload,
        state=SettlementState.COMPOSED, **ROW,
    )  # fmt: skip


# Captures.


@pytest.mark.parametrize("passed_s", [0, 1, 45, 100])
async def test_a_charge_may_have_thirty_seconds_more_than_have_passed_on_the_chain(bench: Bench, passed_s: int) -> None:
    session = of_state()
    bench.knows(session)
    bench.node.now_s = OPENED_S + passed_s
    for seconds in (0, 1, passed_s, passed_s + SLACK_S):
        assert (await verdict(bench.captures, a_charge(session, seconds))).verdict is SIGN
    early = await verdict(bench.captures, a_charge(session, passed_s + 31))
    assert (early.verdict, early.is_refused) == (WAIT, False)
    assert early.reason == "the chain's clock is behind the session's"


@pytest.mark.parametrize(("newest_s", "coming_s"), [(0, 70), (70, 0), (70, None)])
async def test_the_later_of_the_newest_and_the_coming_block_is_the_chains_time(
    bench: Bench, newest_s: int, coming_s: int | None
) -> None:
    session = of_state()
    bench.knows(session)
    bench.node.now_s = OPENED_S + newest_s
    bench.node.coming_s = None if coming_s is None else OPENED_S + coming_s
    assert (await verdict(bench.captures, a_charge(session, 70 + SLACK_S))).verdict is SIGN
    assert (await verdict(bench.captures, a_charge(session, 71 + SLACK_S))).verdict is WAIT


async def test_a_session_that_is_closed_on_the_chain_is_adopted(bench: Bench) -> None:
    session = of_state()
    bench.node.states[bench.knows(session).session_id_hash] = CLOSED
    assert (await verdict(bench.captures, a_charge(session))).verdict is ADOPT


@pytest.mark.parametrize("state", [None, *WAITING])
async def test_without_a_hold_a_charge_waits_and_a_free_settlement_is_dropped(
    bench: Bench, state: SettlementState | None
) -> None:
    session = of_state()
    if state is None:
        bench.rows.known[session.id] = session
    else:
        bench.knows(session, state=state, opened_at_s=None)
    assert (await verdict(bench.captures, a_charge(session, 0))).verdict is DROP
    charged = await verdict(bench.captures, a_charge(session, 1))
    assert (charged.verdict, charged.reason, charged.is_refused) == (WAIT, "its hold is not open", True)
    bench.node.states[session_id_hash(session.id)] = b"\x05" * 32
    assert (await verdict(bench.captures, a_charge(session, 0))).verdict is WAIT, "the chain has a hold"


async def test_a_charge_waits_for_its_hold_to_be_in_a_block_with_all_that_was_added(bench: Bench) -> None:
    session = of_state()
    bench.knows(session, state=SettlementState.SENT, opened_at_s=None)
    early = await verdict(bench.captures, a_charge(session))
    assert (early.verdict, early.is_refused, early.reason) == (WAIT, False, "its hold is in no block yet")
    opening = bench.knows(session, state=SettlementState.CONFIRMED)
    bench.node.now_s = OPENED_S + 60
    assert (await verdict(bench.captures, a_charge(session))).verdict is SIGN
    assert bench.rows.revived == []
    bench.rows.holds[session.id] = replace(opening, extended=1)
    assert (await verdict(bench.captures, a_charge(session))).reason == "its hold is in no block yet"
    assert bench.rows.revived == [session.id], "an extension that was given up may have been mined"


@pytest.mark.parametrize(("extended", "paid_s"), [(0, 60), (999, 60), (4_000, 64), (9_000, 65)])
async def test_a_capture_takes_no_more_whole_seconds_than_the_hold_pays(
    bench: Bench, extended: int, paid_s: int
) -> None:
    session = replace(of_state(seconds=65), ended_head_hash="ab" * 32, head_hash="cd" * 32)
    opening = bench.knows(session, extended=extended)
    hold = hold_of(opening)
    assert hold is not None
    assert hold.max_amount == HOLD + extended
    items = [CaptureItem(hold=hold, clean_seconds=paid_s, head_hash=b"\xab" * 32)]
    made = await bench.captures.call([a_charge(session, 65)])
    assert made.data == escrow_call("captureMany", items, await bench.meter.sign(batch_of(items)))


async def test_a_session_that_ended_without_events_of_its_own_is_captured_with_its_last_event(bench: Bench) -> None:
    session = replace(of_state(), ended_head_hash=None, head_hash="cd" * 32)
    hold = hold_of(bench.knows(session))
    assert hold is not None
    items = [CaptureItem(hold=hold, clean_seconds=60, head_hash=b"\xcd" * 32)]
    made = await bench.captures.call([a_charge(session)])
    assert made.data == escrow_call("captureMany", items, await bench.meter.sign(batch_of(items)))


async def test_the_gas_limits_are_those_of_the_operators_page(bench: Bench) -> None:
    sessions = [of_state() for _ in range(3)]
    for session in sessions:
        bench.knows(session)
    charges = [a_charge(session) for session in sessions]
    assert [(await bench.captures.call(charges[:count])).gas for count in (1, 2, 3)] == [200_000, 280_000, 360_000]
    opened = await bench.openings.call([an_opening(sessions[0])])
    assert (opened.gas, opened.gas_max) == (300_000, 1_000_000)
    extended = await bench.extensions.call([an_extension(sessions[0])])
    assert (extended.gas, extended.gas_max) == (300_000, 16_000_000)
    assert (await bench.permits.call([a_permit()])).gas == 150_000


async def test_a_charge_is_captured_only_as_the_session_has_recorded_it(bench: Bench) -> None:
    ended = of_state(seconds=60)
    assert isinstance(ended.phase, Ended)
    closed = of_state(SessionState.EXPIRED)
    assert isinstance(closed.phase, Closed)
    unassigned = of_state(SessionState.CANCELLED)
    live = of_state(SessionState.LIVE)
    unknown = of_state()
    for session in (ended, closed, unassigned, live):
        bench.rows.known[session.id] = session

    async def is_proved(session: Session, seconds: int, **changed: Any) -> bool:
        charge = a_charge(session, seconds)
        return await bench.captures.why_unproved([replace(charge, payload=replace(charge.payload, **changed))]) == {}

    assert await is_proved(ended, 60)
    assert await is_proved(ended, 60, from_address=PAYER.upper().replace("0X", "0x"))
    assert await is_proved(closed, 0), "a session that never was LIVE costs nothing"
    for session, seconds in ((ended, 59), (ended, 61), (closed, 1), (unassigned, 0), (live, 0), (unknown, 60)):
        assert not await is_proved(session, seconds)
    for changed in ({"to_address": PAYER}, {"fee_amount": MicroUsdc(1)}, {"platform_fee_bps": 1}):
        assert not await is_proved(ended, 60, **changed)


# Openings.


@pytest.mark.parametrize(
    ("state", "decided"), [(NEVER, SIGN), (CLOSED, WAIT), (b"\x00" * 31 + b"\x02", ADOPT), (b"\xee" * 32, ADOPT)]
)
async def test_a_hold_is_opened_once(bench: Bench, state: bytes, decided: PreflightVerdict) -> None:
    session = of_state(SessionState.ASSIGNED)
    opening = an_opening(session, opened_at_s=None)
    bench.node.states[opening.session_id_hash] = state
    found = await verdict(bench.openings, opening)
    assert found.verdict is decided
    assert found.reason == ("the session is closed on the chain" if decided is WAIT else "")
    assert bench.node.trials[0]["gas"] == hex(1_000_000)


async def test_each_of_several_rows_is_decided_by_its_own_answers(bench: Bench) -> None:
    openings = [an_opening(of_state(SessionState.ASSIGNED), opened_at_s=None) for _ in range(3)]
    bench.node.states[openings[1].session_id_hash] = CLOSED
    found = (await bench.openings.examine(RELAYER, openings)).findings
    assert [each.verdict for each in found] == [SIGN, WAIT, SIGN]


@pytest.mark.parametrize("changed", [{}, {"name": "session"}, {"name": "operator"}, {"name": "start"}])
async def test_a_hold_of_a_session_that_was_not_started_is_not_signed(bench: Bench, changed: dict[str, str]) -> None:
    session = of_state(SessionState.ASSIGNED)
    assert isinstance(session.phase, Assigned)
    match changed.get("name"):
        case "operator":
            bench.rows.known[session.id] = of_state(SessionState.REQUESTED)
        case "start":
            bench.rows.known[session.id] = replace(session, phase=replace(session.phase, funding_at_ms=None))
        case None:
            bench.rows.known[session.id] = session
    faults = await bench.openings.why_unproved([an_opening(session)])
    reasons = {"session": "no session with an operator", "operator": "no session with an operator"}
    reason = "not proved: " + reasons.get(changed.get("name", ""), "the session was not started")
    assert faults == ({session.id: reason} if changed else {})


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        *[("payer", {"payer": "0x" + each * 20}) for each in ("a0", "a2")],
        *[("payee", {"payee": "0x" + each * 20}) for each in ("b1", "b3")],
        *[("amount", {"max_amount": MicroUsdc(HOLD + each)}) for each in (-1, 1)],
        *[("rate", {"rate": MicroUsdc(RATE + each)}) for each in (-1, 1)],
        *[("platform fee", {"fee_bps": 1_500 + each}) for each in (-1, 1)],
        ("consent", {"consent": replace(CONSENT, open_by_s=OPENED_S)}),
    ],
)
async def test_a_hold_with_other_terms_than_the_session_is_not_signed_and_one_on_the_chain_not_taken_for_it(
    bench: Bench, name: str, changed: dict[str, Any]
) -> None:
    session = of_state(SessionState.ASSIGNED)
    bench.rows.known[session.id] = session
    ours = an_opening(session)
    other = replace(ours, **changed)
    reason = f"not proved: the {name} differs from the session's record"
    assert await bench.openings.why_unproved([ours, other]) == {session.id: reason}
    work = bench.openings
    assert not await work.record_difference(ours, INCLUSION, opened_event(ours), now_ms=5)
    assert bench.rows.failed == []
    if name != "consent":  # the event does not name it
        assert await work.record_difference(ours, INCLUSION, opened_event(other), now_ms=5)
        assert bench.rows.failed == [(session.id, SettlementState.FAILED, "the contract holds other terms")]


def opened_event(opening: HoldOpening) -> EventLog:
    topics = ("0x0", opening.session_id_hash, address_topic(opening.payer), address_topic(opening.payee))
    numbers = [opening.max_amount, opening.rate, opening.fee_bps, OPENED_S]
    return EventLog(topics=topics, data=encode(["uint256"] * 4, numbers), log_index=0)


# Extensions.

EXTENSION_ID = an_id()
MORE = MicroUsdc(30_000)


def an_extension(session: Session, **changed: Any) -> HoldExtension:
    fields: dict[str, Any] = {"of_session": session.id, "amount": MORE, "consent": CONSENT}
    return HoldExtension(
        session_id=EXTENSION_ID, session_id_hash=session_id_hash(session.id), state=SettlementState.COMPOSED,
        **ROW | fields | changed,
    )  # fmt: skip


def asking(session: Session) -> Session:
    return replace(session, extending=SessionExtension(id=EXTENSION_ID, seconds=30, amount=MORE, consent=CONSENT))


def counting(session: Session, extension_id: str = EXTENSION_ID) -> Session:
    extension = SessionExtension(id=extension_id, seconds=30, amount=MORE, consent=CONSENT)
    return replace(session, extensions=(extension,))


async def test_an_extension_is_signed_over_the_open_hold_and_adopted_where_the_hold_has_grown_by_it(
    bench: Bench,
) -> None:
    session = asking(of_state(SessionState.LIVE))
    opening = bench.knows(session)
    extension = an_extension(session)
    assert (await verdict(bench.extensions, extension)).verdict is SIGN
    assert bench.node.trials[0]["gas"] == hex(300_000)
    for added, decided in ((MORE, ADOPT), (MORE - 1, WAIT), (MORE + 1, WAIT)):
        grown = hold_of(replace(opening, extended=added))
        assert grown is not None
        bench.node.states[opening.session_id_hash] = grown.hash()
        found = await verdict(bench.extensions, extension)
        assert found.verdict is decided
        assert found.is_refused is (decided is not WAIT), "of an extension that waits: whether it is refused"


@pytest.mark.parametrize(
    ("session", "state", "decided"),
    [
        (of_state(SessionState.LIVE), None, SIGN),
        (of_state(SessionState.LIVE), CLOSED, DROP),
        (of_state(SessionState.ENDED), None, DROP),
        (counting(of_state(SessionState.ENDED)), None, SIGN),
        (counting(of_state(SessionState.ENDED)), CLOSED, DROP),
        *[(counting(of_state(SessionState.ENDED), str(each) * 8), None, DROP) for each in (0, "f")],
        (of_state(SessionState.EXPIRED), None, DROP),
    ],
)
async def test_an_extension_is_given_up_when_its_session_is_over_and_did_not_count_it(
    bench: Bench, session: Session, state: bytes | None, decided: PreflightVerdict
) -> None:
    opening = bench.knows(session)
    if state is not None:
        bench.node.states[opening.session_id_hash] = state
    assert (await verdict(bench.extensions, an_extension(session))).verdict is decided


async def test_an_extension_of_an_unknown_session_is_given_up(bench: Bench) -> None:
    session = of_state(SessionState.LIVE)
    bench.knows(session)
    del bench.rows.known[session.id]
    assert (await verdict(bench.extensions, an_extension(session))).verdict is DROP


async def test_an_extension_waits_for_its_hold_and_delays_no_other_one(bench: Bench) -> None:
    waiting, other = of_state(SessionState.LIVE), of_state(SessionState.LIVE)
    bench.knows(waiting, opened_at_s=None, state=SettlementState.SENT)
    bench.knows(other)
    found = (await bench.extensions.examine(RELAYER, [an_extension(each) for each in (waiting, other)])).findings
    assert [each.verdict for each in found] == [WAIT, SIGN]
    assert (found[0].reason, found[0].is_refused) == ("its hold is in no block yet", False)


async def test_an_extension_is_signed_only_as_the_session_asks_for_it_or_counts_it(bench: Bench) -> None:
    async def is_proved(session: Session | None, **changed: Any) -> bool:
        bench.rows.known = {} if session is None else {session.id: session}
        row = an_extension(session or of_state(), **changed)
        return await bench.extensions.why_unproved([row]) == {}

    live = of_state(SessionState.LIVE)
    assert await is_proved(asking(live))
    assert await is_proved(counting(live))
    for session in (None, live, counting(live, "another")):
        assert not await is_proved(session)
    for changed in ({"amount": MORE - 1}, {"amount": MORE + 1}, {"consent": replace(CONSENT, open_by_s=1)}):
        assert not await is_proved(asking(live), **changed)
        assert not await is_proved(counting(live), **changed)


@pytest.mark.parametrize("beside", [-1, 0, 1])
async def test_an_extension_or_permit_of_another_amount_is_not_taken_for_ours(bench: Bench, beside: int) -> None:
    extension = an_extension(of_state(SessionState.LIVE))
    added = EventLog(topics=(), data=encode(["uint256"] * 2, [MORE + beside, 7]), log_index=0)
    assert await bench.extensions.record_difference(extension, INCLUSION, added, now_ms=5) is (beside != 0)
    permit = a_permit()
    allowed = EventLog(topics=(), data=encode(["uint256"], [permit.amount + beside]), log_index=0)
    assert await bench.permits.record_difference(permit, INCLUSION, allowed, now_ms=5) is (beside != 0)
    failed = SettlementState.FAILED
    assert bench.rows.failed == (
        [
            (EXTENSION_ID, failed, "the contract has added another amount"),
            (permit.session_id, failed, "the token has set another allowance"),
        ]
        if beside
        else []
    )


# Permits.


def a_permit(**changed: Any) -> AllowancePermit:
    fields: dict[str, Any] = {
        "owner": PAYER, "spender": PAYEE, "amount": MicroUsdc(5_000_000), "nonce": 3, "deadline_s": OPENED_S + 100,
        "signature": "0x" + "11" * 65,
    }  # fmt: skip
    return AllowancePermit(
        session_id=an_id(), session_id_hash=address_topic(PAYER), state=SettlementState.COMPOSED,
        **ROW | fields | changed,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("nonce", "passed_s", "decided"), [(3, 0, SIGN), (2, 0, SIGN), (3, 100, SIGN), (4, 0, DROP), (3, 101, DROP)]
)
async def test_a_permit_is_sent_until_its_deadline_has_passed_or_its_nonce_is_used(
    bench: Bench, nonce: int, passed_s: int, decided: PreflightVerdict
) -> None:
    bench.node.nonce, bench.node.now_s = nonce, OPENED_S + passed_s
    assert (await verdict(bench.permits, a_permit())).verdict is decided
    assert bench.node.trials[0]["gas"] == hex(150_000)


async def test_a_permit_is_given_up_with_the_tokens_last_reason_or_with_what_may_have_happened(bench: Bench) -> None:
    refused, unsent = a_permit(reason="paused"), a_permit()
    for permit in (refused, unsent):
        await bench.permits.drop(permit, now_ms=5)
    assert bench.rows.withdrawn == [
        (refused.session_id, "paused"),
        (unsent.session_id, "the token has used its nonce, or its deadline has passed"),
    ]


@pytest.mark.parametrize(("given", "passed"), [(0, 27), (1, 28), (26, 53), (27, 27), (28, 28)])
def test_the_recovery_id_of_a_signature_is_passed_as_27_or_28(given: int, passed: int) -> None:
    message = Permit(owner=PAYER, spender=PAYEE, value=7, nonce=0, deadline_s=9)
    data = permit_data(message, b"\x11" * 32 + b"\x22" * 32 + bytes([given]))
    assert data[4 + 4 * 32 :] == passed.to_bytes(32) + b"\x11" * 32 + b"\x22" * 32
    for length in (64, 66):
        assert permit_data(message, b"\x11" * length)[:4] != data[:4]


# Of every kind.


@pytest.mark.parametrize(
    ("work", "row"),
    [
        (lambda bench: bench.openings, lambda session: an_opening(session, opened_at_s=None)),
        (lambda bench: bench.extensions, an_extension),
        (lambda bench: bench.permits, lambda _session: a_permit()),
    ],
    ids=["opening", "extension", "permit"],
)
async def test_a_call_that_the_contract_refuses_waits_and_a_fault_of_the_node_ends_the_round(
    bench: Bench, work: Callable[[Bench], OutboxWork[Any]], row: Callable[[Session], Any]
) -> None:
    session = of_state(SessionState.LIVE)
    opening = bench.knows(session)
    if isinstance(work(bench), OpeningWork):
        bench.node.states[opening.session_id_hash] = NEVER
    bench.node.refusal = RefusedCallError(REFUSAL)
    found = await verdict(work(bench), row(session))
    assert (found.verdict, found.is_refused, "paused" in found.reason) == (WAIT, True, True)
    bench.node.refusal = RefusedCallError("the state of this block is not available")
    bench.node.refusal.code = -32_000
    with pytest.raises(ChainUnavailableError, match="not available"):
        await verdict(work(bench), row(session))


# A reorganisation removes the block of a hold while a transaction that names the hold waits.

OLD_DATA, OLD_GAS = b"the call of the removed hold", 123_456


@dataclass
class SteadyClock:
    now: int

    def now_ms(self) -> int:
        return self.now


def a_signer() -> Signer:
    return Signer(b"\x5a" * 32)


def overdue(session: Session) -> Attempt:
    """A transaction that was sent long ago, and is in no block."""
    tx_hash, raw = a_signer().sign(
        chain_id=7, nonce=3, to="0x" + "cc" * 20, data=OLD_DATA, gas=OLD_GAS, fees=Fees(max_fee_wei=10, tip_wei=1)
    )  # fmt: skip
    return Attempt(
        session_id=session.id, nonce=3, tx_hash=tx_hash, raw=raw, max_fee_wei=10, tip_wei=1, signed_at_ms=0,
        sent_at_ms=0,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["captures", "extensions"])
async def test_a_transaction_whose_hold_left_the_chain_is_replaced_by_the_same_call(bench: Bench, kind: str) -> None:
    session = asking(of_state(SessionState.LIVE)) if kind == "extensions" else of_state()
    bench.knows(session, opened_at_s=None, state=SettlementState.SENT)
    attempt = overdue(session)
    made = an_extension(session) if kind == "extensions" else a_charge(session)
    row = replace(made, state=SettlementState.SENT, attempts=(attempt,))
    bench.rows.signed, bench.rows.sharing = [attempt], [row]
    options, work = RelayerOptions(), getattr(bench, kind)
    clock = SteadyClock(options.replace_ms)
    sender: Any = Sender(work, LocalGasKey(a_signer()), options, clock=clock, ids=SystemIds())
    resubmission: Any = Resubmission(work, sender, RELAYER, options, clock=clock)
    await resubmission.resubmit([row], Sighting(head={"baseFeePerGas": "0x1"}, head_number=1, mined_nonce=3, found={}))
    (replacement,) = bench.rows.signed[1:]
    fields = rlp.decode(replacement.raw[1:])
    assert (replacement.nonce, fields[7], int.from_bytes(fields[4])) == (3, OLD_DATA, OLD_GAS)
    assert replacement.max_fee_wei > attempt.max_fee_wei
    assert bench.node.broadcast == [replacement.raw]


async def test_a_free_settlement_waits_while_a_transaction_that_opens_its_hold_may_be_mined(bench: Bench) -> None:
    session = of_state()
    attempt = overdue(session)
    bench.knows(session, state=SettlementState.FAILED, opened_at_s=None, attempts=(attempt,))
    bench.rows.signed = [attempt]
    for used, decided in ((attempt.nonce, WAIT), (attempt.nonce + 1, DROP)):
        bench.node.foreign_nonces = used
        found = await verdict(bench.captures, a_charge(session, 0))
        assert found.verdict is decided, "its nonce is used up, and the contract has no hold"
    bench.rows.signed = []
    found = await verdict(bench.captures, a_charge(session, 0))
    waits = (WAIT, False, "a transaction that opens its hold may still be mined")
    assert (found.verdict, found.is_refused, found.reason) == waits, "another key signed it"
    bench.node.now_s = CONSENT.open_by_s + REORGANISED_S
    assert (await verdict(bench.captures, a_charge(session, 0))).verdict is WAIT, "an older block may come"
    bench.node.now_s += 1
    assert (await verdict(bench.captures, a_charge(session, 0))).verdict is DROP, "its time is over"


async def test_an_extension_that_reverted_while_its_hold_was_in_no_block_says_so(bench: Bench) -> None:
    session = asking(of_state(SessionState.LIVE))
    bench.knows(session, opened_at_s=None, state=SettlementState.SENT)
    reason = await bench.extensions.why_failed(RELAYER, an_extension(session), 1)
    assert reason == "its hold is in no block yet"
