"""What `sightline admin` prints for people."""

import io
import re
from typing import Any

from rich.console import Console
from typer.testing import CliRunner

from sightline.cli import app
from sightline.cli.admin_text import refund_lines, session_lines, workspaces_table
from sightline_client.commands import application

AT = "2026-11-28T16:00:00.000Z"
AT_MS = 1_795_881_600_000
NOBODY: dict[str, Any] = {"settlement": {"state": "NOT_READY", "payload": None}, "notes": [], "refunds": []}


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
        "agreed at most 60 s at 0.00125 USDC, 0.075 USDC in all",
        "2026-11-28T16:00:00Z PAUSED from 2026-11-28T16:00:00Z, the operator's device sends no video",
        "2026-11-28T16:00:00Z RESUMED",
        "2026-11-28T16:00:00Z MESSAGE 1, the operator's device has shown it: turn left",
        "2026-11-28T16:00:00Z MESSAGE 2, not known to be shown: zoom in",
        "2026-11-28T16:00:00Z REOPENED the operator declined (w2)",
        "2026-11-28T16:00:00Z until now: the operator is not at the place",
    ):
        assert line in said


def test_a_session_names_the_credential_that_ended_it() -> None:
    by = {"kind": "API_KEY", "id": "k1"}
    said = lines_of(a_session(state="ENDED", endReason="CONSUMER_ENDED", endedBy=by, chargedMicroUsdc="4000"))
    assert {"state ENDED: the consumer ended it", "ended by the API key k1", "charge 4 s, 0.004 USDC"} <= set(said)


def test_a_payment_of_other_amounts_is_told() -> None:
    payload = {"to": "0x3", "toAmount": "4500", "feeAmount": "500"}
    paid = {"state": "CONFIRMED", "payload": payload, "txHash": "0x2", "mismatched": False}
    line = "payment CONFIRMED: 0.0045 USDC to 0x3, 0.0005 USDC as fee, in 0x2"
    warning = "The chain settled these amounts, which differ from what the database asked for."
    said = lines_of(a_session(settlement=paid))
    assert line in said
    assert warning not in said
    assert {line, warning} <= set(lines_of(a_session(settlement=paid | {"mismatched": True})))


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
        "suspension": {"at": AT, "actor": "account root", "reason": "[red]fraud[/red]"},
    }  # fmt: skip
    console = Console(width=200, file=io.StringIO())
    with console.capture() as printed:
        console.print(workspaces_table([workspace]))
    assert "2026-11-28T16:00:00Z: [red]fraud[/red]" in printed.get()


def test_a_refund_says_what_its_key_is_for_and_how_a_further_one_is_made() -> None:
    paid = {"amountMicroUsdc": "40000", "to": "0x1", "txHash": "0x2", "key": "1", "state": "CONFIRMED"}
    first, key = refund_lines(paid)
    assert first == "0.04 USDC to 0x1 in 0x2. It is mined."
    assert key == (
        "This is the refund 1 of the session: the same command again pays nothing more. For a further refund of this "
        "session, add --key with another name."
    )
    first, _ = refund_lines(paid | {"state": "FAILED"})
    assert first.endswith("It FAILED: nothing was paid.")
    printed = CliRunner().invoke(application(app), ["admin", "refund", "--help"], env={"COLUMNS": "200"}).stdout
    assert "for a further refund of the session give another one" in " ".join(printed.replace("│", " ").split())
