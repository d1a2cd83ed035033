"""Load the settings from the command line, the environment and a TOML file, in this order of precedence."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias, final

from pydantic import ValidationError

from sightline.config.problems import ENVIRONMENT_PREFIX, SettingsError, nearest, validation_lines, variable
from sightline.config.settings import Settings
from sightline.domain.value import Value

CONFIG_VARIABLE: Final = "SIGHTLINE_CONFIG"
OTHER_VARIABLES: Final = frozenset(
    {
        CONFIG_VARIABLE,
        "SIGHTLINE_API_KEY",
        "SIGHTLINE_URL",
        "SIGHTLINE_WALLET_KEY",
        "SIGHTLINE_DEPLOYER_KEY",
        "SIGHTLINE_OPERATOR",
        "SIGHTLINE_SOURCE",
    }
)
"""Variables with the prefix SIGHTLINE_ that are not settings of the server."""
CLIENT_TABLE: Final = "client"
"""Table of the settings file that the server ignores: server and keys of commands such as `sightline watch`."""
TEST_PREFIXES: Final = ("SIGHTLINE_TEST_", "SIGHTLINE_KILL_")
"""Variables of the test suite."""

Source: TypeAlias = str
"""Source of a value: "default", "command line", "environment" or the path of the file."""


@final
class LoadedSettings(Value, kw_only=True):
    """Valid settings, the source of each value, and warnings to print."""

    settings: Settings
    sources: Mapping[str, Source]
    warnings: tuple[str, ...]


def load_settings(
    environment: Mapping[str, str], *, config_file: Path | None = None, overrides: Mapping[str, Any] | None = None
) -> LoadedSettings:
    """Read, merge and validate the settings.

    Args:
        config_file: TOML file; default: the one that SIGHTLINE_CONFIG names, if any.
        overrides: Settings from the command line; None means not given.

    Raises:
        SettingsError: The file cannot be read, a name is unknown or misspelt, or a value is invalid.
    """
    named = environment.get(CONFIG_VARIABLE)
    path = config_file or (Path(named) if named else None)
    layers: list[tuple[Source, dict[str, Any]]] = []
    problems: list[str] = []
    warnings: list[str] = []
    if path is not None:
        layers.append((str(path), _from_file(path, problems)))
    layers.append(("environment", _from_environment(environment, problems, warnings)))
    layers.append(("command line", {name: value for name, value in (overrides or {}).items() if value is not None}))

    values: dict[str, Any] = {}
    sources: dict[str, Source] = dict.fromkeys(Settings.model_fields, "default")
    for source, layer in layers:
        values |= layer
        sources |= dict.fromkeys(layer, source)
    try:
        settings = Settings.model_validate(values).named_by(config_file)
    except ValidationError as error:
        problems += validation_lines(error, {name: _as_written(name, sources[name]) for name in values})
    else:
        if not problems:
            return LoadedSettings(settings=settings, sources=sources, warnings=tuple(warnings))
    raise SettingsError(problems)


def _from_file(path: Path, problems: list[str]) -> dict[str, Any]:
    """Read the settings of a TOML file: top-level keys, named like the variables in lower case without prefix.

    The table [client] is left out.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise SettingsError(
            [f"Cannot read the settings file {path}: {reason}. Correct --config or {CONFIG_VARIABLE}."]
        ) from error
    found.pop(CLIENT_TABLE, None)
    for name in found.keys() - Settings.model_fields.keys():
        near = nearest(name, Settings.model_fields)
        hint = f"Did you mean {near}?" if near else "`sightline config` lists the settings."
        problems.append(f"{name} in {path} is not a setting. {hint}")
    return {name: value for name, value in found.items() if name in Settings.model_fields}


def _from_environment(environment: Mapping[str, str], problems: list[str], warnings: list[str]) -> dict[str, str]:
    """Read the settings of the environment. A misspelt name is refused.

    An unknown name that is not similar to a setting only causes a warning: Kubernetes sets variables such as
    SIGHTLINE_SERVICE_HOST in every container when a service is called "sightline". An empty variable counts as
    not set, as compose files expect.
    """
    known = {variable(name): name for name in Settings.model_fields}
    found: dict[str, str] = {}
    for given, value in sorted(environment.items()):
        if given in known:
            if value:
                found[known[given]] = value
        elif given.startswith(ENVIRONMENT_PREFIX) and not (given in OTHER_VARIABLES or given.startswith(TEST_PREFIXES)):
            near = nearest(given.removeprefix(ENVIRONMENT_PREFIX), Settings.model_fields)
            if near:
                problems.append(f"{given} is not a setting. Did you mean {variable(near)}?")
            else:
                warnings.append(f"{given} is not a setting and has no effect. `sightline config` lists the settings.")
    return found


def _as_written(name: str, source: Source) -> str:
    if source == "environment":
        return variable(name)
    if source == "command line":
        return "--" + name.replace("_", "-")
    return f"{name} in {source}"
