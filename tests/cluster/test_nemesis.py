"""Three real servers lose processes under load: nothing is lost or doubled, and every session answers again."""

import pytest

from tests.cluster.nemesis.run import Outcome, Plan, report, run
from tests.cluster.nemesis.system import Arrangement

# If a server dies while a request is being sent, httpx leaves the request's body to the garbage collector.
pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:Async generator 'httpx:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.parametrize(
    ("arrangement", "faults"),
    [
        (Arrangement.SERVERS, "SIGSTOP 8 s,nats kill -9"),
        (Arrangement.WORKERS, "worker kill -9"),
    ],
    ids=lambda value: value.value if isinstance(value, Arrangement) else "",
)
async def test_faults_of_several_servers_lose_and_double_nothing(arrangement: Arrangement, faults: str) -> None:
    plan, outcome = Plan(minutes=2, rounds=1, seed="1", only=faults), Outcome(arrangement)
    await run(outcome, plan)
    text, held = report([outcome], plan)
    assert held, text
    assert len(outcome.injected) == len(faults.split(","))
