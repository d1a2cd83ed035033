"""The server's own secrets: made once, kept in the data directory, readable by its owner alone."""

import base64
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

from sightline.ports.ids import Ids

FILE_NAME: Final = "secrets.json"
SECRET_BYTES: Final = 32


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """Random keys, 32 bytes each."""

    key_pepper: bytes = field(repr=False)
    """Enters the hash of API keys: change it and every key is void."""
    cookie_key: bytes = field(repr=False)
    """Signs session cookies."""
    token_key: bytes = field(repr=False)
    """Signs consistency tokens."""
    video_secret: bytes = field(repr=False)
    """What publish and play URLs derive from."""
    webhook_secret: bytes = field(repr=False)
    """Signs inbound video events."""


def load_secrets(data_dir: Path, ids: Ids) -> Secrets:
    """Read the secrets, or make them on the first start.

    Raises:
        ValueError: The file is there but lacks a secret; making a new one in silence would void what hangs on it.
    """
    path = data_dir / FILE_NAME
    names = list(Secrets.__dataclass_fields__)
    if not path.exists():
        made = {name: base64.b64encode(ids.token_bytes(SECRET_BYTES)).decode() for name in names}
        draft = path.with_suffix(".new")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as out:
            json.dump(made, out, indent=2)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(path)
    stored = json.loads(path.read_text())
    missing = [name for name in names if name not in stored]
    if missing:
        raise ValueError(f"{path} lacks {', '.join(missing)}")
    return Secrets(**{name: base64.b64decode(stored[name]) for name in names})
