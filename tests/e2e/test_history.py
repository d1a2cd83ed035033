"""Prove the history checker: each test plants one error in a correct history."""

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from datetime import datetime
from typing import Any

import pytest

from tests.e2e.history import Found, History, Made, Outcome, Recorded, Rows, ShownOpen, Told, violations

CONSUMER, OPERATOR, SESSION = "consumer", "operator", "s1"


def a_session(**changed: Any) -> dict[str, Any]:
    return {
        "id": SESSION,
        "consumerWorkspaceId": CONSUMER,
        "operatorWorkspaceId": OPERATOR,
        "state": "ENDED",
        "maxDurationSeconds": 600,
        "minimumSeconds": 1,
        "ratePerSecondMicroUsdc": "1000",
        "holdMicroUsdc": "600000",
        "quoteId": None,
        "metadata": None,
        "createdAt": "2026-01-01T00:00:00.000Z",
        "assignedAt": "2026-01-01T00:00:01.000Z",
        "startedAt": "2026-01-01T00:00:02.000Z",
        "endedAt": "2026-01-01T00:00:12.500Z",
        "endReason": "CONSUMER_ENDED",
        "cleanSeconds": 6,
        "chargedMicroUsdc": "6000",
        "settlementTxHash": "0x1",
        "videoBackendRef": "ref",
        **changed,
    }


def a_story() -> tuple[History, Found]:
    """Build the history of one session from request to settlement, without errors."""
    session = a_session()
    history = History()
    for workspace, verb in (
        (CONSUMER, ""), (CONSUMER, "/dispatch"), (OPERATOR, "/start"), (CONSUMER, "/end")
    ):  # fmt: skip
        path = f"/sessions/{SESSION}{verb}" if verb else "/sessions"
        history.made.append(Made(workspace, "POST", path, f"key {verb}", told=[Told(200, {"data": session})]))
    renamed = Told(200, {"data": {"name": "New"}})
    history.made.append(Made(OPERATOR, "PATCH", f"/workspaces/{OPERATOR}", "rename", told=[renamed]))
    for sequence in (1, 2, 3):
        history.acknowledge(OPERATOR, sequence)
    windows = [{"from": "2026-01-01T00:00:04.000Z", "to": "2026-01-01T00:00:08.000Z", "reason": "MEDIA_LOST"}]
    payload = {"toAmount": "5100", "feeAmount": "900"}
    rows = [
        {"kind": "SETTLEMENT", "removed": False, "sessionId": SESSION, "txHash": "0x1", "amountMicroUsdc": amount}
        for amount in ("5100", "900")
    ]
    found = Found(
        consumers=frozenset({CONSUMER}),
        sessions={SESSION: session},
        meters={SESSION: {"startedAt": session["startedAt"], "endedAt": session["endedAt"], "windows": windows}},
        settlements={SESSION: {"sessionId": SESSION, "state": "CONFIRMED", "txHash": "0x1", "payload": payload}},
        workspaces={OPERATOR: {"availabilityState": "ONLINE", "name": "New"}, CONSUMER: {"availabilityState": None}},
        last_sequences={OPERATOR: 3},
        wallets={CONSUMER: a_wallet(94_000), OPERATOR: a_wallet(105_100)},
        ledgers={CONSUMER: rows, OPERATOR: rows[:1]},
        balances={CONSUMER: 94_000, OPERATOR: 105_100},
        funds=100_000,
        rows=Rows({OPERATOR: Counter([1, 2, 3])}, {SESSION: "ENDED"}, {SESSION: "CONFIRMED"}),
    )
    return history, found


def a_wallet(balance: int) -> dict[str, Any]:
    return {"heldMicroUsdc": "0", "trackedBalance": str(balance)}


def test_a_story_that_holds_has_no_violations() -> None:
    assert violations(*a_story()) == []


def never_answered(history: History, _found: Found) -> None:
    history.made[1].told.clear()


def answered_differently(history: History, _found: Found) -> None:
    history.made[3].told.append(Told(200, {"data": a_session(cleanSeconds=7)}))


def refused_the_repeat(history: History, _found: Found) -> None:
    history.made[3].told.append(Told(409, {"detail": "session:notLive"}))


def lost_the_session(_history: History, found: Found) -> None:
    del found.sessions[SESSION]


