"""Recorded answers: a replay returns the value that the first call returned."""

import orjson
import pytest

from sightline.actors.answers import record_of, recorded_answer
from sightline.actors.types import Answer, BatchVerdict, CancelledAssignments, HeartbeatVerdict
from sightline.domain.errors import RefusedError
from sightline.domain.operator.model import Claim, Workspace, WorkspaceRole
from sightline.domain.refusal import Code, Refusal
from sightline.domain.session.status import session_status
from sightline.ports.store import IdempotencyKey, IdempotencyRecord
from tests.actors.world import BOTH_SIDES, refusal_of

KEY = IdempotencyKey(workspace_id="w", method="POST", path="/x", key="k", body_hash="h")
WORKSPACE = Workspace(
    id="w",
    slug="harbour",
    name="Harbour",
    wallet_address="0x" + "ab" * 20,
    roles=(WorkspaceRole.CONSUMER, WorkspaceRole.SUPPLIER),
    created_at_ms=1,
    created_by_wallet="0x" + "ab" * 20,
    coverage_lat=52.520008,
    claims={"s": Claim(session_id="s", at_ms=2, is_live=True)},
    version=4,
)


def stored(answer):
    """The record as it is read back from a JSON column."""
    record = record_of(KEY, answer)
    return IdempotencyRecord(key=KEY, result=orjson.loads(orjson.dumps(record.result)), at_ms=record.at_ms)


@pytest.mark.parametrize(
    "value",
    [
        WORKSPACE,
        BatchVerdict(
            (HeartbeatVerdict(1, None), HeartbeatVerdict(2, Refusal(Code.CONFLICT, "location:sequence", "No"))),
            WORKSPACE,
        ),
        CancelledAssignments(("a", "b")),
    ],
)
def test_a_recorded_answer_is_read_back_as_it_was(value):
    assert recorded_answer(stored(Answer(value, 7)), relations=None) == Answer(value, 7)


async def test_a_session_is_read_back_as_it_was_in_every_state(world):
    consumer, operator = await world.consumer(), await world.operator()
    session_id = await world.request(consumer, metadata_json='{"order":"A-17"}')
    commands = [
        lambda: world.broker.dispatch(session_id, world.caller(consumer)),
        lambda: world.broker.start(session_id, world.caller(operator)),
        lambda: world.broker.end(session_id, world.caller(consumer), BOTH_SIDES),
    ]
    for command in [None, *commands]:
        if command is not None:
            await command()
        session = (await world.store.load_session(session_id)).session
        for workspace_id in (consumer, operator):
            now_ms = world.clock.now_ms()
            status = session_status(session, now_ms, world.limits.session, workspace_id)
            token = "t" if status.state == "ASSIGNED" else None
            answer = Answer(status, now_ms, token)
            assert recorded_answer(stored(answer), relations=None) == answer


async def test_the_record_of_an_older_version_is_refused_without_a_second_effect(world):
    """Version f83e316 stored the JSON of the response; the row is refused, and the command does not run again."""
    consumer = await world.consumer()
    caller = world.caller(consumer, "create")
    result = {"data": {"id": "3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44", "state": "REQUESTED"}, "token": None}
    await world.store.record_idempotent(IdempotencyRecord(key=caller.idempotency, result=result, at_ms=1))
    refusal = await refusal_of(world.request(consumer, key="create"))
    assert (refusal.code, refusal.detail) == (Code.CONFLICT, "idempotency:notReplayable")
    with pytest.raises(RefusedError):
        recorded_answer(IdempotencyRecord(key=caller.idempotency, result=result, at_ms=1), world.relations)


def test_a_record_whose_fields_another_version_has_changed_is_refused_as_not_replayable():
    record = stored(Answer(WORKSPACE, 7))
    del record.result["value"]["slug"]
    with pytest.raises(RefusedError) as refused:
        recorded_answer(record, relations=None)
    assert refused.value.refusal.detail == "idempotency:notReplayable"
