"""A JSON-RPC client for Ethereum nodes on httpx: single calls and batches, with deadlines and backoff.

Reads are retried when the endpoint does not answer. A transaction is sent once: the caller must see each outcome,
because a missing answer does not mean that the node refused it.

With several endpoints, a read goes to the first healthy one, and to the next when that one fails or is slow. A
transaction goes to all. Their heads are compared at intervals, so that one that lags answers no reads.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from types import MappingProxyType
from typing import Any, Final, Generic, NoReturn, TypeAlias, TypeVar, final

import httpx
import trio
from typing_extensions import override

from sightline.chain.rpc.guests import CPU_HEADER, GUEST_HEADER
from sightline.chain.rpc.health import EndpointFault, EndpointHealth, names_of, newest_head, urls_in
from sightline.domain.errors import ChainUnavailableError
from sightline.domain.value import Value, replace
from sightline.ports.ids import Ids
from sightline.system.loops import run_forever

Request: TypeAlias = tuple[str, list[Any]]

BATCH_MAX: Final = 100
REPLY_BYTES_MAX: Final = 64 << 20
"""A page of logs of a busy contract has some MB."""
TOO_MANY_REQUESTS: Final = 429
BROADCAST_GRACE_S: Final = 0.5
"""How long a broadcast waits for the other endpoints after the first one has answered."""
# Error texts with which nodes say that they already know this transaction or another one with its nonce. The
# transaction may still be mined, so the sender must look for it.
_PERHAPS_SENT: Final = (
    "already known", "known transaction", "already imported", "nonce too low", "replacement transaction underpriced",
    "already exists", "already in mempool",
)  # fmt: skip

_ABOUT_HEAD: Final[Sequence[Request]] = (("eth_chainId", []), ("eth_blockNumber", []))

ResultT = TypeVar("ResultT")


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
class RpcOptions(Value, kw_only=True):
    """Deadlines, retries and backoff of the client."""

    timeout_ms: int = 5_000
    tries: int = 4
    """Maximum number of tries of a read, the first one included."""
    backoff_ms_min: int = 100
    backoff_ms_max: int = 5_000
    throttled_ms: int = 1_000
    """Minimum wait after HTTP 429."""
    failover_ms: int = 1_500
    """Time without an answer after which a read is also sent to the next endpoint."""
    heads_every_ms: int = 2_000
    """Interval at which the heads of several endpoints are compared."""
    left_out_ms: int = 60_000
    """How long an endpoint that failed answers no reads, if another one does."""


def backoff_ms(ids: Ids, failures: int, *, least_ms: int, most_ms: int) -> int:
    """Return a wait with full jitter: uniform between 0 and least x 2^failures, at most `most_ms`."""
    ceiling: int = min(most_ms, least_ms << min(failures, 20))
    return int.from_bytes(ids.token_bytes(4), "big") * ceiling >> 32


@final
class Forwarded(Value):
    """A node's answer to a forwarded body, and the CPU time in ms that it says it took; None if it does not say."""

    body: bytes
    cpu_ms: int | None


@final
class RpcEndpoint:
    """One endpoint: each request is sent once, within the deadline."""

    def __init__(self, http: httpx.AsyncClient, url: str, options: RpcOptions, health: EndpointHealth) -> None:
        self._http = http
        self._url = url
        self._options = options
        self.health = health

    async def batch(self, requests: Sequence[Request]) -> list[Any]:
        """Return the results of several requests in order; an error of one is an RpcResponseError value.

        Raises:
            ChainUnavailableError: The endpoint did not answer; it may have carried out some or all requests.
        """
        results: list[Any] = []
        for start in range(0, len(requests), BATCH_MAX):
            results += await self._post(requests[start : start + BATCH_MAX])
        return results

    async def forward(self, body: bytes, reply_bytes_max: int) -> Forwarded:
        """Forward the body of a guest, see `JsonRpc.forward`."""
        response, content = await self._exchange(body, reply_bytes_max, {GUEST_HEADER: "1"})
        cpu_ms = response.headers.get(CPU_HEADER, "")
        return Forwarded(content, int(cpu_ms) if cpu_ms.isdecimal() else None)

    async def ask_head(self, chain_id: int | None) -> None:
        """Ask for the newest block, and record the answer. Of another chain than `chain_id` it is a fault."""
        self.health.head = None
        try:
            with trio.fail_after(self._options.failover_ms / 1000):
                served, head = [int(answer, 16) for answer in await self._post(_ABOUT_HEAD)]
        except (ChainUnavailableError, TypeError, ValueError, trio.TooSlowError) as error:
            reason = "no answer in time" if isinstance(error, trio.TooSlowError) else str(error)
            self.health.leave_out(EndpointFault.UNREACHABLE, reason)
            return
        if chain_id not in (None, served):
            self.health.leave_out(EndpointFault.OTHER_CHAIN, f"its chain id is {served}, not {chain_id}")
        else:
            self.health.answered(head)

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