def a_second_session(found: Found, **changed: Any) -> None:
    found.sessions["s2"] = a_session(id="s2", state="CANCELLED", endReason="CONSUMER_CANCELLED", **changed)
    found.settlements["s2"] = {"sessionId": "s2", "state": "NOT_READY", "txHash": None, "payload": None}


def created_twice(_history: History, found: Found) -> None:
    a_second_session(found)


def refused_and_created(history: History, found: Found) -> None:
    history.unkeyed["m"] = Outcome.REFUSED
    a_second_session(found, metadata={"marker": "m"})


def done_and_not_created(history: History, _found: Found) -> None:
    history.unkeyed["m"] = Outcome.DONE


def unknown_and_created_twice(history: History, found: Found) -> None:
    history.unkeyed["m"] = Outcome.UNKNOWN
    a_second_session(found, metadata={"marker": "m"})
    found.sessions["s3"] = found.sessions["s2"] | {"id": "s3"}
    found.settlements["s3"] = found.settlements["s2"]


def answered_500(history: History, _found: Found) -> None:
    history.unexpected.append("GET /wallet was answered 500")


def assigned_by_nobody(history: History, _found: Found) -> None:
    del history.made[1]


def started_twice(history: History, _found: Found) -> None:
    again = deepcopy(history.made[2])
    again.key = "another"
    history.made.append(again)


def ended_and_refused(history: History, _found: Found) -> None:
    history.made[3].told = [Told(409, {"detail": "session:notLive"})]


def reassigned(_history: History, found: Found) -> None:
    found.sessions[SESSION] = a_session(operatorWorkspaceId="another")


def recharged(_history: History, found: Found) -> None:
    found.sessions[SESSION] = a_session(cleanSeconds=7, chargedMicroUsdc="7000")


def overcharged(_history: History, found: Found) -> None:
    found.sessions[SESSION] = a_session(chargedMicroUsdc="6001")


def forgot_a_window(_history: History, found: Found) -> None:
    found.meters[SESSION]["windows"] = []


def forgot_the_name(_history: History, found: Found) -> None:
    found.workspaces[OPERATOR]["name"] = "Old"


def lost_a_heartbeat(_history: History, found: Found) -> None:
    found.last_sequences[OPERATOR] = 2


def stored_no_heartbeat(_history: History, found: Found) -> None:
    assert found.rows is not None
    del found.rows.heartbeats[OPERATOR][2]


def stored_a_heartbeat_twice(_history: History, found: Found) -> None:
    assert found.rows is not None
    found.rows.heartbeats[OPERATOR][2] += 1


def stored_another_state(_history: History, found: Found) -> None:
    assert found.rows is not None
    found.rows.sessions[SESSION] = "LIVE"


def stored_no_settlement(_history: History, found: Found) -> None:
    assert found.rows is not None
    found.rows.settlements.clear()


def left_busy(_history: History, found: Found) -> None:
    found.workspaces[OPERATOR]["availabilityState"] = "BUSY"


def left_live(_history: History, found: Found) -> None:
    found.sessions[SESSION] = a_session(state="LIVE")


def live_twice_at_once(_history: History, found: Found) -> None:
    found.sessions["s2"] = a_session(id="s2", startedAt="2026-01-01T00:00:12.000Z", endedAt="2026-01-01T00:00:20.000Z")
    found.settlements["s2"] = found.settlements[SESSION] | {"sessionId": "s2", "txHash": "0x2"}


def dispatched_while_live(history: History, found: Found) -> None:
    assert found.rows is not None
    assigned = found.sessions[SESSION]["assignedAt"]
    a_dispatch = Made(CONSUMER, "POST", "/sessions/s2/dispatch", "d2")
    a_dispatch.told.append(Told(200, {"data": {"operatorWorkspaceId": OPERATOR, "assignedAt": assigned}}))
    history.made.append(a_dispatch)
    at_ms = round(datetime.fromisoformat(assigned).timestamp() * 1000)
    operator = {"operatorWorkspaceId": OPERATOR}
    found.rows.events += [
        Recorded("s3", "ASSIGNED", at_ms - 9_000, operator),
        Recorded("s3", "STARTED", at_ms - 8_000),
        Recorded("s3", "ENDED", at_ms + 1_000),
        Recorded("s2", "ASSIGNED", at_ms, operator),
        Recorded("s2", "CANCELLED", at_ms + 2_000),
    ]


def forgot_the_assignment(history: History, _found: Found) -> None:
    history.made[1].began, history.made[1].ended = 10.0, 10.2
    history.shown_open.append(ShownOpen(SESSION, 10.3, 10.4))


