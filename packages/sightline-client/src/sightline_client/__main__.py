"""The command `sightline`, also as `python -m sightline_client`."""

import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer


def main() -> None:
    """Run the command with the commands of all installed packages."""
    try:
        _application()()
    except KeyboardInterrupt:  # during the imports, which take half a second, or again while the command ends
        sys.exit(130)
    finally:
        # The interpreter would print a traceback of one that comes while it exits.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _application() -> "typer.Typer":
    from sightline_client.errors import MissingExtraError

    try:
        from sightline_client.commands import application, installed_commands
    except MissingExtraError as error:
        sys.exit(str(error))
    return application(*installed_commands())


if __name__ == "__main__":
    main()
