"""Errors of a start, and the setting that caused one."""

from collections.abc import Iterator
from contextlib import contextmanager


class StartError(Exception):
    """The server cannot start. The message is one line that says what to change."""


class TakenOverError(Exception):
    """Another server has taken over the database of this one."""


def leaves_of(error: BaseException) -> list[BaseException]:
    """Return the errors inside nested exception groups."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves_of(inner)]
    return [error]


@contextmanager
def check_setting(name: str) -> Iterator[None]:
    """Turn an error that a setting's value causes into a StartError that names the setting.

    Raises:
        StartError: The block raised an OSError, a ValueError or an ImportError.
    """
    try:
        yield
    except (OSError, ValueError, ImportError) as error:
        raise StartError(f"{name} cannot be used: {reason_of(error)}.") from error


def reason_of(error: Exception) -> str:
    """What the operating system or a library says of it, without the full stop."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror + (f": {error.filename}" if error.filename else "")
    return str(error).rstrip(".") or type(error).__name__
