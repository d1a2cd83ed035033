"""Frames and clips between servers: HTTP between their internal listeners, because they would fill the bus (ADR 0172).

The listeners speak plain HTTP, so the messages protect themselves, with keys that derive from the secrets which all
servers of a service share:

- A request has an HMAC over its method, the server that it is for, the input, the query, the time and a nonce. It is
  valid for `VALID_MS`, at that server, and once.
- The answer is encrypted and authenticated with AES-256-GCM, for this request only: an earlier picture does not open.

Whoever listens between the servers sees which input is asked for and how large the pictures are. Whoever changes what
passes can prevent an answer, and cannot make one.
"""

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, TypeVar, final

import httpcore
import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from sightline.domain.errors import VideoUnavailableError
from sightline.domain.value import Value
from sightline.ports.clock import Clock
from sightline.ports.ids import Ids
from sightline.ports.video import ClipReply, FrameQuery, FrameReply, SignalReply
from sightline.video.ipc import messages
from sightline.video.ipc.framing import Header

PATH: Final = "/internal/frames/"
QUERY_HEADER: Final = "x-svc-frame-query"
SCHEME: Final = "SVC-HMAC-SHA256"
VALID_MS: Final = 10_000
"""How far the time of a request may be from the clock of the server that answers it."""
REQUESTS_KEPT: Final = 131_072
"""Nonces that are remembered; more requests than this within twice VALID_MS are not expected of a server."""
NONCE_BYTES: Final = 16
GCM_NONCE_BYTES: Final = 12
LENGTH_BYTES: Final = 4
CONNECT_TIMEOUT_S: Final = 1.0
ANSWER_TIMEOUT_S: Final = 3.0
CONNECTIONS_MAX: Final = 512
IDLE_S: Final = 30.0

R = TypeVar("R", FrameReply, ClipReply)


@final
class FrameKeys:
    """The keys of requests and answers, the same on all servers of a service."""

    def __init__(self, secret: bytes) -> None:
        """Derive the keys.

        Args:
            secret: Secret of the servers of the service.
        """
        self._request = _derived(secret, b"sightline requests for frames")
        self._answer = _derived(secret, b"sightline answers with frames")

    def sign(self, url: str, ref: str, query: str, stamp: str) -> bytes:
        """The proof of a request to the server at this URL. `stamp` is its time and nonce."""
        return hmac.digest(self._request, "\n".join(("GET", url, ref, query, stamp)).encode(), hashlib.sha256)

    def answer_cipher(self, proof: bytes) -> AESGCM:
        """The cipher of the answer to the request with this proof."""
        return AESGCM(hmac.digest(self._answer, proof, hashlib.sha256))


