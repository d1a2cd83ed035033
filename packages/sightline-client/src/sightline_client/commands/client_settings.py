"""Settings of the commands that call a server: the environment, then the table [client] of a TOML file."""

import os
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final, final

CONFIG_VARIABLE: Final = "SIGHTLINE_CONFIG"
TABLE: Final = "client"
VARIABLES: Final = {"url": "SIGHTLINE_URL", "api_key": "SIGHTLINE_API_KEY", "wallet_key": "SIGHTLINE_WALLET_KEY"}
"""Variable that overrides each name of the table."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Server and credentials; None: not set."""

    url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    wallet_key: str | None = field(default=None, repr=False)


def load_client_settings() -> ClientSettings:
    """Read the environment and the file of SIGHTLINE_CONFIG, else ~/.config/sightline.toml if it exists.

    The file may also hold settings of the server; only its table [client] is read.

    Raises:
        ValueError: The file cannot be read, or the table has an unknown name or a value that is not text.
    """
    values = dict(_from_file())
    values |= {name: value for name, variable in VARIABLES.items() if (value := os.environ.get(variable))}
    return ClientSettings(**values)


def _from_file() -> dict[str, str]:
    named = os.environ.get(CONFIG_VARIABLE)
    path = settings_path()
    if not named and not path.exists():
        return {}
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")).get(TABLE, {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ValueError(f"Cannot read {path}: {reason}. Correct the file or {CONFIG_VARIABLE}.") from error
    known = [each.name for each in fields(ClientSettings)]
    if not isinstance(table, dict):
        raise ValueError(f"{TABLE} in {path} is not a table. Write [{TABLE}] and below it {', '.join(known)}.")
    for name, value in table.items():
        if name not in known or not isinstance(value, str):
            raise ValueError(f"[{TABLE}] {name} in {path} is not a text setting. Use {', '.join(known)}.")
    return table


def settings_path() -> Path:
    """The file that is read: of SIGHTLINE_CONFIG, else ~/.config/sightline.toml."""
    named, home = os.environ.get(CONFIG_VARIABLE), os.environ.get("XDG_CONFIG_HOME")
    return Path(named) if named else (Path(home) if home else Path.home() / ".config") / "sightline.toml"
