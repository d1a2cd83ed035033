"""WHIP and WHEP: everything under /whip and /whep goes to the video engine word for word.

No credential, envelope or origin check: the token in the path is the capability, and the page that publishes may be
anybody's. Source: RFC 9725 (WHIP), draft-ietf-wish-whep.
"""

from typing import Final, final

from sightline.http.deps import Deps
from sightline.http.pipeline.call import Call, Raw
from sightline.http.pipeline.rate_limit import RateClass
from sightline.http.pipeline.routes import Param, Route
from sightline.ports.video import SignalRequest

KINDS: Final = ("whip", "whep")
METHODS: Final = ("GET", "POST", "PATCH", "DELETE", "OPTIONS")
"""HEAD comes in as GET's."""


@final
class SignallingResources:
    """/whip and /whep."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    def routes(self) -> tuple[Route, ...]:
        """Each method on each path."""
        return tuple(
            Route(
                method=method,
                path=f"/{kind}/{{token}}{tail}",
                operation_id=f"{kind}{method.capitalize()}{'Resource' if tail else ''}",
                tag="video",
                summary=f"{kind.upper()} signalling",
                handler=self.signal,
                rate=RateClass.SIGNALLING,
                params={"token": Param.TEXT, "resource": Param.TEXT},
                finishes=True,
                checks_origin=False,
                is_documented=False,
            )
            for kind in KINDS
            for tail in ("", "/{resource}")
            for method in METHODS
        )

    async def signal(self, call: Call) -> Raw:
        """Hand over, and answer what the engine answers."""
        reply = await self._deps.video.signal(
            SignalRequest(
                kind=call.path.split("/", 2)[1],
                method=call.method,
                token=call.params["token"],
                resource=call.params.get("resource"),
                headers=call.headers.as_dict(),
                body=call.raw_body,
                base_url=call.base_url,
                client_ip=call.client_ip,
            )
        )
        return Raw(status=reply.status, headers=reply.headers, body=reply.body)
