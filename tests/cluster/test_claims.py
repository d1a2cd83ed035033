"""Porcupine accepts correct histories of operator claims, and refuses each history with a planted error."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.nemesis.claims import ClaimRecord, OperatorRead, SessionRead, judge, operations_of, write_history
from tests.e2e.history import History, Made, Told

pytestmark = pytest.mark.interop

OPERATOR = "operator"


class Story:
    """What callers of one operator did and saw. Times are in seconds."""

    def __init__(self) -> None:
        self.history = History()
        self.record = ClaimRecord()

    def call(self, workspace: str, path: str, began: float, ended: float | None, **data: Any) -> None:
        """Add a call. Without an end it got no answer; its outcome is unknown."""
        told = [] if ended is None else [Told(200, {"data": data})]
        made = Made(workspace, "POST", path, f"key {began}", told=told, began=began, ended=ended)
        self.history.made.append(made)

    def dispatch(self, session: str, began: float, ended: float | None) -> None:
        self.call("consumer", f"/sessions/{session}/dispatch", began, ended, operatorWorkspaceId=OPERATOR)

    def accept(self, session: str, began: float, ended: float | None) -> None:
        self.call(OPERATOR, f"/sessions/{session}/accept", began, ended, operatorWorkspaceId=OPERATOR)

    def start(self, session: str, began: float, ended: float | None) -> None:
        self.call(OPERATOR, f"/sessions/{session}/start", began, ended)

    def end(self, session: str, began: float, ended: float | None) -> None:
        self.call("consumer", f"/sessions/{session}/end", began, ended)

    def drop(self, session: str, began: float, ended: float) -> None:
        self.call(OPERATOR, "/sessions/cancel-all-assignments", began, ended, cancelled=[session])

    def see(self, session: str, state: str, began: float) -> None:
        operator = None if state == "REQUESTED" else OPERATOR
        self.record.sessions.append(SessionRead(session, operator, state, began, began + 0.1))

    def see_operator(self, availability: str, began: float) -> None:
        self.record.operators.append(OperatorRead(OPERATOR, availability, began, began + 0.1))

    async def wrong(self, directory: Path) -> list[str]:
        write_history(operations_of(self.history, self.record), path := directory / "claims.jsonl")
        found, _ = await judge(path)
        return found


def a_story() -> Story:
    """Two sessions of one operator, one after the other: one by dispatch, LIVE, one accepted and dropped."""
    story = Story()
    story.see_operator("ONLINE", 0.0)
    story.dispatch("one", 1.0, 2.0)
    story.see("one", "ASSIGNED", 2.5)
    story.see_operator("BUSY", 2.5)
    story.start("one", 3.0, 4.0)
    story.see("one", "LIVE", 4.5)
    story.end("one", 5.0, 6.0)
    story.see("one", "ENDED", 6.5)
    story.see_operator("ONLINE", 7.0)
    story.accept("two", 8.0, 9.0)
    story.see("two", "ASSIGNED", 9.5)
    story.see_operator("ONLINE", 9.5)
    story.drop("two", 10.0, 11.0)
    story.see("two", "CANCELLED", 11.5)
    return story


async def test_a_correct_history_is_accepted(tmp_path: Path) -> None:
    assert await a_story().wrong(tmp_path) == []


async def test_changes_that_overlap_are_accepted_in_the_order_that_fits(tmp_path: Path) -> None:
    story = a_story()
    # Its operator is free again between 12 and 13.5 only.
    story.dispatch("three", 12.0, 20.0)
    story.end("three", 12.5, 13.5)
    story.dispatch("four", 13.0, 14.0)
    story.see("three", "CANCELLED", 14.5)
    story.see("four", "ASSIGNED", 14.5)
    assert await story.wrong(tmp_path) == []


async def test_calls_with_unknown_outcomes_are_accepted_with_and_without_effect(tmp_path: Path) -> None:
    story = a_story()
    story.accept("lost", 12.0, None)
    story.accept("done", 12.0, None)
    story.see("done", "ASSIGNED", 14.0)
    story.start("done", 15.0, None)
    story.see("done", "LIVE", 30.0)
    story.see("lost", "REQUESTED", 30.0)
    # It ended by itself between these reads.
    story.see("done", "ENDED", 40.0)
    story.dispatch("three", 39.0, 50.0)
    story.see_operator("BUSY", 50.5)
    story.dispatch("never answered", 51.0, None)
    assert await story.wrong(tmp_path) == []


async def test_a_dispatch_whose_outcome_is_known_late_is_accepted_where_reads_show_it(tmp_path: Path) -> None:
    story = a_story()
    story.dispatch("three", 12.0, 100.0)
    story.see("three", "ASSIGNED", 14.0)
    # It ended by itself, and its operator was free again.
    story.see("three", "EXPIRED", 16.0)
    story.dispatch("four", 18.0, 19.0)
    story.see_operator("BUSY", 20.0)
    assert await story.wrong(tmp_path) == []


def dispatched_twice(story: Story) -> None:
    story.dispatch("three", 12.0, 13.0)
    story.dispatch("four", 14.0, 15.0)
    story.end("three", 16.0, 17.0)
    story.end("four", 18.0, 19.0)


def dispatched_while_live(story: Story) -> None:
    story.dispatch("three", 4.2, 4.4)
    story.end("three", 18.0, 19.0)


def dispatched_while_live_by_accept(story: Story) -> None:
    story.accept("three", 12.0, 13.0)
    story.start("three", 14.0, 15.0)
    story.dispatch("four", 16.0, 17.0)
    story.end("three", 18.0, 19.0)


def dispatched_while_a_late_dispatch_is_seen(story: Story) -> None:
    story.dispatch("three", 12.0, 100.0)
    story.see("three", "ASSIGNED", 14.0)
    story.dispatch("four", 15.0, 16.0)
    story.see("three", "ASSIGNED", 17.0)
    story.see("three", "EXPIRED", 18.0)


def live_twice(story: Story) -> None:
    story.accept("three", 12.0, 13.0)
    story.accept("four", 12.0, 13.0)
    story.start("three", 14.0, 15.0)
    story.start("four", 16.0, 17.0)
    story.end("three", 18.0, 19.0)


def live_after_its_end_was_seen(story: Story) -> None:
    story.see("one", "LIVE", 7.0)


def requested_after_its_dispatch_was_answered(story: Story) -> None:
    story.see("one", "REQUESTED", 2.2)


def assigned_after_it_was_seen_live(story: Story) -> None:
    story.see("one", "ASSIGNED", 4.8)


def online_while_dispatched(story: Story) -> None:
    story.see_operator("ONLINE", 2.2)


def busy_without_a_session(story: Story) -> None:
    story.see_operator("BUSY", 7.5)


def assigned_by_no_call(story: Story) -> None:
    story.see("unknown", "ASSIGNED", 12.0)


def held_by_an_unanswered_accept_while_dispatched(story: Story) -> None:
    story.accept("three", 12.0, None)
    story.start("three", 13.0, None)
    story.see("three", "LIVE", 14.0)
    story.dispatch("four", 15.0, 16.0)
    story.see("three", "LIVE", 17.0)


@pytest.mark.parametrize(
    "plant",
    [
        dispatched_twice,
        dispatched_while_live,
        dispatched_while_live_by_accept,
        dispatched_while_a_late_dispatch_is_seen,
        live_twice,
        live_after_its_end_was_seen,
        requested_after_its_dispatch_was_answered,
        assigned_after_it_was_seen_live,
        online_while_dispatched,
        busy_without_a_session,
        assigned_by_no_call,
        held_by_an_unanswered_accept_while_dispatched,
    ],
    ids=lambda plant: plant.__name__,
)
async def test_a_planted_error_is_refused_with_a_picture(plant: Callable[[Story], None], tmp_path: Path) -> None:
    story = a_story()
    plant(story)
    (wrong,) = await story.wrong(tmp_path)
    assert f"operator {OPERATOR}: " in wrong
    assert "fits in no order" in wrong
    assert (tmp_path / f"claims-{OPERATOR}.html").stat().st_size > 0


async def test_a_run_without_claims_is_refused(tmp_path: Path) -> None:
    assert await Story().wrong(tmp_path) == ["no operation on an operator was recorded"]


async def test_a_file_that_is_not_a_history_is_refused(tmp_path: Path) -> None:
    history = tmp_path / "claims.jsonl"
    history.write_text('{"operator": "operator", "kind": "steal"}\n')
    (wrong,), _ = await judge(history)
    assert 'claims.jsonl:1: "steal" is not one of dispatch, accept,' in wrong
