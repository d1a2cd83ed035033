"""Compare the answers that callers got with the final contents of the API, the database and the chain.

Calls that change something have an idempotency key and are repeated until their outcome is known, so a complete
history says for each call whether it took effect. Every effect that no answer reports is a violation.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from functools import cached_property
from itertools import pairwise, permutations
from typing import Any, Final

import msgspec

from sightline.domain.value import Value

TERMINAL: Final = frozenset({"CANCELLED", "EXPIRED", "ENDED"})
BASIS_POINTS: Final = 10_000
START_TIMEOUT_S: Final = 120
"""How long the operators of these tests have to start a session: the default of SIGHTLINE_START_TIMEOUT_SECONDS."""


class Told(Value):
    """One answer with its whole body."""

    status: int
    body: dict[str, Any]

    @property
    def is_done(self) -> bool:
        return self.status == 200

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = self.body["data"]
        return found

    @property
    def detail(self) -> str:
        return str(self.body.get("detail"))


@dataclass
class Made:
    """One call with one idempotency key, however often it was sent."""

    workspace_id: str
    method: str
    path: str
    key: str
    body: dict[str, Any] | None = None
    told: list[Told] = field(default_factory=list)
    """Final answers. Those that mean "no effect" or "outcome unknown" are only counted below."""
    lost: int = 0
    """Number of tries whose outcome is unknown."""
    began: float = 0.0
    """When the request was first sent (`trio.current_time`)."""
    ended: float | None = None
    """When the first final answer arrived."""

    @property
    def is_done(self) -> bool:
        return bool(self.told) and self.told[0].is_done

    @property
    def action(self) -> str:
        """create, cancel, dispatch, accept, start, end, cancel-all-assignments, or patch."""
        if self.method == "PATCH":
            return "patch"
        if self.method == "DELETE":
            return "cancel"
        last = self.path.rpartition("/")[2]
        return "create" if last == "sessions" else last

    @property
    def session_id(self) -> str:
        """The session that the call is about."""
        if self.action == "create":
            return str(self.told[0].data["id"])
        return self.path.split("/")[2]


class ShownOpen(Value):
    """A read of one session that showed REQUESTED."""

    session_id: str
    began: float
    """When the request was sent (`trio.current_time`)."""
    ended: float
    """When its answer arrived."""


class Outcome(Enum):
    """What the caller knows about a create call that was sent once and without a key."""

    DONE = "answered 200"
    REFUSED = "answered 429 or 503, which promise that nothing was done"
    UNKNOWN = "answered 504, or not at all"


@dataclass
class History:
    """All answers that callers got."""

    made: list[Made] = field(default_factory=list)
    heartbeats: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Acknowledged heartbeat sequences by workspace."""
    unkeyed: dict[str, Outcome] = field(default_factory=dict)
    """Create calls without a key, by the marker in the metadata of the session that they create."""
    shown_open: list[ShownOpen] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    """Answers that are violations by themselves: a status 500, another tenant's data."""

    @property
    def acknowledged(self) -> int:
        return sum(len(sequences) for sequences in self.heartbeats.values())

    def acknowledge(self, workspace_id: str, sequence: int) -> None:
        self.heartbeats[workspace_id].add(sequence)

    def done(self, *actions: str) -> Iterator[Made]:
        return (made for made in self.made if made.is_done and made.action in actions)


class Recorded(Value):
    """One recorded event of a session."""

    session_id: str
    kind: str
    at_ms: int
    facts: dict[str, Any] = msgspec.field(default_factory=dict)


@dataclass
class Rows:
    """The contents of the database, read by SQL without the server."""

    heartbeats: dict[str, Counter[int]]
    """By workspace: how often each sequence is stored."""
    sessions: dict[str, str]
    """State by session id."""
    settlements: dict[str, str]
    """State by session id."""
    events: list[Recorded] = field(default_factory=list)
    """Those of each session in their order."""

    @cached_property
    def reopened(self) -> Counter[str]:
        """How often the operator of each session did not start in time: it was assigned again or not at all."""
        return Counter(event.session_id for event in self.events if event.kind == "REOPENED")


