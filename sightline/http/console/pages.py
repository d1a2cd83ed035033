"""The console and the operations page: static files, built from web/ by `make web` (docs/adr/0135-console.md)."""

import gzip
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final, final
from urllib.parse import urlsplit

import orjson
import structlog
import trio

from sightline.domain.refusal import Code
from sightline.domain.value import Value
from sightline.http.budgets import RateClass
from sightline.http.console.postcodes import kept_postcodes
from sightline.http.console.streets import Streets, StreetsError, read_part, read_streets, wanted_range
from sightline.http.pipeline.call import Call, Raw, TextHeaders
from sightline.http.pipeline.errors import ApiError
from sightline.http.pipeline.routes import Param, Route

log = structlog.get_logger()

PAGE: Final = "index.html"
OPS_PAGE: Final = "ops.html"
MAP_FILE: Final = "map.json"
STREETS_FILE: Final = "streets.pmtiles"
POSTCODES_FILE: Final = "postcodes.txt"
TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "json": "application/json; charset=utf-8",
    "txt": "text/plain; charset=utf-8",
    "webmanifest": "application/manifest+json",
    "png": "image/png",
    "jpg": "image/jpeg",
}
_HASHED: Final = re.compile(r"-[A-Z0-9]{8}\.\w+\Z|\.[0-9a-f]{8}\.(min\.)?(js|css)\Z")
_IMMUTABLE: Final = ("cache-control", "public, max-age=31536000, immutable")
_REVALIDATED: Final = ("cache-control", "no-cache")
_PERMISSIONS: Final = ("permissions-policy", "camera=(self), microphone=(self), geolocation=(self)")


def package_folder(name: str) -> Traversable:
    """A folder of built files in the package."""
    return files("sightline").joinpath(name)


def load_files(folder: Traversable) -> dict[str, bytes]:
    """The built files of a folder by path, gzipped. Empty if the folder does not exist."""
    found: dict[str, bytes] = {}
    for each in folder.iterdir() if folder.is_dir() else ():
        if each.name.endswith(".gz"):
            found[each.name.removesuffix(".gz")] = each.read_bytes()
        elif each.is_dir():
            found |= {f"{each.name}/{name}": content for name, content in load_files(each).items()}
    return found


@final
class ConsoleOptions(Value, kw_only=True):
    """What the page uses outside of this server."""

    connect_urls: tuple[str, ...] = ()
    """URLs that the page calls: video engine, public RPC node."""
    tiles_url: str | None = None
    """Template of the map's tiles, with {z}, {x} and {y}; None: the built-in map without streets."""
    tiles_attribution: str = ""
    streets_path: Path | None = None
    """A PMTiles file with streets, which may come and go while the server runs; None: none."""
    postcodes_path: Path | None = None
    """A file of postcodes, likewise."""


@final
class BuiltFiles:
    """Serves the built files, with the policy of one listener."""

    def __init__(self, found: Mapping[str, bytes], policy: str) -> None:
        """`found`: the files by path, gzipped."""
        self._files = found
        self._policy = ("content-security-policy", policy)

    def answer(self, call: Call, name: str) -> Raw:
        """A file by its name.

        Raises:
            ApiError: 404 for an unknown name.
        """
        content = self._files.get(name)
        if content is None:
            raise ApiError(Code.NOT_FOUND, "route:unknown")
        headers: TextHeaders = (
            self._policy,  # first: it replaces the policy of responses that are not pages
            ("content-type", TYPES[name.rpartition(".")[2]]),
            _IMMUTABLE if _HASHED.search(name) else _REVALIDATED,
            ("vary", "accept-encoding"),
            _PERMISSIONS,
        )
        if "gzip" in (call.headers.get("accept-encoding") or ""):
            return Raw(200, (*headers, ("content-encoding", "gzip")), content)
        return Raw(200, headers, gzip.decompress(content))


