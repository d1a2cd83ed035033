"""/openapi.json and /docs: the document, and a page that shows it without external resources."""

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files
from typing import Final

import orjson
import trio

from sightline.http.openapi.document import build_document
from sightline.http.pipeline.call import Call, Raw
from sightline.http.pipeline.options import PipelineOptions
from sightline.http.pipeline.routes import AnyRoute, Route

_CACHE: Final = ("cache-control", "no-cache")


def document_routes(routes: Sequence[AnyRoute], options: PipelineOptions) -> list[Route]:
    """Return the routes /openapi.json and /docs."""
    page, policy = _page()

    building, built = trio.Lock(), b""

    def build() -> bytes:
        return orjson.dumps(build_document(routes, options.version))

    async def openapi(call: Call) -> Raw:
        nonlocal built
        del call
        # Built at the first request, because few servers are asked for it, and in a thread, because it takes 0.1 s.
        # One thread: a flood of first requests would build it in 40 threads at once, for 3 MB each.
        async with building:
            built = built or await trio.to_thread.run_sync(build)
        return Raw(200, (("content-type", "application/json"), _CACHE), built)

    async def docs(call: Call) -> Raw:
        del call
        headers = (("content-security-policy", policy), ("content-type", "text/html; charset=utf-8"), _CACHE)
        return Raw(200, headers, page)

    return [
        Route(
            "GET",
            "/openapi.json",
            "getOpenApi",
            "docs",
            "The OpenAPI document",
            handler=openapi,
            is_documented=False,
        ),
        Route(
            "GET",
            "/docs",
            "getDocs",
            "docs",
            "The documentation as a page",
            handler=docs,
            is_documented=False,
        ),
    ]


def _page() -> tuple[bytes, str]:
    """Render the page with a Content-Security-Policy that allows only its own script and style."""
    folder = files("sightline.http.openapi")
    script = folder.joinpath("docs_page.js").read_bytes()
    style = folder.joinpath("docs_page.css").read_bytes()
    page = (
        b'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Sightline API</title>'
        b'<meta name="viewport" content="width=device-width, initial-scale=1"><style>'
        + style
        + b'</style></head><body><main id="main">Loading</main><script>'
        + script
        + b"</script></body></html>"
    )
    policy = (
        f"default-src 'none'; connect-src 'self'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return page, policy


def _hash(source: bytes) -> str:
    return "sha256-" + b64encode(sha256(source).digest()).decode("ascii")