@dataclass
class Found:
    """What the API returns at the end, after all traffic has stopped."""

    consumers: frozenset[str]
    sessions: dict[str, dict[str, Any]]
    meters: dict[str, dict[str, Any]] = field(default_factory=dict)
    settlements: dict[str, dict[str, Any]] = field(default_factory=dict)
    workspaces: dict[str, dict[str, Any]] = field(default_factory=dict)
    last_sequences: dict[str, int] = field(default_factory=dict)
    wallets: dict[str, dict[str, Any]] = field(default_factory=dict)
    ledgers: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    balances: dict[str, int] = field(default_factory=dict)
    """Balances on the chain itself, in micro-USDC."""
    funds: int = 0
    """Initial balances of the wallets."""
    rows: Rows | None = None
    """None if only the API and the chain are compared."""

    def charged(self, workspace_id: str, party: str) -> int:
        mine = (session for session in self.sessions.values() if session[f"{party}WorkspaceId"] == workspace_id)
        return sum(int(session["chargedMicroUsdc"]) for session in mine)


def violations(history: History, found: Found) -> list[str]:
    """List everything that was lost or doubled; empty if the history is correct."""
    return [
        *history.unexpected,
        *_answers(history),
        *_effects(history, found),
        *_unkeyed(history, found),
        *_records(history, found),
        *_heartbeats(history, found),
        *_rows(history, found),
        *_assignments(history, found),
        *_forgotten_assignments(history, found),
        *_early_releases(found),
        *state_violations(found),
    ]


def state_violations(found: Found) -> list[str]:
    """List what is wrong in the final state by itself: operators, charges, and the money in API and chain."""
    return [*_operators(found), *_charges(found), *_money(found)]


def _answers(history: History) -> Iterator[str]:
    """Check that each key got one answer."""
    for made in history.made:
        if not made.told:
            yield f"never answered: {made.method} {made.path} {made.key}"
        elif made.is_done and any(told != made.told[0] for told in made.told):
            yield f"another answer to the same key {made.key}: {made.method} {made.path}: {_what_differs(made.told)}"


def _what_differs(told: list[Told]) -> str:
    """What of the first answer another one has otherwise. Addresses, which may have tokens, are left out."""
    first = told[0]
    other = next(each for each in told if each != first)
    if first.status != other.status:
        return f"{first.status} and {other.status} {other.detail}"
    one, two = ({**each.body, **each.body.get("data", {})} for each in (first, other))
    names = sorted(name for name in one.keys() | two.keys() if one.get(name) != two.get(name) and name != "data")
    return ", ".join(name if name.endswith("Url") else f"{name}: {one.get(name)} and {two.get(name)}" for name in names)


def _reopened(found: Found, session_id: str) -> int:
    return 0 if found.rows is None else found.rows.reopened[session_id]


def _effects(history: History, found: Found) -> Iterator[str]:
    """Check that exactly one call requested each effect and got an answer that reports it."""
    created = Counter(made.session_id for made in history.done("create"))
    for session_id in created.keys() - found.sessions.keys():
        yield f"session {session_id} was created and is gone"
    # Checked by _unkeyed.
    created.update(session["id"] for session in found.sessions.values() if marker_of(session) in history.unkeyed)
    assigned = Counter(made.session_id for made in history.done("dispatch", "accept"))
    started = Counter(made.session_id for made in history.done("start"))
    # The consumer's end of a session that has not started cancels it.
    ends = [(made, made.told[0].data["state"] == "ENDED") for made in history.done("end")]
    ended = Counter((made.session_id, made.workspace_id) for made, is_end in ends if is_end)
    withdrawn = Counter(made.session_id for made in history.done("cancel"))
    withdrawn.update(made.session_id for made, is_end in ends if not is_end)
    dropped: Counter[str] = Counter()
    for made in history.done("cancel-all-assignments"):
        dropped.update(made.told[0].data["cancelled"])
    for session in found.sessions.values():
        session_id, reason = session["id"], session["endReason"]
        happened = {
            "created": (created[session_id], True),
            "assigned": (assigned[session_id] - _reopened(found, session_id), session["assignedAt"] is not None),
            "started": (started[session_id], session["startedAt"] is not None),
            "cancelled": (withdrawn[session_id], reason == "CONSUMER_CANCELLED"),
            "dropped": (dropped[session_id], reason == "OPERATOR_CANCELLED"),
            "ended by its consumer": (ended[session_id, session["consumerWorkspaceId"]], reason == "CONSUMER_ENDED"),
            "ended by its operator": (ended[session_id, session["operatorWorkspaceId"]], reason == "OPERATOR_ENDED"),
        }
        for what, (times_told, is_so) in happened.items():
            if times_told != int(is_so):
                yield f"session {session_id} {what}: {is_so}, but {times_told} calls were told so ({session['state']})"


def marker_of(session: dict[str, Any]) -> str | None:
    """Return the marker of the call without a key that created the session."""
    marker: str | None = (session["metadata"] or {}).get("marker")
    return marker


