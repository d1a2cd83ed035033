"""What an ask can raise besides its answer.

UnavailableError            surely nothing happened; try again later
+-- OverloadedError         the mailbox is full
+-- SupersededError         a newer message with the same conflate key took its place in a full mailbox
+-- ActorStoppedError       the actor or the whole kernel is stopping
+-- ActorParkedError        the actor failed too often and waits for `revive`
OutcomeUnknownError         it may have happened; ask again with the same command id
+-- AskTimeoutError         the deadline passed
+-- TurnLostError           the turn that held the message crashed or was cut short
ReloadRequestedError        raised by a behaviour: forget the memory, load again, go on
AskCycleError               test mode: actors wait for each other in a circle
"""

from sightline.domain.errors import InvariantError, OutcomeUnknownError, UnavailableError


class OverloadedError(UnavailableError):
    """The mailbox is full; the message was not taken."""


class SupersededError(UnavailableError):
    """A newer message with the same conflate key replaced this one before its turn."""


class ActorStoppedError(UnavailableError):
    """The actor stopped before the message had its turn."""


class ActorParkedError(UnavailableError):
    """The actor crashed too often and does no work until it is revived."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"parked: {reason}", retry_after_s=30)
        self.reason = reason


class AskTimeoutError(OutcomeUnknownError):
    """No answer came before the deadline; the command may still be carried out."""


class TurnLostError(OutcomeUnknownError):
    """The turn that handled the message ended without an answer."""


class ReloadRequestedError(Exception):
    """A behaviour's wish to be loaded again from the store; not a crash.

    Args:
        retry: Put the message of this turn back and handle it after the load. Only where it surely had no
            effect, as with a version conflict. Otherwise the message is answered `TurnLostError`.
    """

    def __init__(self, message: str = "", *, retry: bool = False) -> None:
        super().__init__(message)
        self.retry = retry


class AskCycleError(InvariantError):
    """Actors wait for each other's replies in a circle; the message names it."""
