"""Whether this installation can sign frames as the settings want."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Final

from sightline.bootstrap.failures.errors import StartError
from sightline.config import Settings


def signing_problem(settings: Settings, find: Callable[[str], object] = find_spec) -> str | None:
    """Return why this installation cannot sign frames as the settings want; None if it can, or need not."""
    if settings.frame_signing == "off" or find("c2pa") is not None:
        return None
    return f"SIGHTLINE_FRAME_SIGNING={settings.frame_signing} needs a library that is not installed"


SIGNING_REMEDY: Final = "pip install 'sightline-live[c2pa]', or set SIGHTLINE_FRAME_SIGNING=off"


def require_signing(settings: Settings, find: Callable[[str], object] = find_spec) -> None:
    """Refuse to start if frames shall be signed and cannot be.

    Raises:
        StartError: The extra `c2pa` is not installed.
    """
    problem = signing_problem(settings, find)
    if problem is not None:
        raise StartError(f"{problem}: {SIGNING_REMEDY}.")
