"""Python client of Sightline: request live video of a place, read frames, pay per clean second.

`AsyncSightline` works with trio and asyncio, `Sightline` without an event loop.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sightline_client.public import *  # noqa: F403


def __dir__() -> list[str]:
    """List the public names too, without importing their dependencies before they are asked for."""
    return sorted({*globals(), *import_module("sightline_client.public").__all__})


def __getattr__(name: str) -> object:
    """Import the public names at the first use: that takes 0.5 s, and the commands and the publisher need none."""
    return getattr(import_module("sightline_client.public"), name)
