"""Every cell of the two machines: what is documented is what the code does, and no cell is left open."""

import importlib.util
import json
from pathlib import Path

import pytest

from sightline.domain.operator import machine as operator_machine
from sightline.domain.operator.model import Workspace
from sightline.domain.refusal import Code, Refusal
from sightline.domain.session import codec
from sightline.domain.session import machine as session_machine
from sightline.domain.session.messages import Step
from sightline.domain.value import replace

ROOT = Path(__file__).resolve().parents[2]


def _load():
    spec = importlib.util.spec_from_file_location("machines", ROOT / "scripts" / "machines.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


machines = _load()
COMMANDS = (
    "Assign", "BeginFunding", "GoLive", "End by the consumer", "End by the operator", "Cancel", "CancelAssignment",
    "Withdraw", "Decline", "BeginExtending", "Extend", "Say", "MarkShown",
)  # fmt: skip
# Which command moves which state; every other cell of a command is a refusal.
MOVES = {
    ("REQUESTED", "Assign"): "ASSIGNED",
    ("REQUESTED", "Cancel"): "CANCELLED",
    ("ASSIGNED", "BeginFunding"): "ASSIGNED",
    ("ASSIGNED", "GoLive"): "LIVE",
    ("ASSIGNED, funding", "BeginFunding"): "ASSIGNED",
    ("ASSIGNED, funding", "GoLive"): "LIVE",
    ("ASSIGNED, funding", "CancelAssignment"): "CANCELLED",
    ("ASSIGNED, funding", "Withdraw"): "EXPIRED",
    ("ASSIGNED, funding", "Decline"): "EXPIRED",
    ("ASSIGNED, funding", "End by the consumer"): "CANCELLED",
    ("ASSIGNED", "CancelAssignment"): "CANCELLED",
    ("ASSIGNED", "Withdraw"): "REQUESTED",
    ("ASSIGNED", "Decline"): "REQUESTED",
    ("ASSIGNED", "End by the consumer"): "CANCELLED",
    ("LIVE running", "End by the consumer"): "ENDED",
    ("LIVE paused", "End by the consumer"): "ENDED",
    ("LIVE running", "End by the operator"): "ENDED",
    ("LIVE paused", "End by the operator"): "ENDED",
    ("LIVE running", "BeginExtending"): "LIVE",
    ("LIVE paused", "BeginExtending"): "LIVE",
    ("LIVE running", "Extend"): "LIVE",
    ("LIVE paused", "Extend"): "LIVE",
    ("LIVE running", "Say"): "LIVE",
    ("LIVE paused", "Say"): "LIVE",
    ("LIVE running", "MarkShown"): "LIVE",
    ("LIVE paused", "MarkShown"): "LIVE",
    ("LIVE running", "FundsReported 0"): "ENDED",
    ("LIVE paused", "FundsReported 0"): "ENDED",
}
LATE = {
    "REQUESTED, late": "EXPIRED",
    "ASSIGNED, late, no wait left": "EXPIRED",
    "LIVE, late": "ENDED",
    "LIVE, paused out": "ENDED",
}


# The request is open again: facts settle the deadline, commands meet a REQUESTED session.
REOPENED = "ASSIGNED, late"


@pytest.mark.parametrize("name", list(machines.PAGES))
def test_the_documented_machine_is_the_one_that_runs(name):
    written = (ROOT / "docs" / "machines" / name).read_text()
    assert written == machines.PAGES[name](), "run python scripts/machines.py and look at what changed"


@pytest.mark.parametrize("message_name", list(machines.session_messages(0)))
@pytest.mark.parametrize("phase_name", list(machines.session_phases()))
def test_a_session_cell(phase_name, message_name):
    session, at_ms = machines.session_phases()[phase_name]
    message = machines.session_messages(at_ms)[message_name]
    result = session_machine.step(session, message, at_ms, machines.LIMITS)
    is_command = message_name in COMMANDS
    if phase_name in LATE:
        if is_command:
            assert result is session_machine.EXPIRED
        else:
            assert result.session.state == LATE[phase_name]
        return
    if phase_name == REOPENED:
        if not is_command:
            assert result.session.state == "REQUESTED"
        elif message_name == "Cancel":
            assert result.session.state == "CANCELLED"
        else:
            assert result.state == "REQUESTED"
        return
    target = MOVES.get((phase_name, message_name))
    if target is not None:
        assert isinstance(result, Step)
        assert result.session.state == target
        # No event says that the contract is asked (its transaction is one), or that a message was shown.
        assert len(result.events) == (0 if message_name.startswith(("Begin", "Mark")) else 1)
    elif is_command:
        assert isinstance(result, Refusal)
        assert result.code is Code.INVALID_STATE
    else:
        assert isinstance(result, Step), "a fact is never refused"
        assert result.session.state is session.state
        assert not result.effects
    if isinstance(result, Step):
        doc = json.loads(json.dumps(codec.to_doc(result.session)))
        assert codec.from_doc(doc, 0) == replace(result.session, version=0)


@pytest.mark.parametrize("message_name", list(machines.OPERATOR_MESSAGES))
@pytest.mark.parametrize("phase_name", list(machines.operator_phases()))
def test_an_operator_cell(phase_name, message_name):
    workspace = machines.operator_phases()[phase_name]
    message = machines.OPERATOR_MESSAGES[message_name]
    once = operator_machine.step(workspace, message, machines.T0 + 1_000)
    if isinstance(once, Refusal):
        return
    assert isinstance(once, Workspace)
    again = operator_machine.step(once, message, machines.T0 + 1_000)
    if not isinstance(again, Refusal):
        assert again == once, "a message may be repeated"
    else:
        assert again is operator_machine.BUSY
