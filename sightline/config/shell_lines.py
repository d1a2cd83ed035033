"""Commands of `sightline` as messages name them: whole, so that a shell runs them as they are printed."""

import os
import shlex
from typing import Final

from sightline.config.settings import Settings

VARIABLES: Final = ("SIGHTLINE_DATA_DIR", "SIGHTLINE_CONFIG")
"""What may name another data directory for a command without --data-dir."""


def shell_line(settings: Settings, *words: str) -> str:
    """Return a command on the data directory of these settings, quoted for a shell.

    It has --config as the command that prints it, and --data-dir unless the directory is the one that a command uses
    when nothing names another.
    """
    is_default = settings.data_dir == Settings.model_fields["data_dir"].default.absolute()
    if is_default and settings.config_file is None and not any(os.environ.get(name) for name in VARIABLES):
        return shlex.join(("sightline", *words))
    config = () if settings.config_file is None else ("--config", str(settings.config_file))
    return placed_line(settings, *words, *config)


def placed_line(settings: Settings, *words: str) -> str:
    """Return a command with --data-dir always, for a shell in a directory that is not known."""
    return shlex.join(("sightline", *words, "--data-dir", str(settings.data_dir)))


def faucet_line(settings: Settings, address: str, usdc: int) -> str:
    """Return the command that gives an account test USDC. A server does not know the directory of who reads it."""
    return placed_line(settings, "faucet", address, str(usdc))
