"""Sightline brokers on-demand live video: dispatch, proof of presence, video, metering, settlement."""

# The text above is what `sightline --help` shows. Each command imports its modules when it runs, so that this is fast.
from importlib.util import find_spec

from sightline_client.errors import MissingExtraError

if find_spec("typer") is None:
    raise MissingExtraError("cli")

from importlib.metadata import entry_points, version
from typing import Annotated, Final

import typer

from sightline_client.commands import escrow, film, funds, receipts, sessions, watch
from sightline_client.commands.options import ProgramGroup

GROUP: Final = "sightline.commands"
"""Entry points of packages that add commands: a typer application each, such as that of the server."""


def installed_commands() -> list[typer.Typer]:
    """Load the commands that other installed packages add."""
    return [found.load() for found in entry_points(group=GROUP)]


def application(*more: typer.Typer) -> typer.Typer:
    """Make the command of consumers and devices, with more commands."""
    app = typer.Typer(cls=ProgramGroup, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
    app.callback()(_common)
    for commands in (watch.app, sessions.app, funds.app, receipts.app, film.app, escrow.app, *more):
        app.add_typer(commands)
    return app


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"sightline {version('sightline-client')}")  # the server requires the same version
        raise typer.Exit


def _common(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options before the command name."""
