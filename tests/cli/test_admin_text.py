"""What `sightline admin` prints for people."""

import io
import re
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from sightline.cli import app
from sightline.cli.admin_text import refund_lines, session_lines, workspaces_table
from sightline_client.commands import application

AT = "2026-11-28T16:00:00.000Z"
AT_MS = 1_795_881_600_000
NOBODY: dict[str, Any] = {"settlement": {"state": "NOT_READY", "payload": None}, "acts": [], "notes": [], "refunds": []}


def event(kind: str, **facts: object) -> dict[str, Any]:
    named = [{"name": name, "value": value} for name, value in facts.items()]
    return {"kind": kind, "atMs": AT_MS, "facts": named}


def a_session(*events: dict[str, Any], **more: object) -> dict[str, Any]:
    return {
        "id": "s1", "state": "LIVE", "endReason": None, "endedBy": None, "consumerWorkspaceId": "w1",
        "consumerSlug": "buyer", "operatorWorkspaceId": None, "operatorSlug": None, "payerAddress": "0x1",
        "lat": 1.5, "lng": 2.5, "radiusMeters": 500, "instructions": None, "ratePerSecondMicroUsdc": "1250",
        "holdMicroUsdc": "75000", "maxDurationSeconds": 60, "cleanSeconds": 4, "chargedMicroUsdc": "0",
        "accruedMicroUsdc": "5000", "messagesShown": 1, "meter": {"windows": []}, "events": list(events),
        "startedAt": AT, "endedAt": None, "delivery": None,
    } | NOBODY | more  # fmt: skip


def lines_of(session: dict[str, Any]) -> list[str]:
    return [re.sub(" +", " ", line.strip()) for text in session_lines(session) for line in text.splitlines()]


def test_a_session_shows_pauses_messages_and_the_cost_so_far() -> None:
    said = lines_of(
        a_session(
            event("PAUSED", reason="MEDIA_LOST", fromMs=AT_MS),
            event("RESUMED"),
            event("MESSAGE", number=1, text="turn left"),
            event("MESSAGE", number=2, text="zoom in"),
            event("REOPENED", reason="DECLINED", operatorWorkspaceId="w2"),
            meter={"windows": [{"from": AT, "to": None, "reason": "GEOFENCE_EXIT"}]},
        )
    )
    for line in (
        "charge 4 s, 0.005 USDC",
        "agreed at most 60 s at 0.00125 USDC a second, 0.075 USDC in all",
        "2026-11-28T16:00:00Z PAUSED from 2026-11-28T16:00:00Z, no video of the operator arrives",
        "2026-11-28T16:00:00Z RESUMED",
        "2026-11-28T16:00:00Z MESSAGE 1, the operator's device has shown it: turn left",
        "2026-11-28T16:00:00Z MESSAGE 2, not known to be shown: zoom in",
        "2026-11-28T16:00:00Z REOPENED the operator declined (w2)",
        "2026-11-28T16:00:00Z until now: the operator is not at the place",
    ):
        assert line in said


def test_a_session_that_was_live_says_whether_its_consumer_had_a_picture() -> None:
    had = {"firstAt": AT, "lastAt": "2026-11-28T16:01:00.500Z", "longestGapMs": 4_000}
    line = "pictures reached the consumer from 2026-11-28T16:00:00Z to 2026-11-28T16:01:00Z"
    assert line in lines_of(a_session(delivery=had))
    with_gap = a_session(delivery=had | {"longestGapMs": 36_400})
    assert f"{line}, with 36 s between two of them at most" in lines_of(with_gap)
    assert "pictures none is known to have reached the consumer" in lines_of(a_session())
    assert not [line for line in lines_of(a_session(startedAt=None)) if "picture" in line]


def test_a_session_names_the_credential_that_ended_it() -> None:
    by = {"kind": "API_KEY", "id": "k1"}
    said = lines_of(a_session(state="ENDED", endReason="CONSUMER_ENDED", endedBy=by, chargedMicroUsdc="4000"))
    assert {"state ENDED: the consumer ended it", "ended by the API key k1", "charge 4 s, 0.004 USDC"} <= set(said)


def test_a_payment_of_other_amounts_is_told() -> None:
    payload = {"to": "0x3", "toAmount": "4500", "feeAmount": "500"}
    paid = {"state": "CONFIRMED", "payload": payload, "txHash": "0x2", "mismatched": False, "reason": None, "tries": 0}
    line = "payment CONFIRMED: 0.0045 USDC to 0x3, 0.0005 USDC as fee, in 0x2"
    warning = "The chain settled these amounts, which differ from what the database asked for."
    said = lines_of(a_session(settlement=paid))
    assert line in said
    assert warning not in said
    assert {line, warning} <= set(lines_of(a_session(settlement=paid | {"mismatched": True})))


def test_a_payment_that_was_refused_says_why_and_how_often_it_was_tried() -> None:
    payload = {"to": "0x3", "toAmount": "4500", "feeAmount": "500"}
    refused = {"state": "FAILED", "payload": payload, "txHash": None, "mismatched": False, "tries": 3}
    said = lines_of(a_session(settlement=refused | {"reason": "amount exceeds allowance"}))
    at = said.index("payment FAILED: 0.0045 USDC to 0x3, 0.0005 USDC as fee")
    assert said[at + 1] == "amount exceeds allowance (tries: 3)"
    said = lines_of(a_session(settlement=refused | {"state": "WRITTEN_OFF", "reason": "no allowance"}))
    assert said[said.index("payment WRITTEN_OFF: 0.0045 USDC to 0x3, 0.0005 USDC as fee") + 1] == "no allowance"


