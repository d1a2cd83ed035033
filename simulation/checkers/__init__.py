"""Checkers: each checks one promise over a world's history, independently of the scenario."""

from simulation.checkers.answers import Acknowledged, NoEffect, OneEffect, Readings, Sequences
from simulation.checkers.folded import Folded
from simulation.checkers.money import Charges, Holds, Meter, Pauses, Settlements
from simulation.checkers.operators import Busy, DispatchPairs, OneDispatch, OneLive, RelationsAgree
from simulation.checkers.rows import Epochs, MeterChain, Transitions, Versions
from simulation.history import Checker

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
