"""Error messages about settings: one line each, with the name as the user wrote it and what to change."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from pydantic import ValidationError

ENVIRONMENT_PREFIX: Final = "SIGHTLINE_"
NEAR: Final = 0.8
"""Similarity (difflib ratio) from which an unknown name counts as misspelt."""


class SettingsError(Exception):
    """The settings are invalid. `lines` holds one message for each problem."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("; ".join(self.lines))


def variable(name: str) -> str:
    """Return the name of a setting's environment variable."""
    return ENVIRONMENT_PREFIX + name.upper()


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the setting whose name is most similar to an unknown name; None if no name is similar enough.

    The names of the variables are compared: their common prefix makes short names such as `prot` and `port` similar
    enough.
    """
    by_variable = {variable(setting): setting for setting in known}
    found = get_close_matches(variable(name), list(by_variable), n=1, cutoff=NEAR)
    return by_variable[found[0]] if found else None


def validation_lines(error: ValidationError, origins: dict[str, str]) -> list[str]:
    """Write one line for each invalid setting. Values are left out, because some of them are secrets.

    Args:
        origins: How the user wrote each setting that was given ("SIGHTLINE_PORT", "port in FILE", "--port").
    """
    from sightline_client.wording import in_words  # a start with valid settings does without it

    lines = []
    for problem in error.errors(include_url=False, include_input=False, include_context=False):
        message = in_words(problem["msg"])
        if problem["loc"]:
            name, *inner = (str(part) for part in problem["loc"])
            where = origins.get(name, variable(name)) + "".join(f"[{part}]" for part in inner)
            message = f"{where}: {message[:1].lower()}{message[1:]}."
        lines.append(message)
    return lines