def released_early(_history: History, found: Found) -> None:
    _release(found, after_ms=119_999, reason="START_TIMEOUT")


def released_for_another_reason(_history: History, found: Found) -> None:
    _release(found, after_ms=120_000, reason="NOT_ACKNOWLEDGED")


def released_while_live(_history: History, found: Found) -> None:
    _release(found, after_ms=120_000, reason="START_TIMEOUT", then="STARTED")


def _release(found: Found, *, after_ms: int, reason: str, then: str | None = None) -> None:
    assert found.rows is not None
    found.rows.events += [
        Recorded("s2", "ASSIGNED", 0, {"operatorWorkspaceId": OPERATOR}),
        *([Recorded("s2", then, 1_000)] if then else []),
        Recorded("s2", "REOPENED", after_ms, {"reason": reason, "operatorWorkspaceId": OPERATOR}),
    ]


def settled_never(_history: History, found: Found) -> None:
    found.settlements[SESSION]["state"] = "PENDING"


def settled_twice(_history: History, found: Found) -> None:
    found.ledgers[CONSUMER] = found.ledgers[CONSUMER] * 2


def settled_otherwise(_history: History, found: Found) -> None:
    found.settlements[SESSION]["payload"]["toAmount"] = "5000"


def took_too_much(_history: History, found: Found) -> None:
    found.balances[CONSUMER] = 93_000


def kept_the_hold(_history: History, found: Found) -> None:
    found.wallets[CONSUMER]["heldMicroUsdc"] = "600000"


def cached_the_balance(_history: History, found: Found) -> None:
    found.wallets[OPERATOR]["trackedBalance"] = "100000"


LIES: dict[Callable[[History, Found], None], str] = {
    never_answered: "never answered",
    answered_differently: "another answer to the same key",
    refused_the_repeat: "another answer to the same key",
    lost_the_session: "was created and is gone",
    created_twice: "created: True, but 0 calls",
    refused_and_created: "nothing was done, and made 1 sessions",
    done_and_not_created: "answered 200, and made 0 sessions",
    unknown_and_created_twice: "or not at all, and made 2 sessions",
    answered_500: "was answered 500",
    stored_no_heartbeat: "acknowledged and are not stored: [2]",
    stored_a_heartbeat_twice: "are stored twice: [2]",
    stored_another_state: "is ENDED by the API and LIVE in its row",
    stored_no_settlement: "its settlement's row is None",
    assigned_by_nobody: "assigned: True, but 0 calls",
    started_twice: "started: True, but 2 calls",
    ended_and_refused: "ended by its consumer: True, but 0 calls",
    reassigned: "said operatorWorkspaceId operator, now another",
    recharged: "end said cleanSeconds 6, now 7",
    overcharged: "6 s charged 6001",
    forgot_a_window: "but its meter says",
    forgot_the_name: "renamed New, now Old",
    lost_a_heartbeat: "heartbeat 3 of operator is lost",
    left_busy: "is still BUSY",
    left_live: "is still LIVE",
    dispatched_while_live: "was dispatched to s2 1000 ms before s3 ended",
    live_twice_at_once: "was live in s1 and s2 at once",
    forgot_the_assignment: "was shown REQUESTED 0.4 s after its dispatch was sent",
    released_early: "opened again 119999 ms after its assignment",
    released_for_another_reason: "after its assignment: NOT_ACKNOWLEDGED",
    released_while_live: "opened again when it was not ASSIGNED",
    settled_never: "settlement PENDING",
    settled_twice: "settlements in the ledger differ",
    settled_otherwise: "charged 6000, settled",
    took_too_much: "has 93000, should have 94000",
    kept_the_hold: "600000 still held",
    cached_the_balance: "tracked 100000, has 105100",
}


def test_a_request_that_is_open_again_after_its_start_timeout_is_no_violation() -> None:
    history, found = a_story()
    history.made[1].began, history.made[1].ended = 10.0, 10.2
    history.shown_open += [ShownOpen(SESSION, 9.0, 10.1), ShownOpen(SESSION, 130.0, 130.1)]
    _release(found, after_ms=120_000, reason="START_TIMEOUT")
    assert violations(history, found) == []


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_a_planted_lie_is_found(lie: Callable[[History, Found], None]) -> None:
    history, found = a_story()
    lie(history, found)
    assert any(LIES[lie] in violation for violation in violations(history, found)), violations(history, found)