def _unkeyed(history: History, found: Found) -> Iterator[str]:
    """Check calls without a key: a refusal had no effect, a success had one, an unknown outcome at most one."""
    times = Counter(marker_of(session) for session in found.sessions.values())
    allowed = {Outcome.DONE: {1}, Outcome.REFUSED: {0}, Outcome.UNKNOWN: {0, 1}}
    for marker, outcome in history.unkeyed.items():
        if times[marker] not in allowed[outcome]:
            yield f"unkeyed create {marker}: {outcome.value}, and made {times[marker]} sessions"


AGREES: Final = {
    "create": ("consumerWorkspaceId", "createdAt", "ratePerSecondMicroUsdc", "holdMicroUsdc", "quoteId", "metadata"),
    "dispatch": ("operatorWorkspaceId", "assignedAt"),
    "accept": ("operatorWorkspaceId", "assignedAt"),
    "start": ("operatorWorkspaceId", "assignedAt", "startedAt", "videoBackendRef"),
    "end": ("state", "startedAt", "endedAt", "cleanSeconds", "chargedMicroUsdc", "endReason"),
    "cancel": ("state", "endedAt", "endReason"),
}
"""Fields of a session in an answer that never change later."""


def _records(history: History, found: Found) -> Iterator[str]:
    """Check that everything acknowledged is still there, unchanged."""
    for made in history.done(*AGREES):
        session = found.sessions.get(made.session_id)
        said = made.told[0].data
        said = said.get("session", said)
        for name in AGREES[made.action] if session is not None else ():
            if made.action in {"dispatch", "accept"} and _reopened(found, made.session_id):
                continue  # a later assignment, or none, is shown
            if session is not None and said[name] != session[name]:
                yield f"session {made.session_id}: {made.action} said {name} {said[name]}, now {session[name]}"
    names = {made.workspace_id: made.told[0].data["name"] for made in history.done("patch")}
    for workspace_id, name in names.items():
        if found.workspaces[workspace_id]["name"] != name:
            yield f"workspace {workspace_id}: renamed {name}, now {found.workspaces[workspace_id]['name']}"


def _heartbeats(history: History, found: Found) -> Iterator[str]:
    for workspace_id, sequences in history.heartbeats.items():
        if found.last_sequences[workspace_id] < max(sequences):
            last = found.last_sequences[workspace_id]
            yield f"heartbeat {max(sequences)} of {workspace_id} is lost; the last is {last}"


def _rows(history: History, found: Found) -> Iterator[str]:
    """Check that the database has each acknowledged heartbeat once, and the sessions and settlements of the API."""
    if found.rows is None:
        return
    for workspace_id, sequences in history.heartbeats.items():
        stored = found.rows.heartbeats.get(workspace_id, Counter())
        if lost := sorted(sequences - stored.keys()):
            yield f"heartbeats of {workspace_id} were acknowledged and are not stored: {lost[:10]}"
        if doubled := sorted(sequence for sequence, times in stored.items() if times > 1):
            yield f"heartbeats of {workspace_id} are stored twice: {doubled[:10]}"
    shown = {session_id: session["state"] for session_id, session in found.sessions.items()}
    for session_id in shown.keys() | found.rows.sessions.keys():
        if shown.get(session_id) != found.rows.sessions.get(session_id):
            stored_state = found.rows.sessions.get(session_id)
            yield f"session {session_id} is {shown.get(session_id)} by the API and {stored_state} in its row"
    for session_id, session in found.sessions.items():
        wanted_state = "CONFIRMED" if session["state"] == "ENDED" else None
        if found.rows.settlements.get(session_id) != wanted_state:
            yield f"session {session_id}: its settlement's row is {found.rows.settlements.get(session_id)}"


@dataclass
class _Assignment:
    """One assignment of an operator, by the recorded events."""

    session_id: str
    operator: str
    began_ms: int
    is_dispatched: bool
    live_ms: int | None = None
    ended_ms: int = sys.maxsize

    @property
    def taken_ms(self) -> int:
        """From when on no dispatch may take the operator."""
        if self.is_dispatched:
            return self.began_ms
        return sys.maxsize if self.live_ms is None else self.live_ms + 1


