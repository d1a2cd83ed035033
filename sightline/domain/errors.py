"""The tree of errors. Each class says who has to act.

SightlineError
+-- RefusedError          the caller: the call was understood and refused; carries a stable code
+-- UnavailableError      a dependency: surely nothing happened, try again later
|   +-- StoreUnavailableError
|   +-- VideoUnavailableError
|   +-- ChainUnavailableError
|   +-- AuthzUnavailableError
|   +-- BusUnavailableError
+-- OutcomeUnknownError   the outcome is not known: repeat the call with the same key
+-- InvariantError        us: a bug; the actor crashes and is reloaded
    +-- DependencyRefusedError   us, or who changed the dependency: a parked actor tries again by itself
"""

from sightline.domain.refusal import Refusal


class SightlineError(Exception):
    """Base of every error that Sightline raises on purpose."""


class RefusedError(SightlineError):
    """A command was refused; nothing changed."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(f"{refusal.code}: {refusal.message}")
        self.refusal = refusal


class UnavailableError(SightlineError):
    """A dependency did not answer and surely nothing happened."""

    def __init__(self, message: str = "", *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class StoreUnavailableError(UnavailableError):
    """The database was not reached; nothing was written."""


class VideoUnavailableError(UnavailableError):
    """The video backend did not do what was asked; nothing changed."""


class ChainUnavailableError(UnavailableError):
    """The chain's endpoint did not answer."""


class AuthzUnavailableError(UnavailableError):
    """The authorization graph did not answer."""


class BusUnavailableError(UnavailableError):
    """No connection to the other servers."""


class OutcomeUnknownError(SightlineError):
    """The write was sent and its answer was lost: it may or may not have happened."""


class InvariantError(SightlineError):
    """Something that must hold does not: our bug, never the caller's."""


class DependencyRefusedError(InvariantError):
    """A dependency refused what it was sent: our bug, or a state of the dependency that a person may repair."""
