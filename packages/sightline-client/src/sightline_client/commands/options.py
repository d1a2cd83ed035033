"""Options that many commands have."""

import re
from typing import Annotated, Any, Final, final

import typer
from typer.core import TyperCommand

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON; lists have one object a line.")]
Url = Annotated[str | None, typer.Option("--api", help="URL of the server; default: SIGHTLINE_URL.")]

_NEGATIVE: Final = re.compile(r"-\.?\d\S*", re.ASCII)


@final
class PlaceCommand(TyperCommand):
    """A command with coordinates as arguments, which may be negative: `-33.86` is no option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse; a number with a space before it is read as a number and not as an option."""
        return super().parse_args(ctx, [f" {each}" if _NEGATIVE.fullmatch(each) else each for each in args])
