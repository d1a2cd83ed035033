"""The manual at /manual/: static pages that `make docs` builds from docs/ (docs/adr/0124-manual.md)."""

from importlib.resources.abc import Traversable
from typing import Final, final

from sightline.domain.refusal import Code
from sightline.http.console.pages import BuiltFiles, load_files, package_folder
from sightline.http.pipeline.call import Call, Raw
from sightline.http.pipeline.errors import ApiError
from sightline.http.pipeline.routes import Param, Route

SEARCH_STYLE: Final = "sha256-NwSx/R2V/U4jnW0Tq5pQ53Y/rzPVJ4dqE7D6UTA/J1k="
"""Hash of the style element that the search of Zensical 0.0.70 adds. tests/console/test_manual.py shows a new one."""
POLICY: Final = (
    f"default-src 'none'; script-src 'self'; style-src 'self' '{SEARCH_STYLE}'; connect-src 'self'; "
    "img-src 'self' data:; "
    "worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PICTURE_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox"
"""Of a diagram that is opened by itself: Mermaid writes its style into the file, which runs no script."""
NOT_BUILT: Final = (
    "This server runs from a checkout in which the manual has not been built. Run `make docs` and restart."
)


def is_manual_built(folder: Traversable | None = None) -> bool:
    """Whether this installation has the manual. `folder`: of the built files; default: that of the package."""
    found = package_folder("manual") if folder is None else folder
    return found.is_dir() and next(iter(found.iterdir()), None) is not None


@final
class ManualResources:
    """GET /manual/ and its files."""

    def __init__(self, folder: Traversable | None = None) -> None:
        """`folder`: of the built files; default: that of the package."""
        found = load_files(package_folder("manual") if folder is None else folder)
        self._files = BuiltFiles(found, POLICY) if found else None
        self._pictures = BuiltFiles(found, PICTURE_POLICY)

    @Route("GET", "/manual", "getManualRoot", "docs", "Lead to the manual", is_documented=False)
    async def folder(self, _call: Call) -> Raw:
        """The links of the pages are relative, so the last slash is needed."""
        return Raw(302, (("location", "/manual/"), ("cache-control", "no-cache")))

    @Route("GET", "/manual/", "getManual", "docs", "The manual", is_documented=False, is_hot=True)
    async def page(self, call: Call) -> Raw:
        """The first page."""
        return self._answer(call, "index.html")

    @Route(
        "GET",
        "/manual/{file...}",
        "getManualFile",
        "docs",
        "A page or file of the manual",
        params={"file": Param.TEXT},
        is_documented=False,
        is_hot=True,
    )
    async def file(self, call: Call) -> Raw:
        """A page or file by its path."""
        return self._answer(call, call.params["file"])

    def _answer(self, call: Call, name: str) -> Raw:
        if self._files is None:
            raise ApiError(Code.NOT_FOUND, "manual:notBuilt", NOT_BUILT)
        return (self._pictures if name.endswith(".svg") else self._files).answer(call, name)
