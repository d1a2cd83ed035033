"""A record of what callers did with operators and saw of them, and its check by Porcupine (tests/cluster/porcupine).

Each claim of an operator is recorded as changes with an earliest and a latest time. A call with a known outcome takes
effect between its first try and its answer. A refused call has no effect and is left out. An assignment that ends
without a call (by a deadline, or by missing heartbeats) ends between the last read that shows it and the first one that
does not. Lists are not used: they come from the database, which may be ahead of what a session shows.
"""

import json
import math
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import httpx
import trio

from sightline.domain.value import Value
from tests.e2e.history import History, Made
from tests.e2e.traffic import Caller

JUDGE: Final = Path(__file__).parents[3] / ".interop" / "porcupine" / "judge-claims"
READ_EVERY_S: Final = 0.1
HELD: Final = frozenset({"ASSIGNED", "LIVE"})
_PATH: Final = re.compile(r"/api/v1/(sessions|workspaces)/([0-9a-f-]{36})")


class Span(NamedTuple):
    """When something took effect: at the earliest and at the latest, in seconds; None if the latter is not known."""

    began: float
    ended: float | None = None


class Operation(Value):
    """One line of the history that Porcupine judges."""

    operator: str
    kind: str
    """dispatch, accept, assign, start, end, free, read session, or read operator: see model.go."""
    span: Span
    session: str = ""
    shown: str = ""
    is_maybe: bool = False
    """Whether it may have had no effect, because its caller never got an answer."""

    def line(self) -> str:
        began, ended = self.span
        record = {
            "operator": self.operator,
            "kind": self.kind,
            "session": self.session,
            "shown": self.shown,
            "beganNs": round(began * 1e9),
            "endedNs": None if ended is None else round(ended * 1e9),
            "isMaybe": self.is_maybe,
        }
        return json.dumps(record)


class SessionRead(Value):
    """An answered read of a session."""

    session: str
    operator: str | None
    state: str
    began: float
    ended: float

    def shows(self, operator: str) -> bool:
        """Whether it shows that the operator has the session."""
        return self.operator == operator and self.state in HELD


class OperatorRead(Value):
    """An answered read of an operator's workspace."""

    operator: str
    availability: str
    began: float
    ended: float


@dataclass
class Claim:
    """One assignment of a session to an operator."""

    session: str
    operator: str
    kind: str
    call: Span
    is_maybe: bool = False


@dataclass
class ClaimRecord:
    """The reads of one run, in the order of their answers."""

    sessions: list[SessionRead] = field(default_factory=list)
    operators: list[OperatorRead] = field(default_factory=list)

    def note(self, answer: httpx.Response, began: float) -> None:
        """Record a read of one session or of one workspace; called when its answer arrives.

        Args:
            began: When the request was sent. `answer.elapsed` does not tell: httpx stops it before it gives the
                connection back, so on a busy machine a read would seem to begin after a change that it could not see.
        """
        if answer.request.method != "GET" or answer.status_code != 200:
            return
        if (named := _PATH.fullmatch(answer.request.url.path)) is None:
            return
        ended, data = trio.current_time(), answer.json()["data"]
        if named[1] == "sessions":
            read = SessionRead(named[2], data["operatorWorkspaceId"], data["state"], began, ended)
            self.sessions.append(read)
        else:
            self.operators.append(OperatorRead(named[2], data["availabilityState"], began, ended))

    async def watch(self, operator: Caller) -> None:
        """Read an operator's availability repeatedly while the stage is open."""
        while operator.stage.is_open:
            await operator.read(f"/workspaces/{operator.id}")
            await operator.pause(READ_EVERY_S)


def operations_of(history: History, record: ClaimRecord) -> list[Operation]:
    """List the operations on every operator that was assigned a session or was shown to have one."""
    claims = _claims(history)
    reads: dict[str, list[SessionRead]] = defaultdict(list)
    for read in record.sessions:
        reads[read.session].append(read)
    operators = {claim.operator for those in claims.values() for claim in those}
    operators |= {read.operator for read in record.sessions if read.operator is not None and read.shows(read.operator)}
    found = [
        Operation(read.operator, "read operator", Span(read.began, read.ended), shown=read.availability)
        for read in record.operators
        if read.operator in operators
    ]
    free = _free_evidence(claims, record)
    starts, ends = _by_session(history, "start"), _ends(history)
    for session in claims.keys() | reads.keys():
        those = claims.get(session, [])
        for claim in those:
            told = ends.get(session) if claim is those[-1] else None
            end = told or _seen_end(claim, reads[session])
            found += _changes(claim, starts[session], end, _freed(end, free[claim.operator]))
        found += _session_reads(session, {claim.operator for claim in those}, reads[session])
    return sorted(found, key=lambda each: each.span.began)


def _span(made: Made) -> Span:
    return Span(made.began, made.ended)


def _by_session(history: History, action: str) -> dict[str, list[Made]]:
    """The calls of one action that were not refused."""
    found: dict[str, list[Made]] = defaultdict(list)
    for made in history.made:
        if made.action == action and (made.is_done or not made.told):
            found[made.session_id].append(made)
    return found


