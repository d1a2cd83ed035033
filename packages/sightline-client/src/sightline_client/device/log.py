"""The log of a device: one JSON line per event on stderr, as the server writes it."""

import json
import sys
from datetime import UTC, datetime

from sightline_client.runtime import unix_s


def log_line(event: str, /, **fields: object) -> None:
    """Write an event. Its level is info unless `level` is given."""
    at = datetime.fromtimestamp(unix_s(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = {"event": event, "level": "info", **fields, "timestamp": at}
    sys.stderr.write(json.dumps(line, default=str) + "\n")
    sys.stderr.flush()
