"""The file `server.json` in the data directory: the server's addresses, for commands that call a running server."""

import json
import os
from pathlib import Path
from typing import Final, final

from sightline.domain.value import Value

FILE_NAME: Final = "server.json"


@final
class ServerAddresses(Value):
    """URLs of the server that was last ready on a data directory. It may have stopped since."""

    url: str
    internal_url: str


def write_server_addresses(data_dir: Path, *, url: str, internal_url: str) -> None:
    """Replace the file atomically."""
    draft = data_dir / f"{FILE_NAME}.new"
    draft.write_text(json.dumps({"pid": os.getpid(), "url": url, "internalUrl": internal_url}))
    draft.replace(data_dir / FILE_NAME)


def read_server_addresses(data_dir: Path) -> ServerAddresses | None:
    """Read the file. None if no server was ever ready on this directory."""
    try:
        stored = json.loads((data_dir / FILE_NAME).read_text())
    except FileNotFoundError:
        return None
    return ServerAddresses(stored["url"], stored["internalUrl"])
