"""The internal listener's call by which the servers of one service read frames from each other."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias, final

from sightline.http.budgets import RateClass
from sightline.http.pipeline.call import Call, Raw
from sightline.http.pipeline.routes import Param, Route
from sightline.ports.video import SignalReply

AnswerFrame: TypeAlias = Callable[[str, Mapping[str, str]], Awaitable[SignalReply]]
"""Answers a request for the newest frame of a ref. The headers, with lower-case names, must have the credential."""


@final
class PeerFrameResources:
    """/internal/frames/{ref}."""

    def __init__(self, answer: AnswerFrame) -> None:
        self._answer = answer

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
        reply = await self._answer(call.params["ref"], call.headers.as_dict())
        return Raw(status=reply.status, headers=reply.headers, body=reply.body)
