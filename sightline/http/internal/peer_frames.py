"""The internal listener's call by which the servers of one service read frames from each other."""

from typing import final

from sightline.http.pipeline.call import Call, Raw
from sightline.http.pipeline.rate_limit import RateClass
from sightline.http.pipeline.routes import Param, Route
from sightline.ports.video_peers import FrameSource


@final
class PeerFrameResources:
    """/internal/frames/{ref}."""

    def __init__(self, source: FrameSource) -> None:
        self._source = source

    @Route(
        "GET",
        "/internal/frames/{ref}",
        "getPeerFrame",
        "internal",
        "The newest frame of an input that this server holds, for another server",
        params={"ref": Param.TEXT},
        rate=RateClass.NONE,
        is_hot=True,
        checks_origin=False,
        has_own_credential=True,
    )
    async def frame(self, call: Call) -> Raw:
        """The video backend checks the credential and answers."""
        reply = await self._source.answer_frame(call.params["ref"], call.headers.as_dict())
        return Raw(status=reply.status, headers=reply.headers, body=reply.body)
