"""Positions of a GPS receiver: from gpsd (JSON over TCP) or from NMEA 0183 lines of a serial device."""

import json
import os
from collections.abc import AsyncIterator
from functools import reduce
from operator import xor
from pathlib import Path
from typing import Final, final

import anyio
from anyio.abc import ByteReceiveStream
from anyio.lowlevel import checkpoint

from sightline_client.device.lines import LINE_BYTES_MAX, lines_of
from sightline_client.device.log import log_line
from sightline_client.operator import Position

GPSD_PORT: Final = 2947
WATCH: Final = b'?WATCH={"enable":true,"json":true};\n'
RETRY_S: Final = 2.0
FIRST_FIX_S: Final = 60.0
METRES_PER_HDOP: Final = 5.0
"""Usual error of a receiver with HDOP 1; NMEA has no accuracy in metres."""
UNKNOWN_ACCURACY_M: Final = 50.0
LOST_ACCURACY_M: Final = 1_000.0
"""Above SIGHTLINE_ACCURACY_MAX_METERS, so that the server does not take the position as proof."""


class NoFixError(Exception):
    """The receiver has no position."""


@final
class GpsReceiver:
    """Follows a receiver and keeps its newest position. Run `follow` in a task group."""

    def __init__(self, source: str) -> None:
        """`source` is `gpsd://HOST[:PORT]` or the path of a serial device."""
        self._source = source
        self._latest: Position | None = None
        self._fixed = anyio.Event()

    def position(self) -> Position:
        """The newest position. After the receiver was lost it has a large accuracy radius and proves nothing.

        Raises:
            NoFixError: There was none yet.
        """
        if self._latest is None:
            raise NoFixError(f"{self._source} has no position yet")
        return self._latest

    async def await_first(self) -> None:
        """Wait for the first position.

        Raises:
            NoFixError: None came within FIRST_FIX_S.
        """
        with anyio.move_on_after(FIRST_FIX_S):
            await self._fixed.wait()
            return
        raise NoFixError(f"{self._source} gave no position within {FIRST_FIX_S:g} s")

    async def follow(self) -> None:
        """Read positions until cancelled; reconnect when the receiver is lost."""
        while True:
            try:
                async for line in self._lines():
                    self._take(parse_gpsd(line) if line.startswith(b"{") else parse_nmea(line))
            except (OSError, anyio.BrokenResourceError) as error:
                log_line("gps_lost", level="warning", source=self._source, error=str(error))
            # Without a receiver the last position is not proof of presence: report it as inaccurate.
            if self._latest is not None:
                self._latest = Position(
                    lat=self._latest.lat, lng=self._latest.lng, accuracy_m=LOST_ACCURACY_M, source="GPS"
                )
            await anyio.sleep(RETRY_S)

    def _take(self, position: Position | None) -> None:
        if position is not None:
            self._latest = position
            self._fixed.set()

    async def _lines(self) -> AsyncIterator[bytes]:
        stream = await self._open()
        async with stream:
            async for line in lines_of(stream):
                yield line

    async def _open(self) -> ByteReceiveStream:
        if not self._source.startswith("gpsd://"):
            return SerialStream(Path(self._source))
        host, _, port = self._source.removeprefix("gpsd://").partition(":")
        stream = await anyio.connect_tcp(host, int(port or GPSD_PORT))
        await stream.send(WATCH)
        return stream


@final
class SerialStream(ByteReceiveStream):
    """Bytes of a serial device."""

    def __init__(self, path: Path) -> None:
        """Open the device.

        Raises:
            OSError: It does not exist, or this account may not read it.
        """
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)

    async def receive(self, max_bytes: int = LINE_BYTES_MAX) -> bytes:
        """Wait for bytes; see ByteReceiveStream."""
        await checkpoint()
        while True:
            try:
                chunk = os.read(self._descriptor, max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self._descriptor)
            else:
                if not chunk:
                    raise anyio.EndOfStream
                return chunk

    async def aclose(self) -> None:
        """Close the device."""
        os.close(self._descriptor)


def parse_gpsd(line: bytes) -> Position | None:
    """Read a TPV report of gpsd; None for other reports, and without a fix.

    Source: gpsd_json(5), object TPV. `eph` is the estimated horizontal error in metres.
    """
    try:
        report = json.loads(line)
        if report.get("class") != "TPV" or report.get("mode", 0) < 2:
            return None
        accuracy = report.get("eph")
        return Position(
            lat=float(report["lat"]),
            lng=float(report["lon"]),
            accuracy_m=UNKNOWN_ACCURACY_M if accuracy is None else float(accuracy),
            heading_degrees=_heading(report.get("track")),
            speed_mps=report.get("speed"),
            altitude_m=report.get("altMSL", report.get("alt")),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def parse_nmea(line: bytes) -> Position | None:
    """Read a GGA sentence; None for other sentences, a wrong checksum, and without a fix.

    Source: NMEA 0183, sentence GGA: time, latitude, N/S, longitude, E/W, quality, satellites, HDOP, altitude.
    """
    body, star, checksum = line.strip().removeprefix(b"$").partition(b"*")
    try:
        if not star or int(checksum, 16) != reduce(xor, body, 0):
            return None
        fields = body.decode("ascii").split(",")
        if not fields[0].endswith("GGA") or fields[6] in ("", "0"):
            return None
        return Position(
            lat=_degrees(fields[2], 2) * (-1 if fields[3] == "S" else 1),
            lng=_degrees(fields[4], 3) * (-1 if fields[5] == "W" else 1),
            accuracy_m=float(fields[8]) * METRES_PER_HDOP if fields[8] else UNKNOWN_ACCURACY_M,
            altitude_m=float(fields[9]) if fields[9] else None,
        )
    except (ValueError, IndexError):
        return None


def _degrees(text: str, digits: int) -> float:
    """Read degrees and decimal minutes: `ddmm.mmmm` with so many digits of degrees."""
    return round(int(text[:digits]) + float(text[digits:]) / 60, 7)


def _heading(degrees: float | None) -> float | None:
    return None if degrees is None else float(degrees) % 360.0
