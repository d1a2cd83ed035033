"""Worlds made of single operations: written by hand for one claim each, and generated ones that shrink."""

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sightline.ports.relations import Staged
from simulation.adapters.relations import FaultyRelations
from simulation.faults import FaultRates
from simulation.operations import Deed, SimOperation, story_of
from simulation.simulate import play

OPERATIONS = st.lists(
    st.builds(
        SimOperation,
        st.sampled_from(Deed),
        who=st.integers(0, 1),
        session=st.integers(0, 3),
        seconds=st.integers(1, 20),
    ),
    max_size=30,
)
RATES = st.sampled_from(
    [
        FaultRates(),
        FaultRates(store_unknown_applied=0.1, store_unknown_lost=0.1),
        FaultRates(store_refused=0.2, read_refused=0.1, relations_refused=0.2, video_refused=0.3),
        FaultRates(slow=0.3, slow_s=8.0, duplicate=0.3, late=0.3, video_hangs=0.2),
    ]
)


GRAPH_APART_SEED = 5
"""A seed whose world has the authorization graph in a separate system: its edges are staged before the commit."""


def told(*operations, seed=1, rates=None):
    """Run a list of operations and return its report."""
    return play(seed, story_of(operations, rates=rates), name="story")


def do(deed, **how):
    return SimOperation(Deed(deed), **how)


LIFE = (do("request"), do("wait"), do("dispatch"), do("wait"), do("start"), do("start", who=1), do("wait"))


def test_a_plain_life_ends_and_is_settled():
    report = told(*LIFE, do("beat"), do("beat", who=1), do("show"), do("wait", seconds=3), do("end"))
    assert report.violation is None, report.explained()
    assert report.counts["session"] >= 4


@pytest.mark.parametrize("moment", range(1, 7))
@pytest.mark.parametrize("stop", ["crash", "pause", "take over"])
def test_a_server_that_stops_at_any_moment_of_a_life_leaves_nothing_half_done(moment, stop):
    operations = [*LIFE, do("end")]
    operations.insert(moment, do(stop, seconds=4))
    report = told(*operations)
    assert report.violation is None, report.explained()


@settings(max_examples=60, deadline=None)
@given(operations=OPERATIONS, seed=st.integers(0, 2**32), rates=RATES)
def test_no_story_breaks_a_promise(operations, seed, rates):
    report = told(*operations, seed=seed, rates=rates)
    assert report.violation is None, report.explained()


def test_a_planted_bug_shrinks_to_its_shortest_story(monkeypatch):
    async def stage_nothing(self, updates):
        return Staged()

    monkeypatch.setattr(FaultyRelations, "stage", stage_nothing)
    found = []

    @settings(max_examples=200, deadline=None, database=None, phases=(Phase.generate, Phase.shrink), derandomize=True)
    @given(operations=OPERATIONS)
    def hunt(operations):
        report = told(*operations, seed=GRAPH_APART_SEED)
        if report.violation is not None:
            found.append(operations)
        assert report.violation is None

    with pytest.raises(AssertionError):
        hunt()
    first, second = (operation.deed for operation in found[-1] if operation.deed is not Deed.WAIT)
    assert first is Deed.REQUEST
    assert second in {Deed.DISPATCH, Deed.ACCEPT}
