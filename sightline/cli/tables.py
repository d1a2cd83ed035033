"""Tables of the commands: with lines at a terminal, else plain columns, as other programs read them.

A cell that is too narrow at a terminal breaks its value over lines and leaves nothing of it out.
"""

import sys
from collections.abc import Collection
from typing import Final, final

from rich.console import Console
from rich.table import Table
from typing_extensions import override

PLAIN_WIDTH: Final = 200
"""Width of the output, in columns, when stdout is not a terminal."""


@final
class PipeConsole(Console):
    """Raises BrokenPipeError if the reader of stdout wants no more, as other output of the commands does."""

    @override
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def open_console() -> Console:
    """What prints to stdout."""
    return PipeConsole(width=None if sys.stdout.isatty() else PLAIN_WIDTH)


def print_table(table: Table) -> None:
    """Print a table to stdout."""
    if sys.stdout.isatty():
        open_console().print(table)
        return
    columns = [[" ".join(str(cell).split()) for cell in (column.header, *column.cells)] for column in table.columns]
    widths = [max(map(len, cells)) for cells in columns]
    is_right = [column.justify == "right" for column in table.columns]
    for row in zip(*columns, strict=True):
        cells = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, is_right, strict=True)
        )
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


def table_of(*titles: str, right: Collection[str] = ()) -> Table:
    """Make a table with these columns, of which some are flush right."""
    table = Table()
    for title in titles:
        table.add_column(title, justify="right" if title in right else "left", overflow="fold")
    return table
