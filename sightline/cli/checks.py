"""Assertions of the demo: each records the expected and the actual value."""

from typing import final

from rich.console import Console
from rich.table import Table

from sightline.domain.value import Value


class CheckFailedError(Exception):
    """A check of the demo failed."""


@final
class Check(Value):
    """A check that passed."""

    claim: str
    value: str


@final
class Checks:
    """Collects the checks and prints each one as it is made."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.held: list[Check] = []

    def equal(self, claim: str, came: object, expected: object) -> None:
        """Check that two values are equal.

        Raises:
            CheckFailedError: They differ.
        """
        if came != expected:
            raise CheckFailedError(f"{claim}: expected {expected!r}, came {came!r}")
        self.note(claim, str(came))

    def true(self, claim: str, holds: bool, came: object) -> None:
        """Check that a condition is true.

        Raises:
            CheckFailedError: It is false.
        """
        if not holds:
            raise CheckFailedError(f"{claim}: came {came!r}")
        self.note(claim, str(came))

    def note(self, claim: str, value: str) -> None:
        """Record a check that passed."""
        self.held.append(Check(claim, value))
        self._console.print(f"  [green]ok[/] {claim}: [bold]{value}[/]", highlight=False)

    def table(self) -> Table:
        """Render all checks as a table."""
        table = Table(title="Sightline demo", title_justify="left")
        table.add_column("check", overflow="fold")
        table.add_column("value", overflow="fold")
        for check in self.held:
            table.add_row(check.claim, check.value)
        return table
