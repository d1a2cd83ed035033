"""Errors that an ask raises in addition to those of the actor's answer.

UnavailableError            nothing happened; retry later
+-- OverloadedError         the mailbox is full
+-- SupersededError         a newer message with the same conflate key replaced this one in a full mailbox
+-- ActorStoppedError       the actor or the whole kernel is stopping
+-- ActorParkedError        the actor crashed too often and waits for `revive`
OutcomeUnknownError         it may have happened; read the state before repeating the call
+-- AskTimeoutError         the deadline passed
+-- TurnLostError           the turn that handled the message failed or was cancelled
ReloadRequestedError        raised by a behaviour to drop its memory and load again
AskCycleError               test mode: actors wait for each other's answers in a cycle
"""

from sightline.domain.errors import InvariantError, OutcomeUnknownError, UnavailableError


class OverloadedError(UnavailableError):
    """The mailbox is full; the message was not admitted."""


class SupersededError(UnavailableError):
    """A newer message with the same conflate key replaced this one before its turn."""


class ActorStoppedError(UnavailableError):
    """The actor stopped before it handled the message."""

    actor: tuple[str, str] | None = None
    """Kind and id of the actor whose mailbox refused the message; None if another server says it."""


class ActorElsewhereError(UnavailableError):
    """Another server owns the actor; the message was not delivered."""

    actor: tuple[str, str] | None = None
    """As in `ActorStoppedError`."""


def stopped(kind: str, actor_id: str) -> ActorStoppedError:
    """The error of a message to an actor that stops."""
    error = ActorStoppedError(f"{kind}/{actor_id} is stopping")
    error.actor = (kind, actor_id)
    return error


def elsewhere(kind: str, actor_id: str) -> ActorElsewhereError:
    """The error of a message to an actor of another server."""
    error = ActorElsewhereError(f"{kind}/{actor_id} belongs to another server")
    error.actor = (kind, actor_id)
    return error


class ActorParkedError(UnavailableError):
    """The actor crashed too often and handles nothing until it is revived."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"parked: {reason}", retry_after_s=30)
        self.reason = reason


class AskTimeoutError(OutcomeUnknownError):
    """No answer came before the deadline; the actor may still handle the command."""


class TurnLostError(OutcomeUnknownError):
    """The turn that handled the message ended without an answer."""


class ReloadRequestedError(Exception):
    """Asks the kernel to drop the behaviour's memory and load it again; not counted as a crash.

    Args:
        retry: Put the message of this turn back and handle it after the load. Only for a message that had no
            effect, as after a version conflict. Otherwise the message is answered with `TurnLostError`.
    """

    def __init__(self, message: str = "", *, retry: bool = False) -> None:
        super().__init__(message)
        self.retry = retry


class AskCycleError(InvariantError):
    """Actors wait for each other's answers in a cycle; the message lists the cycle."""
