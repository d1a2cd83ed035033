"""Callbacks of external media servers on the internal listener, in their own formats.

POST /internal/engines/mediamtx is MediaMTX's auth callback, POST /internal/engines/cloudflare takes Cloudflare's
notifications. The adapter of the media server checks the credential and parses the body.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias, final

from sightline.http.budgets import RateClass
from sightline.http.pipeline.call import Call, Raw
from sightline.http.pipeline.routes import Param, Route

HandleHook: TypeAlias = Callable[[str, Mapping[str, str], bytes], Awaitable[int]]
"""Handles a callback: name of the media server, headers with lower-case names, and body; returns the HTTP status."""


@final
class EngineHookResources:
    """/internal/engines/{engine}."""

    def __init__(self, handle: HandleHook) -> None:
        self._handle = handle

    @Route(
        "POST",
        "/internal/engines/{engine}",
        "postEngineHook",
        "internal",
        "A callback of an external video engine",
        params={"engine": Param.TEXT},
        rate=RateClass.NONE,
        raw_body=("application/json",),
        checks_origin=False,
        has_own_credential=True,
    )
    async def take(self, call: Call) -> Raw:
        """Pass the callback to the adapter, and answer with its status and an empty body."""
        status = await self._handle(call.params["engine"], call.headers.as_dict(), call.raw_body)
        return Raw(status=status)
