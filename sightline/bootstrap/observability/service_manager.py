"""Tells systemd when the server accepts calls, and that its event loop runs.

Source: sd_notify(3), sd_watchdog_enabled(3). Without systemd nothing is sent.
"""

import os
import socket
from collections.abc import MutableMapping
from typing import Final, final

import structlog
import trio

SECOND_US: Final = 1_000_000
SEND_TIMEOUT_S: Final = 1.0

log = structlog.get_logger("sightline")


@final
class ServiceManager:
    """The socket of the service manager, if this process was started by one that waits for notifications."""

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        """Read where to send notifications, and remove it from the environment: children must not send any."""
        address = environment.pop("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        pid, interval_us = environment.pop("WATCHDOG_PID", ""), environment.pop("WATCHDOG_USEC", "")
        is_ours = pid in ("", str(os.getpid()))
        self._watchdog_s = int(interval_us) / SECOND_US if is_ours and interval_us.isdigit() else 0.0

    def ready(self) -> None:
        """Say that the server accepts calls."""
        self._send("READY=1")

    async def keep_watchdog(self) -> None:
        """Say twice in each interval that the event loop runs; a loop that hangs is then ended and started again."""
        while self._watchdog_s:
            self._send("WATCHDOG=1")
            await trio.sleep(self._watchdog_s / 2)

    def _send(self, text: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.settimeout(SEND_TIMEOUT_S)
                sender.sendto(text.encode(), self._address)
        except OSError as error:
            log.warning("service_manager_not_told", said=text, error=str(error))
