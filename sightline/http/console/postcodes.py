"""Postcodes of GeoNames for the console's search of places: read from its files, and kept as one small file.

Source: download.geonames.org/export/zip, whose readme describes the 12 columns. Licence: CC BY 4.0.
"""

import gzip
import io
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from sightline.http.console.streets import StreetsError

COLUMNS: Final = 12
POSTCODES_MAX: Final = 200_000
"""Browsers load the whole file, about 14 bytes for each postcode."""
BYTES_MAX: Final = 8 * 1024 * 1024
FILE_NAME: Final = "postcodes.txt.gz"


def read_postcodes(sources: Sequence[Path]) -> list[str]:
    """Read files of GeoNames, `XX.txt` or `XX.zip`. Returns `country, code, place, lat, lng` joined by tabs, each once.

    Raises:
        StreetsError: A file is none of GeoNames' postcodes, or there are too many of them.
        OSError: A file cannot be read.
    """
    found: dict[tuple[str, str], str] = {}
    for path in sources:
        before = len(found)
        for number, line in enumerate(_lines(path), start=1):
            parts = line.rstrip("\r\n").split("\t")
            if len(parts) != COLUMNS:
                raise StreetsError(f"{path}, line {number}: {len(parts)} columns; a file of GeoNames' postcodes has 12")
            country, code, place, lat, lng = *parts[:3], *parts[9:11]
            try:
                at = f"{float(lat):.4f}\t{float(lng):.4f}"
            except ValueError:
                raise StreetsError(f"{path}, line {number}: {lat!r}, {lng!r} are no coordinates") from None
            found.setdefault((country, code), f"{country}\t{code}\t{place}\t{at}")
            if len(found) > POSTCODES_MAX:
                raise StreetsError(
                    f"There are more than {POSTCODES_MAX:,} postcodes, which browsers would load. Use the files of "
                    "single countries, for example DE.zip and AT.zip"
                )
        if len(found) == before:
            raise StreetsError(f"{path} has no postcode that the files before it do not have")
    return [found[key] for key in sorted(found)]


def packed(lines: Iterable[str]) -> bytes:
    """The file as it is kept and served."""
    return gzip.compress("\n".join(lines).encode(), mtime=0)


def kept_postcodes(path: Path) -> bytes:
    """The kept file, gzipped.

    Raises:
        OSError: It is not there, or cannot be read.
    """
    with path.open("rb") as file:
        return file.read(BYTES_MAX)


def _lines(path: Path) -> Iterator[str]:
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                names = [each for each in archive.namelist() if each.endswith(".txt") and "readme" not in each.lower()]
                if len(names) != 1:
                    raise StreetsError(f"{path} has {len(names)} files of postcodes; an archive of GeoNames has one")
                with archive.open(names[0]) as member:
                    yield from io.TextIOWrapper(member, "utf-8")
            return
        with path.open(encoding="utf-8") as file:
            yield from file
    except UnicodeDecodeError as error:
        raise StreetsError(f"{path} is not UTF-8 text: {error}") from error
