"""Options that many commands have, and the settings that they select."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from sightline.config import LoadedSettings, Settings

HOST: Final = "Host"
DEVELOP: Final = "Try and develop"
"""Headings of `sightline --help`."""
DataDir = Annotated[Path | None, typer.Option(help="Data directory; default: SIGHTLINE_DATA_DIR or sightline-data.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="TOML file with settings; default: SIGHTLINE_CONFIG. See `config`.")
]


def load(config_file: Path | None, **overrides: object) -> "LoadedSettings":
    """Load the settings and print the warnings about them.

    Raises:
        typer.Exit: The settings are invalid; stderr has one line for each problem.
    """
    from sightline.config import SettingsError, load_settings

    try:
        loaded = load_settings(os.environ, config_file=config_file, overrides=overrides)
    except SettingsError as error:
        for line in error.lines:
            typer.echo(line, err=True)
        raise typer.Exit(1) from None
    for line in loaded.warnings:
        typer.echo(line, err=True)
    return loaded


def settings_of(config_file: Path | None, **overrides: object) -> "Settings":
    """Load the settings; see `load`."""
    return load(config_file, **overrides).settings
