"""The command `sightline`, also as `python -m sightline_client`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer


def main() -> None:
    """Run the command with the commands of all installed packages."""
    try:
        application = _application()
    except KeyboardInterrupt:  # during the imports, which take half a second; a command handles it afterwards
        sys.exit(130)
    application()


def _application() -> "typer.Typer":
    from sightline_client.errors import MissingExtraError

    try:
        from sightline_client.commands import application, installed_commands
    except MissingExtraError as error:
        sys.exit(str(error))
    return application(*installed_commands())


if __name__ == "__main__":
    main()
