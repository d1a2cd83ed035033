"""The console and the operations page: static files, built from web/ by `make web` (docs/adr/0135-console.md)."""

import gzip
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, final
from urllib.parse import urlsplit

import orjson

from sightline.domain.refusal import Code
from sightline.http.pipeline.call import Call, Raw, TextHeaders
from sightline.http.pipeline.errors import ApiError
from sightline.http.pipeline.rate_limit import RateClass
from sightline.http.pipeline.routes import Param, Route

PAGE: Final = "index.html"
OPS_PAGE: Final = "ops.html"
MAP_FILE: Final = "map.json"
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
@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    """What the page uses outside of this server."""

    connect_urls: tuple[str, ...] = ()
    """URLs that the page calls: video engine, public RPC node."""
    tiles_url: str | None = None
    """Template of the map's tiles, with {z}, {x} and {y}; None: the built-in map without streets."""
    tiles_attribution: str = ""


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
        streets = {"tilesUrl": options.tiles_url, "attribution": options.tiles_attribution}
        image_urls = () if options.tiles_url is None else (options.tiles_url,)
        policy = content_policy(options.connect_urls, image_urls)
        made = {MAP_FILE: gzip.compress(orjson.dumps(streets), mtime=0)}
        self._files = BuiltFiles(load_files(package_folder("web")) | made, policy)

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