def _assignments(history: History, found: Found) -> Iterator[str]:
    """Check by the recorded events that no dispatch took an operator that was dispatched elsewhere or was LIVE."""
    dispatched = {(made.session_id, _ms(made.told[0].data["assignedAt"])) for made in history.done("dispatch")}
    assignments: dict[str, list[_Assignment]] = defaultdict(list)
    last: dict[str, _Assignment] = {}
    for event in () if found.rows is None else found.rows.events:
        match event.kind:
            case "ASSIGNED":
                operator, is_dispatched = (
                    event.facts["operatorWorkspaceId"],
                    (event.session_id, event.at_ms) in dispatched,
                )
                last[event.session_id] = _Assignment(event.session_id, operator, event.at_ms, is_dispatched)
                assignments[operator].append(last[event.session_id])
            case "STARTED":
                last[event.session_id].live_ms = event.at_ms
            case "REOPENED" | "ENDED" | "CANCELLED" | "EXPIRED" if event.session_id in last:
                last.pop(event.session_id).ended_ms = event.at_ms
    for operator, all_of_it in assignments.items():
        for one, other in permutations(all_of_it, 2):
            if one.is_dispatched and other.taken_ms <= one.began_ms < other.ended_ms:
                early = f"{other.ended_ms - one.began_ms} ms before {other.session_id} ended"
                yield f"operator {operator} was dispatched to {one.session_id} {early}"


def _forgotten_assignments(history: History, found: Found) -> Iterator[str]:
    """Check that a session that a caller knows as ASSIGNED is shown as REQUESTED only after its START_TIMEOUT."""
    acknowledged: dict[str, list[Made]] = defaultdict(list)
    for made in history.done("dispatch", "accept"):
        acknowledged[made.session_id].append(made)
    for shown in history.shown_open:
        known = [made for made in acknowledged[shown.session_id] if made.ended is not None and made.ended < shown.began]
        # The server's clock may be stepped over the deadline; then the recorded event is checked by _early_releases.
        if not known or _reopened(found, shown.session_id) >= len(known):
            continue
        last = max(known, key=lambda made: made.began)
        if (passed_s := shown.ended - last.began) < START_TIMEOUT_S:
            yield f"session {shown.session_id} was shown REQUESTED {passed_s:.1f} s after its {last.action} was sent"


def _early_releases(found: Found) -> Iterator[str]:
    """Check by the recorded events that only a passed START_TIMEOUT takes a session from its operator."""
    assigned_ms: dict[str, int | None] = {}
    for event in () if found.rows is None else found.rows.events:
        if event.kind == "ASSIGNED":
            assigned_ms[event.session_id] = event.at_ms
        elif event.kind == "STARTED":
            assigned_ms[event.session_id] = None
        elif event.kind == "REOPENED":
            since_ms, reason = assigned_ms.get(event.session_id), event.facts["reason"]
            if since_ms is None:
                yield f"session {event.session_id} was opened again when it was not ASSIGNED"
            elif reason != "START_TIMEOUT" or event.at_ms < since_ms + START_TIMEOUT_S * 1_000:
                after = f"{event.at_ms - since_ms} ms after its assignment"
                yield f"session {event.session_id} was opened again {after}: {reason}"


def _life(session: dict[str, Any]) -> str:
    """The times and the end of a session, for a report."""
    return ", ".join(f"{name} {session[name]}" for name in ("assignedAt", "startedAt", "endedAt", "endReason"))


def _operators(found: Found) -> Iterator[str]:
    """Check that no operator is in two LIVE sessions, no operator stays BUSY, and no session stays open."""
    lives: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for session in found.sessions.values():
        if session["state"] not in TERMINAL:
            yield f"session {session['id']} is still {session['state']}"
        elif session["startedAt"] is not None:
            span = (_ms(session["startedAt"]), _ms(session["endedAt"]), session["id"])
            lives[session["operatorWorkspaceId"]].append(span)
    for workspace_id, spans in lives.items():
        spans.sort()
        for (_, ended, one), (started, _, other) in pairwise(spans):
            if started < ended:
                lives_of_both = "; ".join(_life(found.sessions[each]) for each in (one, other))
                yield (
                    f"operator {workspace_id} was live in {one} and {other} at once for {ended - started} ms: "
                    f"{lives_of_both}"
                )
    for workspace_id, workspace in found.workspaces.items():
        if workspace["availabilityState"] == "BUSY":
            yield f"operator {workspace_id} is still BUSY"


def _charges(found: Found) -> Iterator[str]:
    """Check that each charge follows from the meter's windows and is at most the hold."""
    for session in found.sessions.values():
        charged, clean = int(session["chargedMicroUsdc"]), session["cleanSeconds"]
        if charged != clean * int(session["ratePerSecondMicroUsdc"]):
            yield f"session {session['id']}: {clean} s charged {charged}"
        if charged > int(session["holdMicroUsdc"]):
            yield f"session {session['id']}: charged {charged} above its hold"
        meter = found.meters.get(session["id"])
        if session["state"] == "ENDED" and (meter is None or _clean_seconds(meter, session) != clean):
            yield f"session {session['id']}: {clean} clean seconds, but its meter says {meter}"