@final
class JsonRpc:
    """A client of one chain with one or several endpoints. Create it with `open_rpc`."""

    def __init__(self, http: httpx.AsyncClient, url: str, options: RpcOptions, ids: Ids) -> None:
        """Args: url: one URL, or a comma list in the order in which they are asked."""
        urls = urls_in(url)
        self.endpoints: Final = [
            RpcEndpoint(http, each, options, EndpointHealth(name, left_out_s=options.left_out_ms / 1000))
            for each, name in zip(urls, names_of(urls), strict=True)
        ]
        self.chain_id: int | None = None
        """Endpoints with another chain id answer no reads; None: any."""
        self._options = options
        self._ids = ids
        self._asked: Sequence[RpcEndpoint] = self.endpoints
        """Those that answer reads, in the order in which they are asked."""

    def from_last(self) -> "JsonRpc":
        """Return a client of the same endpoints whose reads begin with the last one: a second opinion."""
        return self._asking(self.endpoints[::-1], self._options)

    def each_alone(self) -> dict[RpcEndpoint, "JsonRpc"]:
        """Return a client for each endpoint whose reads only this one answers; a read that fails is not repeated."""
        once = replace(self._options, tries=1)
        return {endpoint: self._asking([endpoint], once) for endpoint in self.endpoints}

    def _asking(self, endpoints: Sequence[RpcEndpoint], options: RpcOptions) -> "JsonRpc":
        other = copy(self)
        other._asked, other._options = endpoints, options  # noqa: SLF001  # of this class
        return other

    @property
    def has_several(self) -> bool:
        """Whether there is a second endpoint, whose answer can be compared with the first one's."""
        return len(self.endpoints) > 1

    async def call(self, method: str, *params: Any) -> Any:
        """Return the result of a read.

        Raises:
            RpcResponseError: The node answered with an error.
            ChainUnavailableError: No endpoint answered any try.
        """
        (result,) = await self.batch([(method, list(params))])
        if isinstance(result, RpcResponseError):
            raise result
        return result

    async def batch(self, requests: Sequence[Request]) -> list[Any]:
        """Return the results of several reads in order; the error of one read is returned as an RpcResponseError value.

        At most 100 requests are answered by one endpoint at one time.

        Raises:
            ChainUnavailableError: Not all reads were answered.
        """
        results: list[Any] = []
        for start in range(0, len(requests), BATCH_MAX):
            results += await self._persistently(requests[start : start + BATCH_MAX])
        return results

    async def send_once(self, requests: Sequence[Request]) -> list[Any]:
        """Send a batch like `batch`, without a retry, to every endpoint.

        A request succeeded if one endpoint took it, whatever the others say.

        Raises:
            ChainUnavailableError: No endpoint answered; each may have carried out some or all requests.
        """
        if not self.has_several:
            return await self.endpoints[0].batch(requests)
        answers: list[list[Any]] = []
        failure = ChainUnavailableError("no endpoint answers")

        async def send(endpoint: RpcEndpoint) -> None:
            nonlocal failure
            try:
                answers.append(await endpoint.batch(requests))
            except ChainUnavailableError as error:
                endpoint.health.leave_out(EndpointFault.UNREACHABLE, str(error))
                failure = error
            else:
                scope = nursery.cancel_scope
                scope.deadline = min(scope.deadline, trio.current_time() + BROADCAST_GRACE_S)

        async with trio.open_nursery() as nursery:
            for endpoint in self.endpoints:
                nursery.start_soon(send, endpoint)
        if not answers:
            raise failure
        return [_best(each) for each in zip(*answers, strict=True)]

    async def forward(self, body: bytes, *, reply_bytes_max: int | None = None) -> Forwarded:
        """Forward the body of a guest to a node and return its answer; neither is parsed.

        A second endpoint may get the same body: nodes know a transaction that was sent twice.

        Raises:
            ChainUnavailableError: No endpoint answered.
            ReplyTooLargeError: The answer is longer than `reply_bytes_max`. If its Content-Length says so, it is not
                read.
        """
        return await self._first(lambda endpoint: endpoint.forward(body, reply_bytes_max or REPLY_BYTES_MAX))

    async def compare_heads(self) -> None:
        """Ask every endpoint for its newest block, and leave those out that lag."""
        async with trio.open_nursery() as nursery:
            for endpoint in self.endpoints:
                nursery.start_soon(endpoint.ask_head, self.chain_id)
        heads = [endpoint.health.head for endpoint in self.endpoints if endpoint.health.head is not None]
        for endpoint in self.endpoints:
            endpoint.health.compare(newest_head(heads) if heads else 0)

    async def keep_comparing_heads(self) -> NoReturn:
        """Compare the heads at intervals until cancelled."""
        await run_forever("chain_heads", self.compare_heads, every_s=self._options.heads_every_ms / 1000)

    async def _persistently(self, requests: Sequence[Request]) -> list[Any]:
        options = self._options
        failures = 0
        while True:
            try:
                return await self._first(lambda endpoint: endpoint.batch(requests))
            except ChainUnavailableError as error:
                failures += 1
                if failures >= options.tries:
                    raise
                least = options.throttled_ms if isinstance(error.__cause__, _ThrottledError) else 0
                wait_ms = backoff_ms(
                    self._ids, failures, least_ms=options.backoff_ms_min, most_ms=options.backoff_ms_max
                )
                await trio.sleep((least + wait_ms) / 1000)

    def _in_turn(self) -> Sequence[RpcEndpoint]:
        """Return the endpoints that answer reads now, in the order in which they are asked."""
        usable = [each for each in self._asked if not each.health.is_left_out]
        return [each for each in usable if not each.health.is_lagging] or usable or self._asked

    async def _first(self, ask: Callable[[RpcEndpoint], Awaitable[ResultT]]) -> ResultT:
        """Ask one endpoint, and the next when it fails or is slow; return the first answer.

        Raises:
            ChainUnavailableError: None answered.
            ReplyTooLargeError: The first answer was too long.
        """
        endpoints = self._in_turn()
        if not self.has_several:
            try:
                return await ask(endpoints[0])
            except ChainUnavailableError:
                endpoints[0].health.faults[EndpointFault.UNREACHABLE] += 1
                raise
        race = _Race(ask)
        async with trio.open_nursery() as nursery:
            for endpoint in endpoints:
                race.asked(endpoint)
                nursery.start_soon(race.run, endpoint)
                with trio.move_on_after(self._options.failover_ms / 1000):
                    await race.wait()
                if race.is_won:
                    break
            while race.waiting and not race.is_won:
                await race.wait()
            nursery.cancel_scope.cancel()
        return race.result()


