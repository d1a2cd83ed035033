"""WHIP and WHEP: passes every request under /whip and /whep to the video backend unchanged.

There is no credential, error envelope or origin check: the token in the path is the credential, and the page that
publishes may belong to any site. Source: RFC 9725 (WHIP), draft-ietf-wish-whep.
"""

from functools import partial
from typing import Final, final

from sightline.domain.access import holder_of
from sightline.http.budgets import RateClass
from sightline.http.pipeline.call import Call, Raw
from sightline.http.pipeline.routes import Method, Param, Route
from sightline.http.schemas.sessions import PlayUrl
from sightline.http.services import Services
from sightline.ports.video import SignalRequest, VideoBackend

KINDS: Final = ("whip", "whep")
METHODS: Final = ("GET", "POST", "PATCH", "DELETE", "OPTIONS")
"""A HEAD request uses the route of GET."""


def _all_routes(method: Method) -> Method:
    """Declare each method on each path."""
    for kind in KINDS:
        for tail in ("", "/{resource}"):
            for verb in METHODS:
                route = Route(
                    verb,
                    f"/{kind}/{{token}}{tail}",
                    f"{kind}{verb.capitalize()}{'Resource' if tail else ''}",
                    "video",
                    f"{kind.upper()} signalling",
                    rate=RateClass.SIGNALLING,
                    params={"token": Param.TEXT, "resource": Param.TEXT},
                    finishes=True,
                    checks_origin=False,
                    is_documented=False,
                )
                method = route(method)
    return method


def play_url_of(video: VideoBackend, call: Call) -> PlayUrl:
    """Make play URLs that are bound to the credential of the call."""
    assert call.principal is not None
    return partial(video.whep_url_for, holder=holder_of(call.principal))


@final
class SignallingResources:
    """/whip and /whep."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @_all_routes
    async def signal(self, call: Call) -> Raw:
        """Pass the request to the video backend, and answer with its reply."""
        reply = await self._services.video.signal(
            SignalRequest(
                kind=call.path.split("/", 2)[1],
                method=call.method,
                token=call.params["token"],
                resource=call.params.get("resource"),
                headers=call.headers.as_dict(),
                body=call.raw_body,
                base_url=call.base_url(),
                client_ip=call.client_ip,
            )
        )
        return Raw(status=reply.status, headers=reply.headers, body=reply.body)
