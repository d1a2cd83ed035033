"""Options that many commands have."""

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON; lists have one object a line.")]
Url = Annotated[str | None, typer.Option("--api", help="URL of the server; default: SIGHTLINE_URL.")]