@final
class _Race(Generic[ResultT]):
    """A read that several endpoints answer: the first answer counts, and those that are slower lose."""

    def __init__(self, ask: Callable[[RpcEndpoint], Awaitable[ResultT]]) -> None:
        self._ask = ask
        self._won: list[ResultT] = []
        self._failure: ChainUnavailableError | ReplyTooLargeError = ChainUnavailableError("no endpoint answers")
        self._news = trio.Event()
        self.waiting: list[RpcEndpoint] = []

    @property
    def is_won(self) -> bool:
        """Whether an endpoint has answered, or another one would answer the same."""
        return bool(self._won) or isinstance(self._failure, ReplyTooLargeError)

    def asked(self, endpoint: RpcEndpoint) -> None:
        """Add an endpoint."""
        self.waiting.append(endpoint)

    async def run(self, endpoint: RpcEndpoint) -> None:
        """Ask one endpoint."""
        try:
            answer = await self._ask(endpoint)
        except ChainUnavailableError as error:
            endpoint.health.leave_out(EndpointFault.UNREACHABLE, str(error))
            self._failure = error
            self.waiting.remove(endpoint)
        except ReplyTooLargeError as error:
            self._failure = error
        else:
            self.waiting.remove(endpoint)
            if not self._won:
                self._won.append(answer)
                for slower in self.waiting:
                    slower.health.leave_out(EndpointFault.UNREACHABLE, "another endpoint was faster by the time-out")
        self._news.set()

    async def wait(self) -> None:
        """Wait until one more endpoint has answered or failed."""
        await self._news.wait()
        self._news = trio.Event()

    def result(self) -> ResultT:
        """Return the first answer, or raise the last failure."""
        if self._won:
            return self._won[0]
        raise self._failure


def is_perhaps_sent(error: RpcResponseError) -> bool:
    """Return whether a node's refusal says that it already has the transaction, or another one with its nonce."""
    return any(text in error.message.lower() for text in _PERHAPS_SENT)


def _best(answers: Sequence[Any]) -> Any:
    """Return the answer of the endpoint that took a transaction; else one that has it, perhaps; else a refusal."""
    errors = [answer for answer in answers if isinstance(answer, RpcResponseError)]
    taken = [answer for answer in answers if not isinstance(answer, RpcResponseError)]
    known = [error for error in errors if is_perhaps_sent(error)]
    return [*taken, *known, *errors][0]


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
    """Open a client of one endpoint, or of a comma list, and close it at the end. It uses no proxy and follows no
    redirect.
    """
    limits = httpx.Limits(max_connections=32, max_keepalive_connections=32)
    # Loading the certificate authorities takes 0.1 s and is not needed on loopback.
    verify = any(not each.startswith("http://") for each in urls_in(url))
    async with httpx.AsyncClient(timeout=None, trust_env=False, limits=limits, verify=verify) as http:  # noqa: S113  # fail_after
        rpc = JsonRpc(http, url, options, ids)
        if not rpc.has_several:
            yield rpc
            return
        await rpc.compare_heads()
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rpc.keep_comparing_heads)
            try:
                yield rpc
            except Exception as error:  # noqa: BLE001  # raised below: the nursery would wrap it in a group
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