def _claims(history: History) -> dict[str, list[Claim]]:
    """The assignments of each session in their order. A dispatch without any answer names no operator."""
    found: dict[str, list[Claim]] = defaultdict(list)
    for made in history.made:
        if made.action not in {"dispatch", "accept"} or (made.told and not made.is_done):
            continue
        if made.is_done:
            data = made.told[0].data
            operator = data.get("session", data)["operatorWorkspaceId"]
        elif made.action == "accept":
            operator = made.workspace_id
        else:
            continue
        found[made.session_id].append(Claim(made.session_id, operator, made.action, _span(made), not made.told))
    return found


def _ends(history: History) -> dict[str, Span]:
    """When sessions were ended, or their assignments cancelled, by a call."""
    found = {made.session_id: _span(made) for made in history.done("end")}
    for made in history.done("cancel-all-assignments"):
        found |= dict.fromkeys(made.told[0].data["cancelled"], _span(made))
    return found


def _seen_end(claim: Claim, reads: list[SessionRead]) -> Span:
    """When an assignment ended, by reads of its session."""
    held = [read for read in reads if read.shows(claim.operator)]
    answered = [] if claim.call.ended is None else [claim.call.ended]
    known = min([*answered, *(read.ended for read in held)], default=math.inf)
    over = min((read.ended for read in reads if read.began >= known and not read.shows(claim.operator)), default=None)
    began = (read.began for read in held if over is None or read.began <= over)
    return Span(max(began, default=claim.call.began), over)


def _free_evidence(claims: dict[str, list[Claim]], record: ClaimRecord) -> dict[str, list[tuple[float, float]]]:
    """For each operator the ends and begins of what shows that it was free, sorted.

    These are reads of its availability, and dispatches that took it.
    """
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for read in record.operators:
        if read.availability != "BUSY":
            found[read.operator].append((read.ended, read.began))
    for those in claims.values():
        for claim in those:
            if claim.kind == "dispatch" and claim.call.ended is not None:
                found[claim.operator].append((claim.call.ended, claim.call.began))
    for evidence in found.values():
        evidence.sort()
    return found


def _freed(end: Span, evidence: list[tuple[float, float]]) -> float | None:
    """When an operator was free at the latest after its session's end."""
    if end.ended is None:
        return None
    later = islice(evidence, bisect_left(evidence, (end.ended,)), None)
    return next((ended for ended, began in later if began >= end.ended), None)


def _changes(claim: Claim, starts: list[Made], end: Span, freed: float | None) -> Iterator[Operation]:
    """The changes of one assignment. Its end reaches the operator's workspace later than the session."""

    def change(kind: str, span: Span, *, is_maybe: bool) -> Operation:
        return Operation(claim.operator, kind, span, claim.session, is_maybe=is_maybe)

    yield change(claim.kind, claim.call, is_maybe=claim.is_maybe)
    yield change("assign", claim.call, is_maybe=claim.is_maybe)
    for made in starts:
        if made.workspace_id == claim.operator:
            yield change("start", _span(made), is_maybe=not made.told)
    is_maybe = claim.is_maybe or end.ended is None
    yield change("end", end, is_maybe=is_maybe)
    yield change("free", Span(end.began, freed), is_maybe=is_maybe)


def _session_reads(session: str, operators: set[str], reads: Iterable[SessionRead]) -> Iterator[Operation]:
    """Turn reads of one session into reads of the claims of its operators."""
    for read in reads:
        shown = {read.operator} if read.operator is not None and read.shows(read.operator) else set()
        for operator in operators | shown:
            state = read.state if read.shows(operator) else "OTHER"
            yield Operation(operator, "read session", Span(read.began, read.ended), session, state)


def write_history(operations: Iterable[Operation], path: Path) -> None:
    """Write the operations to a file for Porcupine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{each.line()}\n" for each in operations))


async def judge(history: Path) -> tuple[list[str], str]:
    """Let Porcupine judge the operations of a file. Returns violations, and what was judged in one line."""
    assert JUDGE.exists(), "run scripts/interop_porcupine.sh"
    done = await trio.run_process([str(JUDGE), str(history)], capture_stdout=True, capture_stderr=True, check=False)
    if done.returncode not in (0, 1):
        return [f"{history} could not be judged: {done.stderr.decode()[-2_000:]}"], "nothing judged by Porcupine"
    verdicts = [json.loads(line) for line in done.stdout.splitlines()]
    found = [
        f"operator {each['operator']}: {each['reason']} ({history}, {each.get('picture', 'no picture')})"
        for each in verdicts
        if each["result"] != "Ok"
    ]
    if not verdicts:
        found.append("no operation on an operator was recorded")
    count, seconds = sum(each["operations"] for each in verdicts), sum(each["seconds"] for each in verdicts)
    return found, f"{count} operations on {len(verdicts)} operators judged by Porcupine in {seconds:.1f} s"
