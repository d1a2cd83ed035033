"""Makes a PMTiles file with a few streets around a place, by the libraries of its formats."""

import gzip
import math
from pathlib import Path
from typing import Any, Final

import mapbox_vector_tile
import numpy as np
import shapely
from pmtiles.tile import Compression, TileType, zxy_to_tileid
from pmtiles.writer import write
from shapely.geometry import LineString, Point, Polygon, box

EXTENT: Final = 4096
ATTRIBUTION: Final = '<a href="https://www.openstreetmap.org/copyright">© OpenStreetMap</a>'
_EARTH_M: Final = 20_037_508.342789244


def mercator(lat: float, lng: float) -> tuple[float, float]:
    """Web Mercator in metres."""
    y = math.log(math.tan(math.pi / 4 + math.radians(lat) / 2)) / math.pi * _EARTH_M
    return lng / 180 * _EARTH_M, y


def tile_box(z: int, x: int, y: int) -> tuple[float, float, float, float]:
    """The area of a tile in Web Mercator: west, south, east, north."""
    size = 2 * _EARTH_M / 2**z
    return -_EARTH_M + x * size, _EARTH_M - (y + 1) * size, -_EARTH_M + (x + 1) * size, _EARTH_M - y * size


def town(lat: float, lng: float, span: float) -> dict[str, list[tuple[Any, dict[str, Any]]]]:
    """A river, a park, a grid of streets and an avenue with a name, in the schema of the Protomaps basemap."""

    def line(*points: tuple[float, float]) -> LineString:
        return LineString([mercator(lat + north * span, lng + east * span) for north, east in points])

    def area(*points: tuple[float, float]) -> Polygon:
        return Polygon([mercator(lat + north * span, lng + east * span) for north, east in points])

    steps = [each / 5 for each in range(-5, 6)]
    minor = {"kind": "minor_road", "kind_detail": "residential", "sort_rank": 380}
    across = [(line((step, -1), (step, 1)), minor | {"name": f"East Street {i}"}) for i, step in enumerate(steps)]
    along = [(line((-1, step), (1, step)), minor | {"name": f"North Street {i}"}) for i, step in enumerate(steps)]
    avenue = {"kind": "major_road", "kind_detail": "primary", "name": "Harbour Avenue", "sort_rank": 400}
    return {
        "earth": [(area((-1, -1), (-1, 1), (1, 1), (1, -1)), {"kind": "earth"})],
        "water": [(area((0.62, -1), (0.5, 1), (0.72, 1), (0.84, -1)), {"kind": "river", "name": "Tide"})],
        "landuse": [(area((-0.8, -0.8), (-0.8, -0.2), (-0.4, -0.2), (-0.4, -0.8)), {"kind": "park"})],
        "roads": [*across, *along, (line((-1, -1), (1, 1)), avenue)],
        "places": [(Point(mercator(lat + span / 8, lng)), {"kind": "locality", "name": "Fenhaven", "min_zoom": 8})],
    }


def write_streets(
    path: Path, lat: float, lng: float, *, span: float = 0.02, zooms: tuple[int, int] = (10, 15), **header: object
) -> None:
    """Write the file. `header` replaces fields of its header; `layers` names the layers that its metadata lists."""
    listed = header.pop("layers", None)
    shapes, tiles = town(lat, lng, span), {}
    west, south = mercator(lat - span, lng - span)
    east, north = mercator(lat + span, lng + span)
    for z in range(zooms[0], zooms[1] + 1):
        size = 2 * _EARTH_M / 2**z
        for x in range(int((west + _EARTH_M) / size), int((east + _EARTH_M) / size) + 1):
            for y in range(int((_EARTH_M - north) / size), int((_EARTH_M - south) / size) + 1):
                tiles[zxy_to_tileid(z, x, y)] = _tile(shapes, tile_box(z, x, y))
    bounds = {
        "min_lon_e7": round((lng - span) * 1e7), "min_lat_e7": round((lat - span) * 1e7),
        "max_lon_e7": round((lng + span) * 1e7), "max_lat_e7": round((lat + span) * 1e7),
    }  # fmt: skip
    described = {
        "tile_type": TileType.MVT, "tile_compression": Compression.GZIP, "center_zoom": zooms[1],
        "center_lon_e7": int(lng * 1e7), "center_lat_e7": int(lat * 1e7), **bounds, **header,
    }  # fmt: skip
    names = list(shapes) if listed is None else listed
    metadata = {"attribution": ATTRIBUTION, "vector_layers": [{"id": name, "fields": {}} for name in names]}
    with write(str(path)) as writer:
        for tile_id in sorted(tiles):
            writer.write_tile(tile_id, gzip.compress(tiles[tile_id], mtime=0))
        writer.finalize(described, metadata)


def _tile(shapes: dict[str, list[tuple[Any, dict[str, Any]]]], bounds: tuple[float, float, float, float]) -> bytes:
    margin, scale = (bounds[2] - bounds[0]) / 32, EXTENT / (bounds[2] - bounds[0])
    window = box(bounds[0] - margin, bounds[1] - margin, bounds[2] + margin, bounds[3] + margin)
    layers = []
    for name, features in shapes.items():
        cut = ((shape.intersection(window), properties) for shape, properties in features)
        found = [
            {
                "geometry": shapely.transform(shape, lambda at: np.round((at - bounds[:2]) * scale)),
                "properties": properties,
            }
            for shape, properties in cut
            if not shape.is_empty
        ]
        layers.append({"name": name, "features": found})
    encoded: bytes = mapbox_vector_tile.encode(layers, default_options={"extents": EXTENT})
    return encoded
