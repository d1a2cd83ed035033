"""Answers ASGI requests by the pipeline, without a framework in between."""

import trio

from sightline.http.pipeline.call import Stream
from sightline.http.pipeline.pipeline import Incoming, Outgoing, Pipeline
from sightline.http.pipeline.router import Match
from sightline.http.server import ClientGoneError, Receive, Scope, Send


async def answer_directly(pipeline: Pipeline, match: Match, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer one request. A disconnect ends a stream but does not cancel a handler."""
    message = await receive()
    if message["type"] != "http.request":
        return
    request = pipeline.request_of(scope, message.get("body", b""))
    outgoing = await pipeline.answer(request, match)
    if isinstance(outgoing.body, Stream):
        await _stream(pipeline, request, outgoing, outgoing.body, receive, send)
    else:
        await send_outgoing(send, outgoing, outgoing.body)


async def send_outgoing(send: Send, outgoing: Outgoing, body: bytes) -> None:
    """Send a complete response."""
    await send({"type": "http.response.start", "status": outgoing.status, "headers": outgoing.headers})
    await send({"type": "http.response.body", "body": body})


async def _stream(
    pipeline: Pipeline, request: Incoming, outgoing: Outgoing, stream: Stream, receive: Receive, send: Send
) -> None:
    async def emit(data: bytes) -> None:
        await send({"type": "http.response.body", "body": data, "more_body": True})

    async def watch(scope: trio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            continue
        scope.cancel()

    await send({"type": "http.response.start", "status": outgoing.status, "headers": outgoing.headers})
    try:
        async with trio.open_nursery() as nursery:
            if request.method != "HEAD":
                await emit(b"")
                nursery.start_soon(watch, nursery.cancel_scope)
                await stream.write(emit)
            nursery.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b""})
    except* ClientGoneError:
        pass
    finally:
        pipeline.finished(request, outgoing)
