"""Where the server of a data directory listens, for the commands that speak to a running one."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

FILE_NAME: Final = "server.json"


@final
@dataclass(frozen=True, slots=True)
class Whereabouts:
    """The addresses of the server that last became ready here; it may be gone."""

    url: str
    internal_url: str


def write_whereabouts(data_dir: Path, *, url: str, internal_url: str) -> None:
    """Say where we listen."""
    draft = data_dir / f"{FILE_NAME}.new"
    draft.write_text(json.dumps({"pid": os.getpid(), "url": url, "internalUrl": internal_url}))
    draft.replace(data_dir / FILE_NAME)


def read_whereabouts(data_dir: Path) -> Whereabouts | None:
    """Where the server listens; None if none ever became ready here."""
    try:
        stored = json.loads((data_dir / FILE_NAME).read_text())
    except FileNotFoundError:
        return None
    return Whereabouts(stored["url"], stored["internalUrl"])
