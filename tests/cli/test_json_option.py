"""Every command that prints data prints it as JSON on request."""

import typer
from typer.core import TyperGroup

from sightline.cli import app
from sightline_client.commands import application

WITHOUT = {
    "serve": "prints one line, `ready URL`",
    "publish": "prints no data",
    "device": "prints no data; its log is JSON",
    "fleet": "writes files",
    "write-off": "prints no data",
    "backup": "writes a file",
    "restore": "writes a directory",
    "demo": "is for people",
    "claim": "prints one line, the hash of the transaction",
    "reclaim": "prints one line, the hash of the transaction",
}
"""Commands without the option, and why. `admin` prints JSON always."""


def test_every_command_that_prints_data_takes_json() -> None:
    root = typer.main.get_command(application(app))
    assert isinstance(root, TyperGroup)
    without = set()
    for name, command in root.commands.items():
        parts = command.commands if isinstance(command, TyperGroup) else {"": command}
        for part, each in parts.items():
            if name != "admin" and not any("--json" in parameter.opts for parameter in each.params):
                without.add(f"{name} {part}".strip())
    assert without == WITHOUT.keys()
