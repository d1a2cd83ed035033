"""The `sightline secrets` commands."""

from typing import Annotated

import typer

from sightline.cli.options import ConfigFile, DataDir, settings_of

app = typer.Typer(no_args_is_help=True)


@app.callback()
def secrets() -> None:
    """Replace the server's secrets, as in an emergency stop for API keys."""


@app.command()
def accept(
    is_confirmed: Annotated[bool, typer.Option("--yes", help="Do not ask before something is changed.")] = False,
    data_dir: DataDir = None,
    config: ConfigFile = None,
) -> None:
    """While all servers are stopped: use the database with the present secrets file, which was changed on purpose.

    A start with other secrets than before is refused, because a new pepper ends every API key.
    """
    from sightline.bootstrap.maintenance.accept_secrets import run_accept_secrets

    def confirm(question: str) -> bool:
        return is_confirmed or typer.confirm(question, err=True)

    raise typer.Exit(run_accept_secrets(settings_of(config, data_dir=data_dir), confirm))
