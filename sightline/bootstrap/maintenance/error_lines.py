"""Errors of commands as lines on stderr: text, or with --json the error envelope of the API as far as it applies."""

import json
import sys


def print_error(message: str, *, code: str, as_json: bool) -> None:
    """Print one line on stderr.

    Args:
        code: Code of the server's refusal, or the name of the command's own error.
    """
    sys.stderr.write((json.dumps({"code": code, "message": message}) if as_json else message) + "\n")


def print_warning(message: str, *, as_json: bool) -> None:
    """Print one line on stderr that says what is not an error."""
    sys.stderr.write((json.dumps({"warning": message}) if as_json else message) + "\n")
