"""Tables of the commands. A cell that is too narrow for a value breaks it over lines and leaves nothing of it out."""

import sys
from collections.abc import Collection
from typing import Final

from rich.console import Console
from rich.table import Table

PLAIN_WIDTH: Final = 200
"""Width of the output, in columns, when stdout is not a terminal."""


def open_console() -> Console:
    """What prints to stdout."""
    return Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)


def table_of(*titles: str, right: Collection[str] = ()) -> Table:
    """Make a table with these columns, of which some are flush right."""
    table = Table()
    for title in titles:
        table.add_column(title, justify="right" if title in right else "left", overflow="fold")
    return table
