"""Types of messages: what an actor accepts and what it answers.

A message type that is asked for an answer inherits `Command[Itself, Answer]`; one that is only told is any class. `ask`
then returns the answer's type, and mypy refuses a command that is not in the union of messages of the ref's actor.
"""

from __future__ import annotations

from typing import Generic, TypeVar

M = TypeVar("M")
M_co = TypeVar("M_co", covariant=True)
R = TypeVar("R")
S = TypeVar("S")


class Command(Generic[M_co, R]):
    """Base of a message that is answered with an `R`; `M_co` is the message's own class."""

    __slots__ = ()


class KindName(str, Generic[M, S]):
    """Name of a kind of actor that accepts messages `M` and publishes snapshots `S`."""

    __slots__ = ()
