"""One PMTiles file with streets for the console's map: checked, described, and read in parts.

Source: PMTiles specification version 3, github.com/protomaps/PMTiles.
"""

import gzip
import io
import os
import re
import struct
from pathlib import Path
from typing import Any, Final, final

import orjson

from sightline.domain.value import Value

HEADER_BYTES: Final = 127
MAGIC: Final = b"PMTiles"
VERSION: Final = 3
METADATA_BYTES_MAX: Final = 4 * 1024 * 1024
RANGE_BYTES_MAX: Final = 4 * 1024 * 1024
"""The largest part in one answer. A tile is a few 100 KB at most."""
STREETS_ZOOM_MIN: Final = 12
"""A file whose tiles end below this zoom has no streets that can be told apart."""
STREET_LAYER: Final = "roads"
"""The layer of streets in the schema of the Protomaps basemap, which the console draws."""
_VECTOR: Final = 1
_TILE_TYPES: Final = {
    2: "PNG pictures",
    3: "JPEG pictures",
    4: "WebP pictures",
    5: "AVIF pictures",
    6: "MapLibre tiles",
}
_COMPRESSIONS: Final = {1: "none", 2: "gzip"}
_HEADER: Final = struct.Struct("<7sB11Q6B4iB2i")
_TAG: Final = re.compile(r"<[^>]*>")
_RANGE: Final = re.compile(r"bytes=(\d{1,15})-(\d{1,15})\Z")


class StreetsError(ValueError):
    """The file cannot be used; the message says why and what to do."""


@final
class Streets(Value, kw_only=True):
    """What a PMTiles file contains."""

    size: int
    """Bytes."""
    version: str
    """Changes when the file is replaced."""
    min_zoom: int
    max_zoom: int
    west: float
    south: float
    east: float
    north: float
    layers: tuple[str, ...]
    attribution: str
    """The credit that the file asks for, as plain text."""

    def contains(self, lat: float, lng: float) -> bool:
        """Whether a place is within the bounds that the file states."""
        return self.south <= lat <= self.north and self.west <= lng <= self.east


def read_streets(path: Path) -> Streets:
    """Check a PMTiles file.

    Raises:
        StreetsError: It is none, is not complete, or has no streets that the console can draw.
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        about, head = os.fstat(file.fileno()), file.read(HEADER_BYTES)
        if not head.startswith(MAGIC):
            raise StreetsError(f"{path} is not a PMTiles file: it does not begin with `PMTiles`")
        if len(head) < HEADER_BYTES:
            raise StreetsError(f"{path} is not complete: its header has {len(head)} of {HEADER_BYTES} bytes")
        if head[7] != VERSION:
            raise StreetsError(f"{path} has version {head[7]} of PMTiles; convert it to version 3: pmtiles convert")
        (
            _, _, _root_at, _root_size, metadata_at, metadata_size, _leaves_at, _leaves_size, tiles_at, tiles_size,
            _addressed, _entries, _contents, _clustered, inner, compression, kind, min_zoom, max_zoom, *box,
        ) = _HEADER.unpack(head[: _HEADER.size])  # fmt: skip
        if kind != _VECTOR:
            found = _TILE_TYPES.get(kind, f"tiles of type {kind}")
            raise StreetsError(f"{path} contains {found}; the console draws vector tiles (MVT) only")
        for name, value in (("directories", inner), ("tiles", compression)):
            if value not in _COMPRESSIONS:
                raise StreetsError(f"{path}: its {name} are not compressed by gzip, which is what browsers can read")
        if about.st_size < tiles_at + tiles_size:
            raise StreetsError(
                f"{path} is not complete: {about.st_size} of {tiles_at + tiles_size} bytes. Download it again"
            )
        metadata = _metadata(path, _part(file.fileno(), metadata_at, metadata_size), is_gzip=inner == 2)
    layers = tuple(str(layer.get("id")) for layer in metadata.get("vector_layers") or () if isinstance(layer, dict))
    if STREET_LAYER not in layers:
        raise StreetsError(
            f"{path} has no layer `{STREET_LAYER}` (it has {', '.join(layers) or 'none'}). Use a file in the schema of "
            "the Protomaps basemap, for example an extract by `pmtiles extract` of a build of maps.protomaps.com"
        )
    if max_zoom < STREETS_ZOOM_MIN:
        raise StreetsError(f"{path} ends at zoom {max_zoom}; streets need {STREETS_ZOOM_MIN} or more")
    west, south, east, north = (value / 10_000_000 for value in box[:4])
    if not (-180 <= west < east <= 180 and -90 <= south < north <= 90):
        raise StreetsError(f"{path} states no area: {west}, {south} to {east}, {north}")
    return Streets(
        size=about.st_size, version=f"{about.st_size:x}-{about.st_mtime_ns:x}", min_zoom=min_zoom, max_zoom=max_zoom,
        west=west, south=south, east=east, north=north, layers=layers,
        attribution=_TAG.sub("", str(metadata.get("attribution") or ""))[:200],
    )  # fmt: skip


def wanted_range(header: str | None) -> tuple[int, int] | None:
    """Read a header Range with one range of at most `RANGE_BYTES_MAX`: first byte and length; None for any other."""
    match = _RANGE.match(header or "")
    if match is None:
        return None
    first, last = int(match[1]), int(match[2])
    return (first, last - first + 1) if first <= last < first + RANGE_BYTES_MAX else None


def read_part(path: Path, first: int, length: int) -> tuple[bytes, int]:
    """Read a part of a file. Returns the bytes, fewer at its end, and the size of the file.

    Raises:
        OSError: The file cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _part(descriptor, first, length), os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def _part(descriptor: int, first: int, length: int) -> bytes:
    return os.pread(descriptor, min(length, RANGE_BYTES_MAX), first)


def _metadata(path: Path, stored: bytes, *, is_gzip: bool) -> dict[str, Any]:
    try:
        if is_gzip:
            with gzip.GzipFile(fileobj=io.BytesIO(stored)) as unpacked:
                stored = unpacked.read(METADATA_BYTES_MAX)
        metadata = orjson.loads(stored)
    except (OSError, EOFError, ValueError) as error:
        raise StreetsError(f"{path}: its metadata cannot be read: {error}") from error
    if not isinstance(metadata, dict):
        raise StreetsError(f"{path}: its metadata are not a JSON object")
    return metadata
