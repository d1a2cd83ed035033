"""The demo's ledger of checks: each says what was expected and what came."""

from dataclasses import dataclass
from typing import final

from rich.console import Console
from rich.table import Table


class CheckFailedError(Exception):
    """A check of the demo did not hold."""


@final
@dataclass(frozen=True, slots=True)
class Check:
    """One check that held."""

    claim: str
    value: str


@final
class Checks:
    """Collects checks, prints each as it is made."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.held: list[Check] = []

    def equal(self, claim: str, came: object, expected: object) -> None:
        """Hold that two things are the same.

        Raises:
            CheckFailedError: They are not.
        """
        if came != expected:
            raise CheckFailedError(f"{claim}: expected {expected!r}, came {came!r}")
        self.note(claim, str(came))

    def true(self, claim: str, holds: bool, came: object) -> None:
        """Hold that something is so.

        Raises:
            CheckFailedError: It is not.
        """
        if not holds:
            raise CheckFailedError(f"{claim}: came {came!r}")
        self.note(claim, str(came))

    def note(self, claim: str, value: str) -> None:
        """Write down what held."""
        self.held.append(Check(claim, value))
        self._console.print(f"  [green]ok[/] {claim}: [bold]{value}[/]", highlight=False)

    def table(self) -> Table:
        """All of them."""
        table = Table(title="Sightline demo", title_justify="left")
        table.add_column("check")
        table.add_column("value", overflow="fold")
        for check in self.held:
            table.add_row(check.claim, check.value)
        return table