@final
class ConsoleResources:
    """GET /console/ and its files; / leads a browser there."""

    def __init__(self, options: ConsoleOptions) -> None:
        self._options = options
        image_urls = () if options.tiles_url is None else (options.tiles_url,)
        policy = content_policy(options.connect_urls, image_urls)
        self._files = BuiltFiles(load_files(package_folder("web")), policy)

    @Route("GET", "/", "getRoot", "console", "Lead a browser to the console", is_documented=False)
    async def root(self, call: Call) -> Raw:
        """302 for a request that accepts HTML, else 404 as for every unknown path."""
        if "text/html" not in (call.headers.get("accept") or ""):
            raise ApiError(Code.NOT_FOUND, "route:unknown")
        return Raw(302, (("location", "/console/"), ("vary", "accept"), _REVALIDATED))

    @Route("GET", "/console", "getConsoleRoot", "console", "Lead to the console", is_documented=False)
    async def folder(self, _call: Call) -> Raw:
        """A browser may have lost the last slash."""
        return Raw(302, (("location", "/console/"), _REVALIDATED))

    @Route("GET", "/console/", "getConsole", "console", "The console", is_documented=False, is_hot=True)
    async def page(self, call: Call) -> Raw:
        """The page. It names its files by hash, so it is revalidated and they are not."""
        return self._files.answer(call, PAGE)

    @Route(
        "GET",
        "/console/{file}",
        "getConsoleFile",
        "console",
        "A file of the console",
        params={"file": Param.TEXT},
        is_documented=False,
        is_hot=True,
    )
    async def file(self, call: Call) -> Raw:
        """A file of the console by its name."""
        return self._files.answer(call, call.params["file"])

    @Route("GET", f"/console/{MAP_FILE}", "getConsoleMap", "console", "What the map shows", is_documented=False)
    async def map(self, _call: Call) -> Raw:
        """Where the map gets its streets: tiles of a URL, else the file of this server, else none."""
        options = self._options
        streets = None if options.tiles_url is not None else await self._streets()
        shown = {
            "tilesUrl": options.tiles_url,
            "attribution": options.tiles_attribution or ("" if streets is None else streets.attribution),
            "streets": None if streets is None else _streets_json(streets),
            "postcodes": await self._postcodes_url(),
        }
        return Raw(200, (("content-type", TYPES["json"]), _REVALIDATED), orjson.dumps(shown))

    @Route("GET", f"/console/{STREETS_FILE}", "getConsoleStreets", "console", "A part of the map's streets",
           rate=RateClass.FRAMES, is_documented=False)  # fmt: skip
    async def streets(self, call: Call) -> Raw:
        """A range of the PMTiles file. Without a range nothing is sent: the file may have many gigabytes.

        Raises:
            ApiError: 404 without a file.
        """
        path, asked = self._options.streets_path, wanted_range(call.headers.get("range"))
        if path is None:
            raise ApiError(Code.NOT_FOUND, "route:unknown")
        try:
            first, length = asked or (0, 0)
            part, size = await trio.to_thread.run_sync(read_part, path, first, length)
        except OSError as error:
            raise ApiError(Code.NOT_FOUND, "route:unknown") from error
        if not part:
            return Raw(416, (("content-range", f"bytes */{size}"), _REVALIDATED))
        sent = ("content-range", f"bytes {first}-{first + len(part) - 1}/{size}")
        kind = ("content-type", "application/octet-stream")
        return Raw(206, (kind, sent, ("accept-ranges", "bytes"), _IMMUTABLE), part)

    @Route("GET", f"/console/{POSTCODES_FILE}", "getConsolePostcodes", "console", "Postcodes", is_documented=False)
    async def postcodes(self, call: Call) -> Raw:
        """The postcodes, as text.

        Raises:
            ApiError: 404 without a file.
        """
        path = self._options.postcodes_path
        if path is None:
            raise ApiError(Code.NOT_FOUND, "route:unknown")
        try:
            kept = await trio.to_thread.run_sync(kept_postcodes, path)
        except OSError as error:
            raise ApiError(Code.NOT_FOUND, "route:unknown") from error
        headers: TextHeaders = (("content-type", TYPES["txt"]), ("vary", "accept-encoding"), _IMMUTABLE)
        if "gzip" in (call.headers.get("accept-encoding") or ""):
            return Raw(200, (*headers, ("content-encoding", "gzip")), kept)
        return Raw(200, headers, await trio.to_thread.run_sync(gzip.decompress, kept))

    async def _postcodes_url(self) -> str | None:
        path = self._options.postcodes_path
        try:
            about = None if path is None else await trio.to_thread.run_sync(path.stat)
        except OSError:
            return None
        return None if about is None else f"/console/{POSTCODES_FILE}?v={about.st_size:x}-{about.st_mtime_ns:x}"

    async def _streets(self) -> Streets | None:
        path = self._options.streets_path
        if path is None:
            return None
        try:
            return await trio.to_thread.run_sync(read_streets, path)
        except (OSError, StreetsError) as error:
            if not isinstance(error, FileNotFoundError):
                log.warning("map_streets_refused", error=str(error))
            return None


def _streets_json(streets: Streets) -> dict[str, object]:
    return {
        "url": f"/console/{STREETS_FILE}?v={streets.version}",
        "bounds": [streets.west, streets.south, streets.east, streets.north],
        "minZoom": streets.min_zoom,
        "maxZoom": streets.max_zoom,
    }


@final
class AuthorityResource:
    """GET /ca.crt: the authority that a phone installs to trust this server."""

    def __init__(self, pem: bytes) -> None:
        self._pem = pem

    @Route(
        "GET", "/ca.crt", "getAuthority", "console", "The authority of the server's certificate", is_documented=False
    )
    async def authority(self, _call: Call) -> Raw:
        """With this media type phones offer to install it."""
        name = ("content-disposition", 'attachment; filename="sightline-ca.crt"')
        return Raw(200, (("content-type", "application/x-x509-ca-cert"), name, _REVALIDATED), self._pem)


@final
class OpsResources:
    """GET /ops on the internal listener, and the files of the page.

    They hold no data and need no token: a browser sends none when it opens a page. The page asks for the token and
    sends it with its calls.
    """

    def __init__(self) -> None:
        self._files = BuiltFiles(load_files(package_folder("web")), content_policy(()))

    @Route(
        "GET",
        "/ops",
        "getOps",
        "console",
        "The operations page",
        rate=RateClass.NONE,
        is_documented=False,
        has_own_credential=True,
    )
    async def page(self, call: Call) -> Raw:
        """The page."""
        return self._files.answer(call, OPS_PAGE)

    @Route(
        "GET",
        "/console/{file}",
        "getOpsFile",
        "console",
        "A file of the operations page",
        params={"file": Param.TEXT},
        rate=RateClass.NONE,
        is_documented=False,
        has_own_credential=True,
    )
    async def file(self, call: Call) -> Raw:
        """A file by its name."""
        return self._files.answer(call, call.params["file"])


def content_policy(connect_urls: Sequence[str], image_urls: Sequence[str] = ()) -> str:
    """The content security policy of the page: its own files, and the origins of the listed URLs only."""
    connect = " ".join(["'self'", *sorted({_origin(url) for url in connect_urls})])
    images = " ".join(["'self' data: blob:", *sorted({_origin(url) for url in image_urls})])
    return (
        "default-src 'none'; script-src 'self'; style-src 'self'; worker-src 'self'; "
        f"connect-src {connect}; img-src {images}; media-src 'self' blob:; manifest-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
