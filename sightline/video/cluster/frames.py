"""Frames between servers: HTTP between their internal listeners, because a JPEG of 80 KB would fill the bus.

Query and facts of the frame are JSON in one header each. The credential derives from the secrets that all servers of a
service share, so it needs no setting.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final, final

import httpcore
import orjson

from sightline.domain.errors import VideoUnavailableError
from sightline.ports.video import FrameQuery, FrameReply, SignalReply
from sightline.video.ipc import messages

PATH: Final = "/internal/frames/"
QUERY_HEADER: Final = "x-svc-frame-query"
FACTS_HEADER: Final = "x-svc-frame-facts"
CONNECT_TIMEOUT_S: Final = 1.0
ANSWER_TIMEOUT_S: Final = 3.0
CONNECTIONS_MAX: Final = 512
IDLE_S: Final = 30.0


def credential_of(secret: bytes) -> str:
    """The Authorization header of requests for frames, from the secret of the publish and play URLs."""
    return "Bearer " + hmac.digest(secret, b"sightline frames between servers", hashlib.sha256).hex()


def is_authorized(headers: Mapping[str, str], credential: str) -> bool:
    """Whether a request has the credential."""
    return hmac.compare_digest(headers.get("authorization", "").encode(), credential.encode())


def query_of(headers: Mapping[str, str]) -> FrameQuery | None:
    """The query of a request; None if it is not valid."""
    try:
        return messages.query_from_wire(orjson.loads(headers.get(QUERY_HEADER, "")))
    except (orjson.JSONDecodeError, TypeError):
        return None


def to_http(reply: FrameReply) -> SignalReply:
    """The HTTP answer with a frame, or with the reason why there is none."""
    facts, jpeg = messages.frame_to_wire(reply)
    headers = (("content-type", "image/jpeg"), (FACTS_HEADER, orjson.dumps(facts).decode()))
    return SignalReply(status=200, headers=headers, body=jpeg)


@final
class FrameClient:
    """Reads frames from other servers over connections that stay open."""

    def __init__(self, credential: str, *, answer_timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        """Create a client without connections.

        Args:
            answer_timeout_s: How long a server may take, in addition to the wait that the query asks for.
        """
        self._credential = credential.encode()
        self._answer_timeout_s = answer_timeout_s
        self._pool = httpcore.AsyncConnectionPool(
            max_connections=CONNECTIONS_MAX, max_keepalive_connections=CONNECTIONS_MAX, keepalive_expiry=IDLE_S
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.aclose()

    async def fetch(self, url: str, ref: str, query: FrameQuery) -> FrameReply | None:
        """Read a frame; None if that server does not hold the input.

        Args:
            url: URL of the server's internal listener.

        Raises:
            VideoUnavailableError: The server did not answer in time, or its media worker is down.
        """
        headers = [
            (b"host", url.partition("//")[2].encode()),
            (b"authorization", self._credential),
            (QUERY_HEADER.encode(), orjson.dumps(messages.query_to_wire(query))),
        ]
        answer_s = self._answer_timeout_s + query.wait_ms / 1_000
        timeouts = {"connect": CONNECT_TIMEOUT_S, "read": answer_s, "write": answer_s, "pool": answer_s}
        try:
            reply = await self._pool.request("GET", url + PATH + ref, headers=headers, extensions={"timeout": timeouts})
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as error:
            raise VideoUnavailableError(f"the server that has the input: {type(error).__name__}") from error
        if reply.status == 404:
            return None
        facts = next((value for name, value in reply.headers if name.lower() == FACTS_HEADER.encode()), None)
        if reply.status != 200 or facts is None:
            raise VideoUnavailableError(f"the server that has the input answered {reply.status}")
        return messages.frame_from_wire(orjson.loads(facts), reply.content)
