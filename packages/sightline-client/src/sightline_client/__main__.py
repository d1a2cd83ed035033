"""The command `sightline`, also as `python -m sightline_client`."""

import sys

from sightline_client.errors import MissingExtraError


def main() -> None:
    """Run the command with the commands of all installed packages."""
    try:
        from sightline_client.commands import application, installed_commands
    except MissingExtraError as error:
        sys.exit(str(error))
    application(*installed_commands())()


if __name__ == "__main__":
    main()
