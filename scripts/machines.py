"""Generate docs/machines/*.md by running the session and the operator machine on every phase and message.

Usage: python scripts/machines.py          writes the files
       python scripts/machines.py --check  fails if a file differs from the generated page
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from sightline.domain.geofence import DeviceKind, Fix
from sightline.domain.operator import machine as operator_machine
from sightline.domain.operator.machine import (
    ClaimByAccept,
    ClaimByDispatch,
    Occupy,
    Patch,
    Release,
    Restore,
    Vacate,
)
from sightline.domain.operator.model import Availability, Workspace, WorkspaceRole
from sightline.domain.refusal import Refusal
from sightline.domain.session import machine as session_machine
from sightline.domain.session.messages import (
    Assign,
    BeginExtending,
    BeginFunding,
    Cancel,
    CancelAssignment,
    ConsumerActive,
    Decline,
    End,
    EventKind,
    Extend,
    ExtensionRefused,
    FixReported,
    FundsReported,
    GoLive,
    MarkShown,
    MediaBroke,
    MediaProved,
    Party,
    Say,
    SettlementMined,
    Step,
    Tick,
    Withdraw,
)
from sightline.domain.session.model import (
    Live,
    Operator,
    Session,
    SessionExtension,
    SessionLimits,
    SessionState,
    Terms,
    VideoInput,
)
from sightline.domain.units import MicroUsdc
from sightline.domain.value import replace

DIRECTORY: Final = Path(__file__).resolve().parent.parent / "docs" / "machines"
T0: Final = 1_700_000_000_000
LIMITS: Final = SessionLimits()
ID: Final = "0a000000-0000-4000-8000-000000000003"

Row = tuple[str, list[str]]

# The session.

_TERMS: Final = Terms(
    id=ID,
    consumer_workspace_id="c",
    payer_address="0x0",
    lat=0.0,
    lng=0.0,
    radius_m=500,
    max_duration_s=600,
    wait_timeout_s=300,
    rate=MicroUsdc(1000),
    hold=MicroUsdc(600_000),
    platform_fee_bps=1500,
    quote_id=None,
    instructions=None,
    metadata_json=None,
    created_at_ms=T0,
)
_OPERATOR: Final = Operator(
    workspace_id="o", wallet_address="0x1", device_kind=DeviceKind.PHONE, coverage_lat=None, coverage_lng=None
)
_EXTENSION: Final = SessionExtension(id="e", seconds=60, amount=MicroUsdc(60_000))
_VIDEO: Final = VideoInput(ref="ref", whip_url="whip", whep_url="whep")


def _fix(at_ms: int) -> Fix:
    return Fix(lat=0.0, lng=0.0, accuracy_m=5.0, at_ms=at_ms, taken_at_ms=at_ms)


def _told(session: Session, message: Any, at_ms: int) -> Session:
    result = session_machine.step(session, message, at_ms, LIMITS)
    assert isinstance(result, Step), f"{message} was refused: {result}"
    return result.session


def session_phases() -> dict[str, tuple[Session, int]]:
    """Return one session per column, and the time at which it gets the message."""
    requested = session_machine.create(_TERMS).session
    assigned = _told(requested, Assign(_OPERATOR), T0)
    live = _told(assigned, GoLive(_VIDEO), T0)
    running = _told(_told(live, FixReported(_fix(T0), 0), T0), MediaProved(T0), T0)
    paused = _told(running, MediaBroke(T0 + 1_000), T0 + 1_000)
    return {
        "REQUESTED": (requested, T0 + 2_000),
        "ASSIGNED": (assigned, T0 + 2_000),
        "ASSIGNED, funding": (_told(assigned, BeginFunding(), T0 + 1_000), T0 + 2_000),
        "LIVE running": (running, T0 + 2_000),
        "LIVE paused": (paused, T0 + 2_000),
        "ENDED": (_told(running, End(Party.CONSUMER), T0 + 1_000), T0 + 2_000),
        "CANCELLED": (_told(requested, Cancel(), T0 + 1_000), T0 + 2_000),
        "EXPIRED": (_told(requested, Tick(), T0 + 300_000), T0 + 301_000),
        "REQUESTED, late": (requested, T0 + 300_000),
        "ASSIGNED, late": (assigned, T0 + 120_000),
        "ASSIGNED, late, no wait left": (_told(requested, Assign(_OPERATOR), T0 + 299_500), T0 + 419_500),
        "LIVE, late": (replace(running, phase=_proved_throughout(running)), T0 + 600_000),
        "LIVE, paused out": (paused, T0 + 61_000),
    }


def _proved_throughout(session: Session) -> Live:
    live = session.phase
    assert isinstance(live, Live)
    signal = live.evidence.presence.span(T0, T0 + 599_000)
    return replace(live, evidence=replace(live.evidence, presence=signal, media=signal))


def session_messages(at_ms: int) -> dict[str, Any]:
    """Return one message per row."""
    return {
        "Assign": Assign(_OPERATOR),
        "BeginFunding": BeginFunding(),
        "GoLive": GoLive(_VIDEO),
        "End by the consumer": End(Party.CONSUMER),
        "End by the operator": End(Party.OPERATOR),
        "Cancel": Cancel(),
        "CancelAssignment": CancelAssignment(),
        "Withdraw": Withdraw(),
        "Decline": Decline(),
        "FixReported": FixReported(_fix(at_ms), 1),
        "MediaProved": MediaProved(at_ms),
        "MediaBroke": MediaBroke(at_ms),
        "ConsumerActive": ConsumerActive(),
        "FundsReported 0": FundsReported(MicroUsdc(0)),
        "BeginExtending": BeginExtending(_EXTENSION),
        "Extend": Extend(_EXTENSION),
        "Say": Say("turn left"),
        "MarkShown": MarkShown(1),
        "ExtensionRefused": ExtensionRefused(_EXTENSION.id),
        "Tick": Tick(),
        "SettlementMined": SettlementMined("0xabc"),
    }


def session_cell(session: Session, message: Any, at_ms: int) -> str:
    """Describe what one message does to one session."""
    result = session_machine.step(session, message, at_ms, LIMITS)
    if isinstance(result, Refusal):
        return f"refused {result.detail}"
    if result.session == session:
        return "no change"
    words = []
    if result.session.state is not session.state:
        words.append(f"to {result.session.state.value}")
    words += [event.kind.value + _reason(event.facts) for event in result.events]
    words += [type(effect).__name__ for effect in result.effects]
    return ", ".join(words) or "evidence"


def _reason(facts: Sequence[tuple[str, object]]) -> str:
    found = dict(facts).get("reason")
    return f" {found}" if found else ""


def _session_rows() -> list[Row]:
    phases = session_phases()
    names = session_messages(T0)
    return [
        (name, [session_cell(session, session_messages(at_ms)[name], at_ms) for session, at_ms in phases.values()])
        for name in names
    ]


def _session_diagram() -> list[str]:
    edges: dict[tuple[str, str], list[str]] = {}
    for name, (session, at_ms) in session_phases().items():
        for label, message in session_messages(at_ms).items():
            result = session_machine.step(session, message, at_ms, LIMITS)
            if isinstance(result, Refusal) or result.session.state is session.state:
                continue
            if result.events[0].kind is EventKind.REOPENED and len(result.events) > 1:
                continue  # two moves in one step: both are drawn already
            reason = next((_reason(event.facts).strip() for event in result.events), "")
            word = reason if "," in name else label
            edge = edges.setdefault((session.state.value, result.session.state.value), [])
            if word not in edge:
                edge.append(word)
    lines = ["stateDiagram-v2", "    [*] --> REQUESTED: create"]
    lines += [f"    {start} --> {end}: {', '.join(words)}" for (start, end), words in sorted(edges.items())]
    ends = (SessionState.ENDED, SessionState.CANCELLED, SessionState.EXPIRED)
    return lines + [f"    {state.value} --> [*]" for state in ends]


# The operator.


def operator_phases() -> dict[str, Workspace]:
    """Return one workspace per column. `s` is the session that the messages are about, `x` another one."""
    free = Workspace(
        id="o",
        slug="o",
        name="o",
        wallet_address="0x1",
        roles=(WorkspaceRole.SUPPLIER,),
        created_at_ms=T0,
        created_by_wallet="0x1",
        availability=Availability.ONLINE,
        rest=Availability.ONLINE,
    )
    offline = replace(free, availability=Availability.OFFLINE, rest=Availability.OFFLINE)
    return {
        "OFFLINE": offline,
        "ONLINE": free,
        "ONLINE, accepted s": _tied(free, ClaimByAccept("s")),
        "BUSY, dispatched to s": _tied(free, ClaimByDispatch("s")),
        "BUSY, accepted s and live": _tied(free, ClaimByAccept("s"), Occupy("s")),
        "BUSY, dispatched to s and live": _tied(free, ClaimByDispatch("s"), Occupy("s")),
        "BUSY, accepted s, live in x": _tied(free, ClaimByAccept("s"), ClaimByAccept("x"), Occupy("x")),
        "BUSY, dispatched to s, twice timed out": replace(_tied(free, ClaimByDispatch("s")), unstarted_for=("c", "d")),
    }


def _tied(workspace: Workspace, *messages: Any) -> Workspace:
    for message in messages:
        result = operator_machine.step(workspace, message, T0)
        assert isinstance(result, Workspace)
        workspace = result
    return workspace


OPERATOR_MESSAGES: Final[dict[str, Any]] = {
    "Patch ONLINE": Patch(availability=Availability.ONLINE),
    "Patch OFFLINE": Patch(availability=Availability.OFFLINE),
    "Patch name": Patch(name="new"),
    "ClaimByDispatch s": ClaimByDispatch("s"),
    "ClaimByAccept s": ClaimByAccept("s"),
    "Occupy s": Occupy("s"),
    "Restore s": Restore("s"),
    "Restore s, dispatched": Restore("s", is_dispatched=True),
    "Vacate s": Vacate("s"),
    "Release s": Release("s"),
    "Release s, start timed out": Release("s", start_timed_out=True, funded_consumer="c"),
    "Release s, start timed out, unfunded": Release("s", start_timed_out=True),
}


def operator_cell(workspace: Workspace, message: Any) -> str:
    """Describe what one message does to one workspace."""
    result = operator_machine.step(workspace, message, T0 + 1_000)
    if isinstance(result, Refusal):
        return f"refused {result.detail}"
    if result is workspace:
        return "no change"
    words = []
    if result.availability is not workspace.availability:
        words.append(f"to {result.availability.value}")
    words += [f"claims {key}" for key in result.claims if key not in workspace.claims]
    words += [f"gives back {key}" for key in workspace.claims if key not in result.claims]
    for key, claim in result.claims.items():
        before = workspace.claims.get(key)
        if before is not None and before.is_live != claim.is_live:
            words.append(f"{key} {'live' if claim.is_live else 'not live'}")
        elif before is not None and before.at_ms != claim.at_ms:
            words.append("claim made young")
    if result.idle_since_ms != workspace.idle_since_ms:
        words.append("idle since now")
    return ", ".join(words) or "changed"


def _operator_rows() -> list[Row]:
    phases = operator_phases().values()
    return [
        (name, [operator_cell(workspace, message) for workspace in phases])
        for name, message in OPERATOR_MESSAGES.items()
    ]


def _operator_diagram() -> list[str]:
    edges: dict[tuple[str, str], list[str]] = {}
    for workspace in operator_phases().values():
        for label, message in OPERATOR_MESSAGES.items():
            result = operator_machine.step(workspace, message, T0 + 1_000)
            if isinstance(result, Refusal) or result.availability is workspace.availability:
                continue
            words = edges.setdefault((workspace.availability.value, result.availability.value), [])
            word = label.removesuffix(" s").replace(" s,", ",")
            if word not in words:
                words.append(word)
    lines = ["stateDiagram-v2", "    [*] --> OFFLINE: create"]
    return lines + [f"    {start} --> {end}: {', '.join(words)}" for (start, end), words in sorted(edges.items())]


# Pages.


def _page(title: str, essay: str, columns: Sequence[str], rows: Sequence[Row], diagram: Sequence[str]) -> str:
    lines = [f"# {title}", "", essay, "", "```mermaid", *diagram, "```", ""]
    lines += [f"| | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    lines += [f"| {name} | {' | '.join(cells)} |" for name, cells in rows]
    lines += ["", "Written by `python scripts/machines.py` from what the code does; a test compares.", ""]
    return "\n".join(lines)


def session_page() -> str:
    """Generate docs/machines/session.md."""
    essay = (
        "Columns: the state in which a message arrives; *late*, *paused out*: a deadline passed, no timer fired yet.\n"
        "Cells: the next state, the recorded events, the effects. *evidence*: the session learned something that the\n"
        "step does not store; *no change*: nothing changed."
    )
    return _page("The session machine", essay, list(session_phases()), _session_rows(), _session_diagram())


def operator_page() -> str:
    """Generate docs/machines/operator.md."""
    essay = (
        "Columns: an operator's workspace by availability and claims; `s` is the message's session, `x` another."
        "\nCells: what changes; *no change*: nothing changed."
    )
    return _page("The operator machine", essay, list(operator_phases()), _operator_rows(), _operator_diagram())


PAGES: Final[dict[str, Callable[[], str]]] = {"session.md": session_page, "operator.md": operator_page}


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or compare them."""
    stale = 0
    for name, page in PAGES.items():
        path = DIRECTORY / name
        if "--check" in arguments:
            stale += not path.exists() or path.read_text() != page()
        else:
            DIRECTORY.mkdir(parents=True, exist_ok=True)
            path.write_text(page())
    if stale:
        sys.stderr.write("docs/machines is out of date: run python scripts/machines.py\n")
    return int(stale > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
