"""Three real servers lose processes under load: nothing is lost or doubled, and every session answers again."""

import json
from pathlib import Path

import pytest

from tests.cluster.nemesis.claims import judge
from tests.cluster.nemesis.run import Outcome, Plan, report, run
from tests.cluster.nemesis.system import Arrangement
from tests.groups import rest_at_night

# If a server dies while a request is being sent, httpx leaves the request's body to the garbage collector.
pytestmark = [
    pytest.mark.interop,
    pytest.mark.alone,
    pytest.mark.filterwarnings("ignore:Async generator 'httpx:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.parametrize(
    ("arrangement", "faults"),
    rest_at_night(
        [(Arrangement.SERVERS, "SIGSTOP 8 s,nats kill -9"), (Arrangement.WORKERS, "worker kill -9")],
        gate=1,
    ),
    ids=lambda value: value.value if isinstance(value, Arrangement) else "",
)
async def test_faults_of_several_servers_lose_and_double_nothing(
    arrangement: Arrangement, faults: str, tmp_path: Path
) -> None:
    plan, outcome = Plan(minutes=2, rounds=1, seed="1", only=faults, logs=tmp_path), Outcome(arrangement)
    await run(outcome, plan)
    text, held = report([outcome], plan)
    assert held, text
    assert len(outcome.injected) == len(faults.split(","))
    # The check can fail.
    give_a_dispatch_to_another_operator(plan.claims(arrangement))
    wrong, _ = await judge(plan.claims(arrangement))
    assert "fits in no order" in wrong[0]


def give_a_dispatch_to_another_operator(history: Path) -> None:
    """Replace the operator of one recorded dispatch by another one."""
    operations = [json.loads(line) for line in history.read_text().splitlines()]
    dispatch = next(each for each in operations if each["kind"] == "dispatch")
    dispatch["operator"] = next(each["operator"] for each in operations if each["operator"] != dispatch["operator"])
    history.write_text("".join(f"{json.dumps(each)}\n" for each in operations))
