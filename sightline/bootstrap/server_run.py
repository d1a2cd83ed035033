"""Settings, secrets and sockets of one run of a server."""

from pathlib import Path
from typing import final

from sightline.bootstrap.listeners.ports import Ports
from sightline.config import Settings
from sightline.domain.value import Value
from sightline.system.secrets import Secrets


@final
class RunOptions(Value, kw_only=True):
    """What one run of a server begins with."""

    settings: Settings
    secrets: Secrets
    ports: Ports
    public_url: str
    worker_directory: Path | None = None
    """The directory that a worker has locked; None: this process holds the data directory."""
    incarnation: str | None = None
    """Names this run to the other servers; None: it chooses a name."""
