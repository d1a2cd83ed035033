"""What the supervisor gives to a worker, as one line of JSON on the worker's stdin: no secret is on a command line."""

import json
import os
from pathlib import Path
from typing import Any, Final, final

from pydantic import SecretStr

from sightline.bootstrap.failures.errors import StartError
from sightline.config import Settings
from sightline.domain.value import Value, hiding

DATABASE_CONNECTIONS: Final = 40
"""Shared by the workers, unless SIGHTLINE_DATABASE_POOL is set."""
DATABASE_POOL_MIN: Final = 4


@final
class Handover(Value, kw_only=True):
    """What the supervisor tells one worker at its start."""

    settings: Settings
    incarnation: str
    """Names this run of the worker, so that the supervisor can end its lease and no later one."""
    directory: Path
    """The worker's own directory, which it locks. The data directory in the settings is the supervisor's."""
    public_url: str
    public_socket: int
    """Descriptor of the listening socket that all workers share."""
    internal_socket: int | None
    """Descriptor of the internal listener; None: the worker chooses a free port."""

    __repr__ = hiding("settings")

    def dump(self) -> bytes:
        """Write it as one line."""
        return (
            json.dumps(
                {
                    "settings": {name: _plain(value) for name, value in self.settings},
                    "incarnation": self.incarnation,
                    "directory": str(self.directory),
                    "public_url": self.public_url,
                    "public_socket": self.public_socket,
                    "internal_socket": self.internal_socket,
                }
            ).encode()
            + b"\n"
        )

    @classmethod
    def load(cls, line: bytes) -> "Handover":
        """Read what `dump` wrote."""
        given: dict[str, Any] = json.loads(line)
        values = given.pop("settings")
        # The certificate that the supervisor issued is among the settings, where both are refused together.
        tls_auto = values.pop("tls_auto")
        settings = Settings.model_validate(values).model_copy(update={"tls_auto": tls_auto})
        return cls(settings=settings, directory=Path(given.pop("directory")), **given)


def settings_of_worker(settings: Settings, number: int) -> Settings:
    """The settings of one worker: its share of database connections, media processes and UDP ports, and its TCP port.

    Args:
        number: From 1.

    Raises:
        StartError: There are fewer UDP ports than workers.
    """
    count = settings.workers
    changes: dict[str, Any] = {
        "video_workers": max(1, (settings.video_workers or os.cpu_count() or 1) // count),
        "secrets_file": settings.secrets_path,
    }
    if "database_pool" not in settings.model_fields_set:
        changes["database_pool"] = max(DATABASE_POOL_MIN, DATABASE_CONNECTIONS // count)
    if settings.video_tcp_port > 0:
        changes["video_tcp_port"] = settings.video_tcp_port + number - 1
    if settings.video_udp_port_min:
        first, ports = settings.video_udp_port_min, settings.video_udp_port_max - settings.video_udp_port_min + 1
        if ports < count:
            raise StartError(
                f"{ports} UDP ports are too few for {count} workers. Set SIGHTLINE_VIDEO_UDP_PORT_MIN and "
                "SIGHTLINE_VIDEO_UDP_PORT_MAX to a larger range."
            )
        share = ports // count
        changes["video_udp_port_min"] = first + (number - 1) * share
        changes["video_udp_port_max"] = first + number * share - 1
    return settings.model_copy(update=changes)


def _plain(value: object) -> object:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return str(value) if isinstance(value, Path) else value
