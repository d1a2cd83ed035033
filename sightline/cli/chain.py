"""The `sightline chain` commands."""

import typer

from sightline.cli.options import ConfigFile, DataDir, settings_of
from sightline_client.commands.options import AsJson

app = typer.Typer(no_args_is_help=True)


@app.callback()
def chain() -> None:
    """Check the chain that the settings name."""


@app.command()
def check(as_json: AsJson = False, data_dir: DataDir = None, config: ConfigFile = None) -> None:
    """Say what is wrong with endpoints, contracts, keys and depth, and what to do. Changes nothing."""
    from sightline.bootstrap.maintenance.chain_checks import run_chain_check

    raise typer.Exit(
        run_chain_check(settings_of(config, as_json=as_json, data_dir=data_dir), as_json=as_json, say=typer.echo)
    )
