"""Checkers: each checks one promise over a world's history, independently of the scenario."""

from sightline.sim.checkers.answers import Acknowledged, NoEffect, OneEffect, Readings, Sequences
from sightline.sim.checkers.folded import Folded
from sightline.sim.checkers.money import Charges, Holds, Meter, Pauses, Settlements
from sightline.sim.checkers.operators import Busy, DispatchPairs, OneDispatch, OneLive, RelationsAgree
from sightline.sim.checkers.rows import Epochs, MeterChain, Transitions, Versions
from sightline.sim.history import Checker

__all__ = ["Checker", "all_checkers"]


def all_checkers() -> list[Checker]:
    """Create a new instance of every checker."""
    return [
        Epochs(),
        Versions(),
        Transitions(),
        MeterChain(),
        Acknowledged(),
        OneEffect(),
        NoEffect(),
        Sequences(),
        Readings(),
        OneLive(),
        DispatchPairs(),
        OneDispatch(),
        Busy(),
        RelationsAgree(),
        Holds(),
        Charges(),
        Settlements(),
        Meter(),
        Pauses(),
        Folded(),
    ]