def _money(found: Found) -> Iterator[str]:
    """Check that each ended session is settled once, on the chain and in both ledgers, and that no hold remains."""
    for session in found.sessions.values():
        settlement = found.settlements[session["id"]]
        wanted = "CONFIRMED" if session["state"] == "ENDED" else "NOT_READY"
        if settlement["state"] != wanted or session["settlementTxHash"] != settlement["txHash"]:
            yield f"session {session['id']}: settlement {settlement['state']} {settlement['txHash']}"
        if wanted == "CONFIRMED" and _paid(settlement) != int(session["chargedMicroUsdc"]):
            yield f"session {session['id']}: charged {session['chargedMicroUsdc']}, settled {settlement['payload']}"
    # Sessions without a charge are settled together.
    charged = {session["id"] for session in found.sessions.values() if session["chargedMicroUsdc"] != "0"}
    hashes = Counter(row["txHash"] for id_, row in found.settlements.items() if row["txHash"] and id_ in charged)
    for tx_hash, times in hashes.items():
        if times > 1:
            yield f"transaction {tx_hash} settles {times} sessions"
    for workspace_id, wallet in found.wallets.items():
        party = "consumer" if workspace_id in found.consumers else "operator"
        yield from _ledger(found, workspace_id, party)
        if int(wallet["heldMicroUsdc"]) != 0:
            yield f"wallet of {workspace_id}: {wallet['heldMicroUsdc']} still held"
        if int(wallet["trackedBalance"]) != found.balances[workspace_id]:
            yield f"wallet of {workspace_id}: tracked {wallet['trackedBalance']}, has {found.balances[workspace_id]}"


def _ledger(found: Found, workspace_id: str, party: str) -> Iterator[str]:
    mine = [session for session in found.sessions.values() if session[f"{party}WorkspaceId"] == workspace_id]
    settled = [found.settlements[session["id"]] for session in mine if session["state"] == "ENDED"]
    paid = sum(_paid(row) if party == "consumer" else -int(row["payload"]["toAmount"]) for row in settled)
    if found.balances[workspace_id] != found.funds - paid:
        yield f"{party} {workspace_id}: has {found.balances[workspace_id]}, should have {found.funds - paid}"
    rows = [row for row in found.ledgers[workspace_id] if row["kind"] == "SETTLEMENT" and not row["removed"]]
    seen = Counter(_row(row) for row in rows)
    wanted = Counter(transfer for row in settled for transfer in _transfers(row, party))
    if seen != wanted:
        yield f"{party} {workspace_id}: settlements in the ledger differ by {_difference(seen, wanted)}"


def _row(row: dict[str, Any]) -> str:
    return f"{row['sessionId']} {row['amountMicroUsdc']} in {row['txHash']}"


def _transfers(settlement: dict[str, Any], party: str) -> list[str]:
    """List a settlement's transfers in a ledger; one row of 0 if no money moved."""
    payload = settlement["payload"]
    parts = [payload["toAmount"], payload["feeAmount"]] if party == "consumer" else [payload["toAmount"]]
    moved = [part for part in parts if part != "0"] or ["0"]
    return [f"{settlement['sessionId']} {part} in {settlement['txHash']}" for part in moved]


def _difference(one: Counter[str], other: Counter[str]) -> dict[str, int]:
    return {name: one[name] - other[name] for name in one.keys() | other.keys() if one[name] != other[name]}


def _paid(settlement: dict[str, Any]) -> int:
    return int(settlement["payload"]["toAmount"]) + int(settlement["payload"]["feeAmount"])


def _clean_seconds(meter: dict[str, Any], session: dict[str, Any]) -> int:
    started, ended = _ms(meter["startedAt"]), _ms(meter["endedAt"])
    windows: Iterable[tuple[int, int]] = sorted((_ms(row["from"]), _ms(row["to"])) for row in meter["windows"])
    dirty, covered_to = 0, started
    for begin, end in windows:
        dirty += max(0, min(end, ended) - max(begin, covered_to))
        covered_to = max(covered_to, end)
    clean = ended - started - dirty
    least = min(session["minimumSeconds"], (ended - started + 999) // 1000) if clean > 0 else 0
    return min(session["maxDurationSeconds"], max(least, clean // 1000))


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)
