"""A JSON-RPC client for Ethereum nodes on httpx: single calls and batches, with deadlines and backoff.

Reads are retried when the endpoint does not answer. A transaction is sent once: the caller must see each outcome,
because a missing answer does not mean that the node refused it.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias, final

import httpx
import trio
from typing_extensions import override

from sightline.chain.rpc.guests import CPU_HEADER, GUEST_HEADER
from sightline.domain.errors import ChainUnavailableError
from sightline.ports.ids import Ids

Request: TypeAlias = tuple[str, list[Any]]

BATCH_MAX: Final = 100
REPLY_BYTES_MAX: Final = 64 << 20
"""A page of logs of a busy contract has some MB."""
TOO_MANY_REQUESTS: Final = 429


class RpcResponseError(Exception):
    """The node answered with a JSON-RPC error: it refused the request, or it reports a failure of its own."""

    def __init__(self, code: int, message: str, data: bytes | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class ReplyTooLargeError(Exception):
    """The node's answer is longer than the caller's limit."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RpcOptions:
    """Deadlines, retries and backoff of the client."""

    timeout_ms: int = 5_000
    tries: int = 4
    """Maximum number of tries of a read, the first one included."""
    backoff_ms_min: int = 100
    backoff_ms_max: int = 5_000
    throttled_ms: int = 1_000
    """Minimum wait after HTTP 429."""


def backoff_ms(ids: Ids, failures: int, *, least_ms: int, most_ms: int) -> int:
    """Return a wait with full jitter: uniform between 0 and least x 2^failures, at most `most_ms`."""
    ceiling: int = min(most_ms, least_ms << min(failures, 20))
    return int.from_bytes(ids.token_bytes(4), "big") * ceiling >> 32


@final
@dataclass(frozen=True, slots=True)
class Forwarded:
    """A node's answer to a forwarded body, and the CPU time in ms that it says it took; None if it does not say."""

    body: bytes
    cpu_ms: int | None


