"""Verifies the receipt of a session: recomputes every number from the session's recorded events.

The input is the `data` of `GET /api/v1/sessions/{id}/receipt` as decoded JSON. docs/vectors holds receipts, true and
forged ones, with the result that each verifier must give. docs/api.md, section "Verify a receipt", describes the rules.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeAlias, final

Keccak: TypeAlias = Callable[[bytes], bytes]

BASIS_POINTS: Final = 10_000
_INSTANT: Final = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z", re.ASCII)
_MONEY: Final = re.compile(r"0|[1-9][0-9]{0,77}", re.ASCII)
_HEX: Final = re.compile(r"0x[0-9a-fA-F]+", re.ASCII)
_WINDOW: Final = re.compile(r"(\d+)-(\d+) ([A-Z_]+)", re.ASCII)
_LAST_KINDS: Final = {"ENDED": "ENDED", "CANCELLED": "CANCELLED", "EXPIRED": "EXPIRED"}


class ReceiptCheck(StrEnum):
    """The parts of a verification, in the order in which they are shown."""

    HASH_CHAIN = "hashChain"
    CLEAN_SECONDS = "cleanSeconds"
    CHARGE = "charge"
    FEE = "fee"
    SETTLED = "settled"
    """The payment, by the contracts that the caller trusts. Skipped as `SkipReason` says."""


class SkipReason(StrEnum):
    """Why a check was not made."""

    DEPLOYMENT_MISSING = "deploymentMissing"
    """The caller named no chain and contracts to trust. A receipt may name any contract, also one made to forge it."""
    NOT_SETTLED = "notSettled"
    """The receipt claims no payment: nothing is charged, or it is not CONFIRMED yet."""
    TRANSACTION_MISSING = "transactionMissing"
    """The caller gave no transaction from a node of the chain."""


@final
@dataclass(frozen=True, slots=True)
class TrustedDeployment:
    """The chain and the contracts that the caller trusts, known from another source than the receipt."""

    chain_id: int
    settlement_address: str
    usdc_address: str


@final
@dataclass(frozen=True, slots=True)
class Failure:
    """One value of a receipt that is wrong. `line` is its path, for example `events[3]` or `settlement.txHash`."""

    check: ReceiptCheck
    line: str
    message: str


@final
@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a verification."""

    failures: tuple[Failure, ...]
    skipped: Mapping[ReceiptCheck, SkipReason] = field(default_factory=dict)
    """The checks that were not made. What they would compare is not proved."""

    @property
    def is_valid(self) -> bool:
        """Whether no check failed. Skipped checks do not count."""
        return not self.failures


def chain_hash(previous: str, session_id: str, sequence: int, kind: str, at_ms: int, facts: list[list[object]]) -> str:
    """Return the hash of an event: SHA-256, in hex, over the previous hash and the event as canonical JSON.

    Canonical JSON: an array `[previous, sessionId, sequence, kind, atMs, [[name, value], ...]]` without spaces, with
    every character outside ASCII written as a lower-case `\\uXXXX` escape. `previous` is "" for the first event.
    """
    body = [previous, session_id, sequence, kind, at_ms, facts]
    return hashlib.sha256(json.dumps(body, separators=(",", ":"), ensure_ascii=True).encode()).hexdigest()


def verify_receipt(
    receipt: object, *, keccak256: Keccak, deployment: TrustedDeployment | None = None, chain: object = None
) -> Verification:
    """Recompute a receipt and return every value that is wrong.

    Never raises for a malformed receipt: a missing or ill-typed value is a failure at its path.

    Args:
        receipt: The receipt as decoded JSON.
        keccak256: Keccak-256 (not SHA3-256) of some bytes.
        deployment: The chain and the contracts that must have paid. None skips the check `settled`, because the
            addresses in the receipt are only what its author states.
        chain: What a node that the caller trusts answers, as decoded JSON: `chainId` (an integer) and `receipt` (the
            result of `eth_getTransactionReceipt` for `settlement.txHash`). None skips the check `settled`.
    """
    root = _Node(receipt)
    report = _Report()
    with_history = _Checks(root, report, keccak256)
    for check, run in (
        (ReceiptCheck.HASH_CHAIN, with_history.hash_chain),
        (ReceiptCheck.CLEAN_SECONDS, with_history.clean_seconds),
        (ReceiptCheck.CHARGE, with_history.charge),
        (ReceiptCheck.FEE, with_history.fee),
    ):
        report.run(check, run)
    report.run(ReceiptCheck.SETTLED, lambda: with_history.settled(deployment, _Node(chain, "chain")))
    return Verification(tuple(report.failures), report.skipped)


