"""Options that many commands have, and the settings that they select."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sightline.bootstrap.maintenance.error_lines import print_error, print_warning
from sightline.domain.value import replace

if TYPE_CHECKING:
    from sightline.config import LoadedSettings, Settings

HOST: Final = "Host"
DEVELOP: Final = "Try and develop"
"""Headings of `sightline --help`."""
DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Data directory, also that of `sightline dev`; default: SIGHTLINE_DATA_DIR, or sightline-data in the "
        "current directory."
    ),
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="TOML file with settings; default: SIGHTLINE_CONFIG. See `config`.")
]


def load(config_file: Path | None, *, as_json: bool = False, **overrides: object) -> "LoadedSettings":
    """Load the settings and print the warnings about them. The directory of `sightline dev` stands for its `data`.

    Raises:
        typer.Exit: The settings are invalid; stderr has one line for each problem.
    """
    from sightline.config import SettingsError, load_settings
    from sightline.system.data_directory import directory_of_server

    try:
        loaded = load_settings(os.environ, config_file=config_file, overrides=overrides)
    except SettingsError as error:
        for line in error.lines:
            print_error(line, code="SettingsError", as_json=as_json)
        raise typer.Exit(1) from None
    for line in loaded.warnings:
        print_warning(line, as_json=as_json)
    directory = directory_of_server(loaded.settings.data_dir)
    return replace(loaded, settings=loaded.settings.model_copy(update={"data_dir": directory}))


def settings_of(config_file: Path | None, *, as_json: bool = False, **overrides: object) -> "Settings":
    """Load the settings; see `load`."""
    return load(config_file, as_json=as_json, **overrides).settings