@final
class JsonRpc:
    """A client of one endpoint. Create it with `open_rpc`."""

    def __init__(self, http: httpx.AsyncClient, url: str, options: RpcOptions, ids: Ids) -> None:
        self._http = http
        self._url = url
        self._options = options
        self._ids = ids

    async def call(self, method: str, *params: Any) -> Any:
        """Return the result of a read.

        Raises:
            RpcResponseError: The node answered with an error.
            ChainUnavailableError: The endpoint did not answer any try.
        """
        (result,) = await self.batch([(method, list(params))])
        if isinstance(result, RpcResponseError):
            raise result
        return result

    async def batch(self, requests: Sequence[Request]) -> list[Any]:
        """Return the results of several reads in order; the error of one read is returned as an RpcResponseError value.

        Raises:
            ChainUnavailableError: Not all reads were answered.
        """
        results: list[Any] = []
        for start in range(0, len(requests), BATCH_MAX):
            results += await self._persistently(requests[start : start + BATCH_MAX])
        return results

    async def send_once(self, requests: Sequence[Request]) -> list[Any]:
        """Send a batch like `batch`, without a retry.

        Raises:
            ChainUnavailableError: The endpoint did not answer; it may have carried out some or all requests.
        """
        results: list[Any] = []
        for start in range(0, len(requests), BATCH_MAX):
            results += await self._post(requests[start : start + BATCH_MAX])
        return results

    async def forward(self, body: bytes, *, reply_bytes_max: int | None = None) -> Forwarded:
        """Forward the body of a guest to the node and return its answer; neither is parsed.

        Raises:
            ChainUnavailableError: The endpoint did not answer.
            ReplyTooLargeError: The answer is longer than `reply_bytes_max`. If its Content-Length says so, it is not
                read.
        """
        response, content = await self._exchange(body, reply_bytes_max or REPLY_BYTES_MAX, {GUEST_HEADER: "1"})
        cpu_ms = response.headers.get(CPU_HEADER, "")
        return Forwarded(content, int(cpu_ms) if cpu_ms.isdecimal() else None)

    async def _persistently(self, requests: Sequence[Request]) -> list[Any]:
        options = self._options
        failures = 0
        while True:
            try:
                return await self._post(requests)
            except ChainUnavailableError as error:
                failures += 1
                if failures >= options.tries:
                    raise
                least = options.throttled_ms if isinstance(error.__cause__, _ThrottledError) else 0
                wait_ms = backoff_ms(
                    self._ids, failures, least_ms=options.backoff_ms_min, most_ms=options.backoff_ms_max
                )
                await trio.sleep((least + wait_ms) / 1000)

    async def _post(self, requests: Sequence[Request]) -> list[Any]:
        bodies = [
            {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            for number, (method, params) in enumerate(requests)
        ]
        try:
            _, content = await self._exchange(json.dumps(bodies if len(bodies) > 1 else bodies[0]).encode())
        except ReplyTooLargeError as error:
            raise ChainUnavailableError(str(error)) from error
        try:
            decoded = json.loads(content)
        except ValueError as error:
            raise ChainUnavailableError("the endpoint's answer is not JSON") from error
        return _in_order(decoded, len(bodies))

    async def _exchange(
        self, body: bytes, reply_bytes_max: int = REPLY_BYTES_MAX, extra: Mapping[str, str] = MappingProxyType({})
    ) -> tuple[httpx.Response, bytes]:
        try:
            with trio.fail_after(self._options.timeout_ms / 1000):
                headers = {"content-type": "application/json", "content-length": str(len(body)), **extra}
                request = self._http.build_request("POST", self._url, headers=headers)
                request.stream = _Body(body)
                response = await self._http.send(request, stream=True)
                try:
                    _require_small(int(response.headers.get("content-length") or 0), reply_bytes_max)
                    content, size = bytearray(), 0
                    async for piece in response.aiter_bytes():
                        size += len(piece)
                        if size <= reply_bytes_max:  # the rest is read, within the time, and dropped
                            content += piece
                    _require_small(size, reply_bytes_max)
                finally:
                    await response.aclose()
        except (httpx.HTTPError, trio.TooSlowError, OSError) as error:
            raise ChainUnavailableError(f"the endpoint does not answer: {type(error).__name__}") from error
        if response.status_code == TOO_MANY_REQUESTS:
            raise ChainUnavailableError("the endpoint limits our request rate (HTTP 429)") from _ThrottledError()
        if response.status_code >= 500 or not content:
            raise ChainUnavailableError(f"the endpoint answered HTTP {response.status_code}")
        return response, bytes(content)


def _require_small(length: int, most: int) -> None:
    if length > most:
        raise ReplyTooLargeError(f"the answer has {length} bytes; at most {most} are passed on")


@final
class _Body(httpx.AsyncByteStream):
    """A request body. httpx's own body is an async generator, which trio reports as unfinished on cancellation."""

    def __init__(self, body: bytes) -> None:
        self._left: list[bytes] = [body]

    @override
    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop()


class _ThrottledError(Exception):
    """The endpoint answered HTTP 429."""


def _in_order(decoded: Any, count: int) -> list[Any]:
    """Sort results by request number: the answers of a batch may come in any order."""
    answers = decoded if isinstance(decoded, list) else [decoded]
    by_number: dict[int, Any] = {}
    for answer in answers:
        if not isinstance(answer, dict):
            raise ChainUnavailableError("the endpoint's answer is not JSON-RPC")
        if answer.get("id") is None and "error" in answer:
            raise ChainUnavailableError(f"the endpoint refuses: {str(answer['error'])[:200]}")
        by_number[answer.get("id")] = _result(answer)  # type: ignore[index]
    if any(number not in by_number for number in range(count)):
        raise ChainUnavailableError("the endpoint did not answer every request of a batch")
    return [by_number[number] for number in range(count)]


def _result(answer: dict[str, Any]) -> Any:
    error = answer.get("error")
    if error is None:
        if "result" not in answer:
            raise ChainUnavailableError("the endpoint's answer has no result")
        return answer["result"]
    if not isinstance(error, dict):
        return RpcResponseError(0, str(error)[:500])
    return RpcResponseError(int(error.get("code") or 0), str(error.get("message"))[:500], _bytes(error.get("data")))


def _bytes(data: Any) -> bytes | None:
    """Return revert data, which nodes give as hex or inside an object."""
    if isinstance(data, dict):
        data = data.get("data") or data.get("result")
    if not isinstance(data, str):
        return None
    text = data.removeprefix("Reverted ").removeprefix("0x")
    try:
        return bytes.fromhex(text)
    except ValueError:
        return None


@asynccontextmanager
async def open_rpc(url: str, options: RpcOptions, ids: Ids) -> AsyncIterator[JsonRpc]:
    """Open a client of one endpoint and close it at the end. It uses no proxy and follows no redirect."""
    limits = httpx.Limits(max_connections=32, max_keepalive_connections=32)
    # Loading the certificate authorities takes 0.1 s and is not needed on loopback.
    verify = not url.startswith("http://")
    async with httpx.AsyncClient(timeout=None, trust_env=False, limits=limits, verify=verify) as http:  # noqa: S113  # fail_after
        yield JsonRpc(http, url, options, ids)