def test_acts_of_administrators_are_shown_with_who_why_and_outcome() -> None:
    def act(action: str, reason: str, outcome: str = "DONE") -> dict[str, Any]:
        return {"at": AT, "action": action, "actor": "account root", "reason": reason, "outcome": outcome}

    said = lines_of(
        a_session(
            acts=[
                act("session.end", "ada: dispute 17"),
                act("settlement.writeOff", "no allowance: none"),
                act("session.refund", "ada: more (refund 1 of 5 micro-USDC)", "REFUSED CONFLICT refunds:key"),
                act("session.refund", "ada: paid (refund 1 of 5 micro-USDC)"),
                act("session.note", "bob: a note", "REQUESTED"),
            ]
        )
    )
    more = "ada (account root): more (refund 1 of 5 micro-USDC)"
    at = said.index("administrators")
    assert said[at + 1 :] == [
        "2026-11-28T16:00:00Z session.end, DONE, ada (account root): dispute 17",
        "2026-11-28T16:00:00Z settlement.writeOff, DONE, account root: no allowance: none",
        f"2026-11-28T16:00:00Z session.refund, REFUSED CONFLICT refunds:key, {more}",
        "2026-11-28T16:00:00Z session.note, interrupted, look at the state, bob (account root): a note",
    ]


def test_a_text_of_a_party_cannot_write_lines_of_its_own_or_control_the_terminal() -> None:
    said = list(session_lines(a_session(instructions="look\x1b[2J\nrefunds\r\nnotes\u202e")))
    texts = "\n".join(said)
    assert "\x1b" not in texts
    assert "\u202e" not in texts
    assert "look?[2J" in texts
    assert {"refunds", "notes"}.isdisjoint(texts.splitlines())


def test_the_reason_of_a_suspension_is_printed_as_it_is() -> None:
    workspace = {
        "slug": "buyer", "id": "w1", "roles": ["CONSUMER"], "availabilityState": "OFFLINE", "lastSeenAt": None,
        "passedOverUntil": None, "suspension": {"at": AT, "actor": "ada (account root)", "reason": "[red]fraud[/red]"},
    }  # fmt: skip
    console = Console(width=200, file=io.StringIO())
    with console.capture() as printed:
        console.print(workspaces_table([workspace]))
    assert "2026-11-28T16:00:00Z, ada (account root): [red]fraud[/red]" in printed.get()


@pytest.mark.parametrize(("video_from", "together"), [("2026-11-28T16:00:05.000Z", True), (AT, True), (None, False)])
def test_position_and_video_that_are_missing_together_are_not_told_as_the_devices_fault_alone(
    video_from: str | None, together: bool
) -> None:
    windows: list[dict[str, str | None]] = [{"from": AT, "to": "2026-11-28T16:00:20.000Z", "reason": "LOCATION_STALE"}]
    later = video_from or "2026-11-28T16:00:20.000Z"
    windows.append({"from": later, "to": None, "reason": "MEDIA_LOST"})
    said = "\n".join(lines_of(a_session(meter={"windows": windows})))
    assert ("this server was away" in said) is together


def test_an_operator_that_is_passed_over_is_seen_in_the_list_of_workspaces() -> None:
    workspace = {
        "slug": "cam", "id": "w1", "roles": ["SUPPLIER"], "availabilityState": "ONLINE", "lastSeenAt": None,
        "passedOverUntil": AT, "suspension": None,
    }  # fmt: skip
    console = Console(width=200, file=io.StringIO())
    with console.capture() as printed:
        console.print(workspaces_table([workspace]))
    assert "passed over until" in printed.get()
    assert "2026-11-28T16:00:00Z" in printed.get()


def test_the_charge_of_a_session_that_is_over_is_beside_the_time_for_which_it_was_live() -> None:
    said = lines_of(a_session(state="ENDED", endedAt="2026-11-28T16:00:20.400Z", chargedMicroUsdc="5000"))
    assert "charge 4 s of the 20 s for which it was live, 0.005 USDC" in said


def test_a_refund_says_what_its_key_is_for_and_how_a_further_one_is_made() -> None:
    paid = {"amountMicroUsdc": "40000", "to": "0x1", "txHash": "0x2", "key": "1", "state": "CONFIRMED", "at": AT}
    first, key, further = refund_lines(paid, is_repeat=False)
    assert first == "0.04 USDC to 0x1 in 0x2. It is mined."
    assert key == "Its --key is 1: the same command again pays nothing more."
    assert further == "For a further refund of this session, add --key with another name."
    first, *_ = refund_lines(paid | {"state": "FAILED"}, is_repeat=False)
    assert first.endswith("It FAILED: nothing was paid.")
    _, key, _ = refund_lines(paid, is_repeat=True)
    assert key == "This was asked for at 2026-11-28T16:00:00Z already, with --key 1: nothing more was paid now."
    printed = CliRunner().invoke(application(app), ["admin", "refund", "--help"], env={"COLUMNS": "200"}).stdout
    assert "for a further refund of the session give another one" in " ".join(printed.replace("│", " ").split())


@pytest.mark.parametrize("command", ["admin refund", "faucet", "approve"])
def test_help_names_the_unit_of_an_amount_and_no_whole_number(command: str) -> None:
    printed = CliRunner().invoke(application(app), [*command.split(), "--help"], env={"COLUMNS": "200"}).stdout
    (line,) = [line for line in printed.splitlines() if " amount " in line]
    assert "<USDC>" in line