def _derived(secret: bytes, info: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(secret)


@final
class FrameDoor:
    """Checks the requests of other servers, and seals the answers."""

    def __init__(self, keys: FrameKeys, url: str, clock: Clock, ids: Ids) -> None:
        """Create the door of a server.

        Args:
            url: URL of its internal listener, as its lease says.
        """
        self._keys = keys
        self._url = url
        self._clock = clock
        self._ids = ids
        self._seen: OrderedDict[str, int] = OrderedDict()
        """Stamps of requests, and until when a repetition would be valid."""

    def admit(self, ref: str, headers: Mapping[str, str]) -> bytes | None:
        """The proof of a request; None if no server of this service has sent it to this one just now, and once."""
        scheme, _, stamp_and_proof = headers.get("authorization", "").partition(" ")
        stamp, _, proof = stamp_and_proof.rpartition(".")
        sent_at, _, _nonce = stamp.partition(".")
        if scheme != SCHEME or not (sent_at.isascii() and sent_at.isdigit() and len(sent_at) <= 15):
            return None
        expected = self._keys.sign(self._url, ref, headers.get(QUERY_HEADER, ""), stamp)
        now_ms = self._clock.now_ms()
        if not hmac.compare_digest(proof.encode(), expected.hex().encode()) or abs(int(sent_at) - now_ms) > VALID_MS:
            return None
        return expected if self._is_first(stamp, int(sent_at) + VALID_MS, now_ms) else None

    def seal(self, proof: bytes, facts: Header, picture: bytes) -> SignalReply:
        """The HTTP answer with a frame or clip, or with the reason why there is none."""
        head = orjson.dumps(facts)
        nonce = self._ids.token_bytes(GCM_NONCE_BYTES)
        clear = b"%b%b%b" % (len(head).to_bytes(LENGTH_BYTES), head, picture)
        body = nonce + self._keys.answer_cipher(proof).encrypt(nonce, clear, None)
        return SignalReply(status=200, headers=(("content-type", "application/octet-stream"),), body=body)

    def _is_first(self, stamp: str, valid_until_ms: int, now_ms: int) -> bool:
        while self._seen and (len(self._seen) >= REQUESTS_KEPT or next(iter(self._seen.values())) < now_ms):
            self._seen.popitem(last=False)
        if stamp in self._seen:
            return False
        self._seen[stamp] = valid_until_ms
        return True


@final
class ClipQuery(Value):
    """A request for a clip."""

    clip_seconds: int


def query_of(headers: Mapping[str, str]) -> FrameQuery | ClipQuery | None:
    """The query of a request; None if it is not valid."""
    try:
        fields = orjson.loads(headers.get(QUERY_HEADER, ""))
        return ClipQuery(**fields) if "clip_seconds" in fields else messages.query_from_wire(fields)
    except (orjson.JSONDecodeError, TypeError):
        return None


@final
class FrameClient:
    """Reads frames from other servers over connections that stay open."""

    def __init__(self, keys: FrameKeys, clock: Clock, ids: Ids, *, answer_timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        """Create a client without connections.

        Args:
            answer_timeout_s: How long a server may take, in addition to the wait that the query asks for.
        """
        self._keys = keys
        self._clock = clock
        self._ids = ids
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
            url: URL of the server's internal listener, from its lease.

        Raises:
            VideoUnavailableError: The server did not answer in time, or its media worker is down.
        """
        answer = await self._ask(url, ref, messages.query_to_wire(query), query.wait_ms)
        return None if answer is None else self._open(answer, messages.frame_from_wire)

    async def fetch_clip(self, url: str, ref: str, seconds: int) -> ClipReply | None:
        """Read a clip; None if that server does not hold the input. Raises as `fetch` does."""
        answer = await self._ask(url, ref, {"clip_seconds": seconds}, 0)
        return None if answer is None else self._open(answer, messages.clip_from_wire)

    async def _ask(self, url: str, ref: str, query: Header, wait_ms: int) -> tuple[bytes, bytes] | None:
        """The proof of a request and the sealed answer to it; None if that server does not hold the input."""
        asked = orjson.dumps(query).decode()
        stamp = f"{self._clock.now_ms()}.{self._ids.token_bytes(NONCE_BYTES).hex()}"
        proof = self._keys.sign(url, ref, asked, stamp)
        headers = [
            (b"host", url.partition("//")[2].encode()),
            (b"authorization", f"{SCHEME} {stamp}.{proof.hex()}".encode()),
            (QUERY_HEADER.encode(), asked.encode()),
        ]
        answer_s = self._answer_timeout_s + wait_ms / 1_000
        timeouts = {"connect": CONNECT_TIMEOUT_S, "read": answer_s, "write": answer_s, "pool": answer_s}
        try:
            reply = await self._pool.request("GET", url + PATH + ref, headers=headers, extensions={"timeout": timeouts})
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as error:
            raise VideoUnavailableError(f"the server that has the input: {type(error).__name__}") from error
        if reply.status == 404:
            return None
        if reply.status != 200:
            raise VideoUnavailableError(f"the server that has the input answered {reply.status}")
        return proof, reply.content

    def _open(self, answer: tuple[bytes, bytes], read: Callable[[Header, bytes], R]) -> R:
        proof, body = answer
        try:
            clear = self._keys.answer_cipher(proof).decrypt(body[:GCM_NONCE_BYTES], body[GCM_NONCE_BYTES:], None)
            end = LENGTH_BYTES + int.from_bytes(clear[:LENGTH_BYTES])
            return read(orjson.loads(clear[LENGTH_BYTES:end]), clear[end:])
        except (InvalidTag, ValueError, LookupError, TypeError) as error:
            raise VideoUnavailableError("the answer to a request for a frame is not authentic") from error