def verify_events(session_id: str, events: object, head_hash: str) -> Verification:
    """Recompute the hash chain of a session's events and compare its end with a head hash.

    Args:
        events: All events of `GET /api/v1/sessions/{id}/meter/events`, in order.
        head_hash: A head hash that the caller trusts, such as one it has read from the meter itself.
    """
    report = _Report()

    def run() -> None:
        last = _chained(report, _Node(session_id, "sessionId"), _Node(events, "events"))
        if last != head_hash:
            report.fail("events", f"end in the hash {last}, not in {head_hash}")

    report.run(ReceiptCheck.HASH_CHAIN, run)
    return Verification(tuple(report.failures))


class _MalformedError(Exception):
    """A value is missing or has another type."""

    def __init__(self, line: str, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


@final
class _Report:
    """Collects failures."""

    def __init__(self) -> None:
        self.failures: list[Failure] = []
        self.skipped: dict[ReceiptCheck, SkipReason] = {}
        self._check = ReceiptCheck.HASH_CHAIN

    def run(self, check: ReceiptCheck, run: Callable[[], None]) -> None:
        self._check = check
        try:
            run()
        except _MalformedError as error:
            self.fail(error.line, error.message)

    def fail(self, line: str, message: str) -> None:
        self.failures.append(Failure(self._check, line, message))

    def skip(self, reason: SkipReason) -> None:
        self.skipped[self._check] = reason

    def expect(self, node: "_Node", expected: object) -> None:
        if type(node.value) is not type(expected) or node.value != expected:
            self.fail(node.line, f"is {_shown(node.value)}, expected {_shown(expected)}")

    def expect_address(self, node: "_Node", expected: str) -> None:
        if node.text().lower() != expected.lower():
            self.fail(node.line, f"is {node.text()}, expected {expected}")


def _shown(value: object) -> str:
    return json.dumps(value, default=str)[:200]


@final
@dataclass(frozen=True, slots=True)
class _Node:
    """A value of decoded JSON and its path."""

    value: object
    line: str = ""

    def __getitem__(self, name: str) -> "_Node":
        if not isinstance(self.value, Mapping):
            raise _MalformedError(self.line or "receipt", "is not an object")
        line = f"{self.line}.{name}" if self.line else name
        if name not in self.value:
            raise _MalformedError(line, "is missing")
        return _Node(self.value[name], line)

    def get(self, name: str, default: object) -> "_Node":
        """The member of this name, or the default: receipts of earlier versions do not have it."""
        is_missing = isinstance(self.value, Mapping) and name not in self.value
        return _Node(default, f"{self.line}.{name}") if is_missing else self[name]

    def items(self) -> Iterator["_Node"]:
        if not isinstance(self.value, list):
            raise _MalformedError(self.line, "is not an array")
        for index, value in enumerate(self.value):
            yield _Node(value, f"{self.line}[{index}]")

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise _MalformedError(self.line, "is not a string")
        return self.value

    def boolean(self) -> bool:
        if not isinstance(self.value, bool):
            raise _MalformedError(self.line, "is not true or false")
        return self.value

    def integer(self) -> int:
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            raise _MalformedError(self.line, "is not an integer")
        return self.value

    def money(self) -> int:
        if not _MONEY.fullmatch(self.text()):
            raise _MalformedError(self.line, "is not an amount")
        return int(self.text())

    def hex(self) -> int:
        if not _HEX.fullmatch(self.text()):
            raise _MalformedError(self.line, "is not a hexadecimal number")
        return int(self.text(), 16)

    def instant_ms(self) -> int:
        message = "is not an instant in UTC with milliseconds"
        if not _INSTANT.fullmatch(self.text()):
            raise _MalformedError(self.line, message)
        try:
            whole = datetime.fromisoformat(f"{self.text()[:19]}+00:00")
        except ValueError as error:
            raise _MalformedError(self.line, message) from error
        return int(whole.timestamp()) * 1_000 + int(self.text()[20:23])


@final
@dataclass(frozen=True, slots=True)
class _Event:
    """A recorded event; `line` is its path in the receipt."""

    line: str
    kind: str
    at_ms: int
    facts: Mapping[str, _Node]
    hash: str

    def fact(self, name: str) -> _Node:
        if name not in self.facts:
            raise _MalformedError(self.line, f"has no fact {name}")
        return self.facts[name]


def _events(events: _Node) -> list[_Event]:
    return [
        _Event(
            line=event.line,
            kind=event["kind"].text(),
            at_ms=event["atMs"].integer(),
            facts={fact["name"].text(): _Node(fact["value"].value, event.line) for fact in event["facts"].items()},
            hash=event["hash"].text(),
        )
        for event in events.items()
    ]


def _chained(report: _Report, session_id: _Node, events: _Node) -> str:
    """Recompute the hash of every event. Returns the last one as the receipt gives it; "" without events.

    Each event is compared on top of the hash that the receipt gives for the one before, so that one forged event does
    not make all later ones fail. If all of them fail, they are of another session.
    """
    previous, wrong, count = "", list[tuple[str, str]](), 0
    for count, event in enumerate(events.items(), 1):
        report.expect(event["sequence"], count)
        facts: list[list[object]] = [[fact["name"].text(), fact["value"].value] for fact in event["facts"].items()]
        sequence, at_ms = event["sequence"].integer(), event["atMs"].integer()
        found = chain_hash(previous, session_id.text(), sequence, event["kind"].text(), at_ms, facts)
        previous = event["hash"].text()
        if found != previous:
            wrong.append((event.line, f"hash is {previous}, but its content and the event before give {found}"))
    if len(wrong) == count and count:
        report.fail(session_id.line, "is not the session of these events")
    else:
        for line, message in wrong:
            report.fail(line, message)
    return previous


@final
@dataclass(slots=True)
class _Checks:
    """The checks of one receipt. The events are what everything else is compared with."""

    root: _Node
    report: _Report
    keccak256: Keccak
    last: dict[str, _Event] = field(default_factory=dict)
    """The last event of each kind; none of kind ASSIGNED after the request was opened again."""
    extended: list[_Event] = field(default_factory=list)

    def hash_chain(self) -> None:
        """Recompute the hashes, and compare the session's terms and states with the events."""
        session, meter, events = self.root["session"], self.root["meter"], self.root["events"]
        head = _chained(self.report, session["id"], events)
        self.report.expect(meter["headHash"], head)
        for event in _events(events):
            if event.kind == "REOPENED":  # the operator did not start and was released
                self.last.pop("ASSIGNED", None)
            elif event.kind == "EXTENDED":
                self.extended.append(event)
            self.last[event.kind] = event
        ended = self.last.get("ENDED")
        self.report.expect(meter["endedHeadHash"], None if ended is None else ended.hash)
        over = next((self.last[kind] for kind in _LAST_KINDS if kind in self.last), None)
        if over is None:
            raise _MalformedError("events", "have no end of the session")
        self.report.expect(session["state"], over.kind)
        self.report.expect(session["endReason"], over.fact("reason").value)
        self._instant(session["endedAt"], over)
        self._instant(session["createdAt"], self._of("CREATED"))
        self._instant(session["startedAt"], self.last.get("STARTED"))
        self._assignment(session)
        self._terms(session)

    def _assignment(self, session: _Node) -> None:
        assigned = self.last.get("ASSIGNED")
        operator = None if assigned is None else assigned.fact("operatorWorkspaceId").value
        self.report.expect(session["operatorWorkspaceId"], operator)
        self._instant(session["assignedAt"], assigned)

    def _terms(self, session: _Node) -> None:
        """Compare the terms. Sessions created by earlier versions have no terms in their first event.

        Each extension adds its seconds to the maximum duration, and states the hold from then on.
        """
        facts = dict(self._of("CREATED").facts)
        for event in self.extended:
            if "maxDurationSeconds" in facts:
                longer = facts["maxDurationSeconds"].integer() + event.fact("seconds").integer()
                self.report.expect(event.fact("maxDurationSeconds"), longer)
            facts |= {name: event.fact(name) for name in ("maxDurationSeconds", "holdMicroUsdc")}
        names = ("consumerWorkspaceId", "ratePerSecondMicroUsdc", "holdMicroUsdc", "maxDurationSeconds")
        for name in (*names, "platformFeeBps", "radiusMeters"):
            if name in facts:
                self.report.expect(session[name], facts[name].value)
        for name in ("requestedLat", "requestedLng"):
            if name in facts and f"{_number(session[name]):.6f}" != facts[name].value:
                self.report.fail(session[name].line, f"is not {facts[name].value}")

    def clean_seconds(self) -> None:
        """Recompute the clean seconds from the windows that the event ENDED lists."""
        session, meter = self.root["session"], self.root["meter"]
        ended = self.last.get("ENDED")
        shown = [
            (window, window["from"].instant_ms(), window["to"].instant_ms(), window["reason"].text())
            for window in meter["windows"].items()
        ]
        windows = [] if ended is None else _windows(ended.fact("windows"))
        for index, (window, *given) in enumerate(shown):
            if index >= len(windows) or tuple(given) != windows[index]:
                self.report.fail(window.line, "is not a window of the event ENDED")
        if len(shown) < len(windows):
            self.report.fail(meter["windows"].line, f"has {len(shown)} windows, the event ENDED has {len(windows)}")
        clean = 0
        if ended is not None:
            started = self._of("STARTED")
            self.report.expect(ended.fact("startedAtMs"), started.at_ms)
            dirty_ms = _dirty_ms(windows, started.at_ms, ended.at_ms)
            clean_ms = ended.at_ms - started.at_ms - dirty_ms
            minimum = self._of("CREATED").facts.get("minimumSeconds", _Node(0)).integer()  # earlier versions have none
            least = min(minimum, -(-(ended.at_ms - started.at_ms) // 1_000)) if clean_ms > 0 else 0
            clean = min(session["maxDurationSeconds"].integer(), max(clean_ms // 1_000, least))
            self.report.expect(ended.fact("cleanSeconds"), clean)
        self.report.expect(session["cleanSeconds"], clean)
        self.report.expect(meter["cleanSeconds"], clean)
        self._instant(meter["startedAt"], self.last.get("STARTED"))
        self._instant(meter["endedAt"], ended or self.last.get("CANCELLED") or self.last.get("EXPIRED"))

    def charge(self) -> None:
        """Recompute the charge, and compare the parties of the settlement."""
        session, settlement = self.root["session"], self.root["settlement"]
        payload, mismatched = settlement["payload"], settlement.get("mismatched", False)
        rate, ended = session["ratePerSecondMicroUsdc"].money(), self.last.get("ENDED")
        hold = rate * session["maxDurationSeconds"].integer()
        self.report.expect(session["holdMicroUsdc"], str(hold))
        if ended is None:
            self.report.expect(session["chargedMicroUsdc"], "0")
            self.report.expect(payload, None)
            self.report.expect(mismatched, False)
            return
        clean = ended.fact("cleanSeconds").integer()
        charged = clean * rate
        self.report.expect(ended.fact("chargedMicroUsdc"), str(charged))
        self.report.expect(session["chargedMicroUsdc"], str(charged))
        total = payload["toAmount"].money() + payload["feeAmount"].money()
        self.report.expect(payload["consumerWorkspaceId"], session["consumerWorkspaceId"].value)
        self.report.expect(payload["operatorWorkspaceId"], session["operatorWorkspaceId"].value)
        if mismatched.boolean():
            seconds = payload["chargeableSeconds"].integer()
            self.report.fail(
                mismatched.line,
                f"is true: the contract settled {total} micro-USDC for {seconds} s from {payload['from'].text()} to "
                f"{payload['to'].text()}, but the recorded events give {charged} micro-USDC for {clean} s",
            )
            charged = seconds * payload["ratePerSecond"].money()
        else:
            self.report.expect(payload["ratePerSecond"], str(rate))
            self.report.expect(payload["chargeableSeconds"], clean)
            self._party(payload["from"], self._of("CREATED"), "payerAddress")
            self._party(payload["to"], self._of("ASSIGNED"), "payeeAddress")
        if total != charged:
            self.report.fail(payload.line, f"toAmount and feeAmount add up to {total}, not to the charge {charged}")
        digest = self.keccak256(session["id"].text().lower().encode("ascii", "replace"))
        self.report.expect(payload["sessionIdHash"], "0x" + digest.hex())

    def fee(self) -> None:
        """Recompute the platform's fee, which is rounded down, and compare the transaction with the event SETTLED."""
        session, settlement = self.root["session"], self.root["settlement"]
        payload, bps = settlement["payload"], session["platformFeeBps"].integer()
        if payload.value is not None:
            charged = session["chargedMicroUsdc"].money()
            if settlement.get("mismatched", False).value is True:  # the numbers of the contract, which differ
                bps = payload["platformFeeBps"].integer()
                charged = payload["toAmount"].money() + payload["feeAmount"].money()
            self.report.expect(payload["platformFeeBps"], bps)
            fee = charged * bps // BASIS_POINTS
            self.report.expect(payload["feeAmount"], str(fee))
            self.report.expect(payload["toAmount"], str(charged - fee))
        settled = self.last.get("SETTLED")
        tx_hash = None if settled is None else settled.fact("txHash").value
        self.report.expect(session["settlementTxHash"], tx_hash)
        if settled is not None:
            self.report.expect(settlement["txHash"], tx_hash)
            self.report.expect(settlement["state"], "CONFIRMED")
        elif payload.value is None:
            self.report.expect(settlement["state"], "NOT_READY")
        elif settlement["state"].value not in ("PENDING", "CONFIRMED"):
            self.report.fail(settlement["state"].line, "is neither PENDING nor CONFIRMED")

    def settled(self, deployment: TrustedDeployment | None, chain: _Node) -> None:
        """Compare the receipt with what the trusted contracts logged in the transaction."""
        settlement, contracts, report = self.root["settlement"], self.root["contracts"], self.report
        if deployment is None:
            report.skip(SkipReason.DEPLOYMENT_MISSING)
            return
        report.expect(contracts["chainId"], deployment.chain_id)
        report.expect_address(contracts["settlementAddress"], deployment.settlement_address)
        report.expect_address(contracts["usdcAddress"], deployment.usdc_address)
        if settlement["txHash"].value is None or settlement["state"].value != "CONFIRMED":
            report.skip(SkipReason.NOT_SETTLED)
            return
        if chain.value is None:
            report.skip(SkipReason.TRANSACTION_MISSING)
            return
        report.expect(chain["chainId"], deployment.chain_id)
        payload, mined, tx_line = settlement["payload"], chain["receipt"], settlement["txHash"].line
        if mined.value is None:
            raise _MalformedError(tx_line, "the chain does not know this transaction")
        report.expect(settlement["txHash"], mined["transactionHash"].text().lower())
        report.expect(settlement["blockNumber"], str(mined["blockNumber"].hex()))
        if mined["status"].hex() != 1:
            report.fail(tx_line, "the transaction failed")
        logs = list(mined["logs"].items())
        signature = b"Settled(bytes32,address,address,uint256,uint256,uint256,uint256,uint256)"
        first = ["0x" + self.keccak256(signature).hex(), payload["sessionIdHash"].text().lower()]
        contract = deployment.settlement_address.lower()
        found = [log for log in logs if log["address"].text().lower() == contract and _topics(log)[:2] == first]
        if not found:
            raise _MalformedError(tx_line, f"has no event Settled of this session by the contract {contract}")
        log = found[0]
        words, parties = _words(log["data"]), _topics(log)[2:]
        if len(words) != 5 or len(parties) != 2:
            raise _MalformedError(log.line, "is not an event Settled")
        report.expect(settlement["logIndex"], log["logIndex"].hex())
        for name, party in zip(("from", "to"), parties, strict=True):
            report.expect_address(payload[name], "0x" + party[-40:])
        for name, word in zip(("toAmount", "feeAmount", "ratePerSecond"), words[:3], strict=True):
            report.expect(payload[name], str(word))
        report.expect(payload["chargeableSeconds"], words[3])
        report.expect(payload["platformFeeBps"], words[4])
        if words[0]:
            self._transferred(deployment, logs, parties, words[0])
        self._evidence(contract, logs)

    def _transferred(self, deployment: TrustedDeployment, logs: list[_Node], parties: list[str], amount: int) -> None:
        """Require that the trusted token moved the payee's part: from the payer or from escrow, or into a credit."""
        topic = "0x" + self.keccak256(b"Transfer(address,address,uint256)").hex()
        credited = "0x" + self.keccak256(b"Credited(address,bytes32,uint256)").hex()
        payer, payee = parties
        contract, token = deployment.settlement_address.lower(), deployment.usdc_address.lower()
        held = "0x" + contract[2:].rjust(64, "0")
        session = self.root["settlement"]["payload"]["sessionIdHash"].text().lower()
        moves = {
            token: ([topic, payer, payee], [topic, held, payee], [topic, payer, held]),
            contract: ([credited, payee, session],),
        }
        if not any(
            _topics(log) in moves.get(log["address"].text().lower(), ()) and _words(log["data"]) == [amount]
            for log in logs
        ):
            line = self.root["settlement"]["txHash"].line
            self.report.fail(line, f"has no transfer of {amount} by the token {token} from the payer to the payee")

    def _evidence(self, contract: str, logs: list[_Node]) -> None:
        """Compare the head hash that the escrow contract published with that of the receipt."""
        first = "0x" + self.keccak256(b"Evidence(bytes32,bytes32,uint256)").hex()
        session = self.root["settlement"]["payload"]["sessionIdHash"].text().lower()
        for log in logs:
            if log["address"].text().lower() == contract and _topics(log) == [first, session]:
                self.report.expect(self.root["meter"]["endedHeadHash"], f"{_words(log['data'])[0]:064x}")

    def _of(self, kind: str) -> _Event:
        if kind not in self.last:
            raise _MalformedError("events", f"have no event {kind}")
        return self.last[kind]

    def _instant(self, node: _Node, event: _Event | None) -> None:
        at_ms = None if node.value is None else node.instant_ms()
        expected = None if event is None else event.at_ms
        if at_ms != expected:
            self.report.fail(node.line, f"is {_shown(node.value)}, not the instant {expected} of the event")

    def _party(self, node: _Node, event: _Event, name: str) -> None:
        """Compare an address. Events of earlier versions do not name it."""
        if name in event.facts:
            self.report.expect_address(node, event.facts[name].text())


def _number(node: _Node) -> float:
    if not isinstance(node.value, int | float) or isinstance(node.value, bool):
        raise _MalformedError(node.line, "is not a number")
    return node.value


def _windows(fact: _Node) -> list[tuple[int, int, str]]:
    """Read the windows of an event ENDED: `from-to REASON`, separated by `; `, in epoch milliseconds."""
    text = fact.text()
    found = [_WINDOW.fullmatch(part) for part in text.split("; ")] if text else []
    if None in found:
        raise _MalformedError(fact.line, "its windows are not written as from-to REASON")
    return [(int(match[1]), int(match[2]), match[3]) for match in found if match is not None]


def _dirty_ms(windows: list[tuple[int, int, str]], from_ms: int, until_ms: int) -> int:
    """Return the length of the union of the windows within a span."""
    dirty_ms, reached_ms = 0, from_ms
    for start, end, _ in sorted(windows):
        begin, finish = max(start, reached_ms), min(end, until_ms)
        if finish > begin:
            dirty_ms += finish - begin
            reached_ms = finish
    return dirty_ms


def _topics(log: _Node) -> list[str]:
    return [topic.text().lower() for topic in log["topics"].items()]


def _words(data: _Node) -> list[int]:
    """Split ABI-encoded data into its 32-byte numbers."""
    digits = data.text()[2:]
    if len(digits) % 64 or not (digits == "" or _HEX.fullmatch(f"0x{digits}")):
        return []
    return [int(digits[start : start + 64], 16) for start in range(0, len(digits), 64)]
