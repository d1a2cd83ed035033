"""One pipeline for every call, whichever door it came through.

Order of checks: route (404, 405) -> credential (401) -> selection (400) -> kind, scope, role, origin (403)
-> rate (429) -> Idempotency-Key, path, query, body (400, 415) -> handler. See docs/adr/0021-http-pipeline.md.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, final
from urllib.parse import parse_qs

import structlog
import trio
from msgspec import Struct, field

from sightline.domain.access import ApiKeyPrincipal, Principal, WalletPrincipal, budget_of, opens_only
from sightline.domain.errors import OutcomeUnknownError, RefusedError, StoreUnavailableError, UnavailableError
from sightline.domain.refusal import Code
from sightline.domain.value import Value
from sightline.http.budgets import RateClass
from sightline.http.pipeline.call import Call, Emit, JsonObject, Raw, Reply, Stream, TextHeaders
from sightline.http.pipeline.envelope import success
from sightline.http.pipeline.errors import NOT_A_PAGE, ApiError, default_headers, refused, request_id_of, to_api_error
from sightline.http.pipeline.headers import Headers
from sightline.http.pipeline.json_body import parse_json
from sightline.http.pipeline.options import PipelineOptions, PipelineServices
from sightline.http.pipeline.rate_limit import RateLimiter, address_key
from sightline.http.pipeline.router import Match, Router, check_params
from sightline.http.pipeline.routes import AnyRoute, Result, Route, SocketRoute
from sightline.http.recent_failures import is_store_failure
from sightline.http.server import MADE_OF_HEAD, Scope
from sightline.http.server import Headers as RawHeaders

_IDEMPOTENCY_KEY: Final = re.compile(r"[!-~]([ -~]{0,253}[!-~])?\Z")
_JSON: Final = b"application/json"
_READS: Final = ("GET", "HEAD")
"""Methods that promise to change nothing."""
_NO_STORE: Final = (b"cache-control", b"no-store")
_QUERY_FIELDS_MAX: Final = 200
_UNKNOWN_ROUTE: Final = "unknown"
_OF_SESSION: Final = (
    "/api/v1/sessions/{id}",
    "/api/v1/settlements/{sessionId}",
    "/api/v1/x402/views/{id}",
    "/internal/admin/sessions/{id}",
)
"""Beginnings of the routes that are about one session. Their access lines name it."""


@final
class Incoming(Struct):
    """What came in, and what is learnt of it on the way."""

    method: str
    path: str
    raw_path: bytes
    query_string: bytes
    headers: Headers
    body: bytes
    scheme: str
    client: tuple[str, int]
    server: str
    request_id: str
    started_s: float
    route: AnyRoute | None = None
    template: str = _UNKNOWN_ROUTE
    """The path of the route, with the names of its parameters."""
    principal: Principal | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    rate_headers: RawHeaders = field(default_factory=list)
    is_store_failure: bool = False
    """The call failed because of the database."""
    cause: str | None = None
    """Which dependency failed and how, for the access line of a 503 or 504."""

    @property
    def client_ip(self) -> str:
        """The client's address."""
        return self.client[0]


@final
class Outgoing(Value):
    """What goes out. A Stream as body is logged when it ends."""

    status: int
    headers: RawHeaders
    body: bytes | Stream
    code: Code | None = None


@final
class Pipeline:
    """Checks, calls, maps, logs. Holds no state but the buckets."""

    def __init__(self, router: Router, edge: PipelineServices, options: PipelineOptions) -> None:
        self.router = router
        self._edge = edge
        self._options = options
        self._limiter = RateLimiter(options.rate_limits, edge.rate_sharing)
        self._standing = default_headers(options.strict_transport_s)
        self._log = structlog.get_logger().bind()  # bound once: each call writes a line
        self._heartbeats = 0

    def request_of(self, scope: Scope, body: bytes) -> Incoming:
        """Read an ASGI scope."""
        headers = _headers_of(scope)
        client = scope.get("client") or ("", 0)
        host, port = scope.get("server") or ("localhost", 0)
        return Incoming(
            method=scope.get("method", "GET"),
            path=scope["path"],
            raw_path=scope.get("raw_path") or scope["path"].encode(),
            query_string=scope["query_string"],
            headers=headers,
            body=body,
            scheme="https" if scope["scheme"] in ("https", "wss") else "http",
            client=(client[0], client[1]),
            server=f"{host}:{port}",
            request_id=request_id_of(headers.get("x-request-id"), self._edge.ids),
            started_s=trio.current_time(),
        )

    async def answer(self, request: Incoming, match: Match | None = None) -> Outgoing:
        """Answer a request. Only cancellation leaves this as an exception."""
        try:
            if match is None:
                match = self.router.match(request.method, request.raw_path)
            route = match.route
            assert isinstance(route, Route)
            outgoing = self._render(request, await route.handler(await self.admit(request, match)))
        except Exception as error:  # noqa: BLE001 (mapped, and logged if nobody foresaw it)
            outgoing = self.failed(request, error)
        if not isinstance(outgoing.body, Stream):
            self.finished(request, outgoing)
        return outgoing

    async def admit(self, request: Incoming, match: Match) -> Call:
        """Run every check before the handler.

        Raises:
            ApiError, RefusedError: The first check that fails.
        """
        route = request.route = match.route
        request.template = route.path
        self._options.access.check(request.headers, route)
        if route.operation is not None:
            # Before the call reads anything: a value that was true at this moment is a correct answer to this call.
            if not self._edge.owns_data():
                raise StoreUnavailableError("this server has not reached its database for seconds")
            principal = await self._authenticate(request, route)
            request.principal = principal
            request.principal = await self._edge.authorize(principal, route.operation)
        if not isinstance(request.principal, ApiKeyPrincipal):  # a browser sends cookies unasked, never a key
            self._check_origin(request, route)
        if route.rate is not RateClass.NONE:
            request.rate_headers = self._limiter.take(route.rate, _rate_key(request, match), request.started_s)
        key = self._idempotency_key(request, route)
        params = request.params = check_params(match)
        if request.principal is not None:
            other = opens_only(request.principal, _session_named(route.path, params))
            if other is not None:
                raise refused(other)
        query = body = None
        if isinstance(route, Route):
            query = None if route.query is None else route.query.parse(_query_fields(request.query_string))
            body = _parse_body(route, request)
        return Call(
            method=request.method,
            path=request.path,
            query_string=request.query_string,
            params=params,
            query=query,
            body=body,
            raw_body=request.body,
            headers=request.headers,
            principal=request.principal,
            request_id=request.request_id,
            idempotency_key=key,
            base_url=partial(self.base_url, request),
            client=request.client,
            take=partial(self._take, request),
            charge_rate=partial(self._charge_rate, request),
            rate_wait_s=self._rate_wait_s,
        )

    async def _authenticate(self, request: Incoming, route: AnyRoute) -> Principal:
        """Who is calling. Too many refused credentials of one address are told to wait.

        The limit is looked at after the refusal, so that callers with good credentials behind the same address never
        meet it.
        """
        ticket = _ticket(request) if route.takes_ticket else None
        try:
            if ticket is not None:
                assert self._edge.tickets is not None
                authorization = await self._edge.tickets.redeem(ticket, request.path)
                request.headers = request.headers.having("authorization", authorization)
            return await self._edge.authenticate(request.headers)
        except RefusedError:
            sent = (request.headers.get("authorization"), request.headers.get("cookie"), ticket)
            if any(each is not None for each in sent):
                self._limiter.take(RateClass.FAILED, address_key(request.client_ip), request.started_s)
            raise

    async def while_authorized(self, request: Incoming, work: Callable[[], Awaitable[None]]) -> None:
        """Run the work of a stream or WebSocket, and check its credential again every `recheck_s`.

        An unavailable dependency does not end the work: the next check decides.

        Raises:
            RefusedError: The credential was refused; the work has been cancelled.
        """
        route = request.route
        assert route is not None, "the request was admitted"
        operation = route.operation
        ended: Exception | None = None

        async def recheck() -> None:
            nonlocal ended
            while operation is not None:
                await trio.sleep(self._options.recheck_s)
                try:
                    await self._edge.authorize(await self._edge.authenticate(request.headers), operation)
                except UnavailableError:
                    continue
                except RefusedError as error:
                    ended = error
                    checks.cancel_scope.cancel()
                    return

        async with trio.open_nursery() as checks:
            checks.start_soon(recheck)
            try:
                await work()
            except Exception as error:  # noqa: BLE001  raised again below, outside of the nursery that would wrap it
                ended = error
            checks.cancel_scope.cancel()
        if ended is not None:
            raise ended

    async def _write_while_authorized(self, request: Incoming, stream: Stream, emit: Emit) -> None:
        try:
            await self.while_authorized(request, partial(stream.write, emit))
        except RefusedError:
            return  # the status line is out: the stream ends, and the next request is told why

    def _take(self, request: Incoming, rate: RateClass, key: str, cost: int) -> None:
        request.rate_headers = self._limiter.take(rate, key, trio.current_time(), cost=cost)

    def _charge_rate(self, request: Incoming, rate: RateClass, key: str, cost: int) -> None:
        request.rate_headers = self._limiter.charge(rate, key, trio.current_time(), cost=cost)

    def _rate_wait_s(self, rate: RateClass, key: str) -> float:
        return self._limiter.wait_s(rate, key, trio.current_time())

    def base_url(self, request: Incoming) -> str:
        """How the caller reached us."""
        if self._options.public_url is not None:
            return self._options.public_url
        return f"{request.scheme}://{request.headers.get('host') or request.server}"

    def _check_origin(self, request: Incoming, route: AnyRoute) -> None:
        is_socket = isinstance(route, SocketRoute)
        if isinstance(route, Route) and not (route.is_unsafe and route.checks_origin):
            return
        own = {f"{request.scheme}://{request.headers.get('host') or request.server}"}
        if self._options.public_url is not None:
            own.add(self._options.public_url)
        refusal = self._edge.check_origin(request.principal, request.method, request.headers, frozenset(own), is_socket)
        if refusal is not None:
            raise refused(refusal)

    def _idempotency_key(self, request: Incoming, route: AnyRoute) -> str | None:
        if not isinstance(route, Route) or not route.is_unsafe:
            return None
        key = request.headers.get("idempotency-key")
        if key is None:
            return None
        if not _IDEMPOTENCY_KEY.match(key):
            raise ApiError(
                Code.INVALID_INPUT,
                "idempotency:key",
                "Idempotency-Key must have 1 to 255 visible ASCII characters; spaces may be within",
            )
        return key

    def _render(self, request: Incoming, result: Result) -> Outgoing:
        match result:
            case Reply(data=data, at_ms=at, headers=headers):
                at_ms = self._edge.clock.now_ms() if at is None else at
                return self._envelope(request, data, at_ms, headers)
            case Raw(status=status, headers=headers, body=body):
                outgoing = self._outgoing(request, status, _encode(headers), body)
                if outgoing.headers[0][0] == b"content-security-policy":  # a page and its own policy
                    outgoing.headers.remove((b"content-security-policy", NOT_A_PAGE))
                return outgoing
            case Stream(headers=headers):
                write = partial(self._write_while_authorized, request, result)
                return self._outgoing(request, 200, _encode(headers), Stream(write))

    def _envelope(self, request: Incoming, data: JsonObject, at_ms: int, headers: TextHeaders) -> Outgoing:
        sent: RawHeaders = [(b"content-type", _JSON)]
        if headers:
            sent.extend(_encode(headers))
        if not headers or not any(name.lower() == "cache-control" for name, _ in headers):
            sent.append(_NO_STORE)
        if request.method in _READS and _is_unchanged(request, sent):
            return self._outgoing(request, 304, [pair for pair in sent if pair[0] != b"content-type"], b"")
        return self._outgoing(request, 200, sent, success(data, at_ms))

    def _outgoing(
        self, request: Incoming, status: int, headers: RawHeaders, body: bytes | Stream, code: Code | None = None
    ) -> Outgoing:
        headers.append((b"x-request-id", request.request_id.encode("ascii")))
        headers.extend(self._standing)
        headers.extend(request.rate_headers)
        return Outgoing(status, headers, body, code)

    def failed(self, request: Incoming, error: Exception) -> Outgoing:
        """Return the error response. An unexpected exception is logged and answered as an internal error."""
        mapped = to_api_error(error, is_read=request.method in _READS)
        if mapped is None:
            self._log.error("http_call_failed", request_id=request.request_id, route=request.template, exc_info=error)
            mapped = ApiError(Code.INTERNAL_ERROR)
        request.is_store_failure = mapped.status >= 500 and is_store_failure(error)
        if isinstance(error, UnavailableError | OutcomeUnknownError):
            request.cause = str(error)
        headers: RawHeaders = [(b"content-type", _JSON), _NO_STORE, *mapped.headers]
        if any(name == b"ratelimit" for name, _ in mapped.headers):
            request.rate_headers = []  # another budget than the call's own is the one that is used up
        is_oauth = isinstance(request.route, Route) and request.route.is_oauth
        body = mapped.oauth_body() if is_oauth else mapped.body(self._edge.clock.now_ms())
        return self._outgoing(request, mapped.status, headers, body, mapped.code)

    def finished(self, request: Incoming, outgoing: Outgoing) -> None:
        """Count the call and log it, once per call. Successful heartbeats are counted all, and logged one in N."""
        seconds = trio.current_time() - request.started_s
        template = request.template
        self._edge.observe(template, request.method, outgoing.status, seconds)
        if self._edge.failures is not None and request.route is not None and request.route.operation is not None:
            self._edge.failures.note(failed=request.is_store_failure)
        fields: dict[str, Any] = {}
        if outgoing.code is None and request.route is not None and request.route.rate is RateClass.LOCATION:
            every = self._options.log_heartbeat_every
            self._heartbeats += 1
            if every == 0 or self._heartbeats % every:
                return
            if every > 1:
                fields["one_in"] = every
        principal = request.principal
        if isinstance(principal, ApiKeyPrincipal):
            fields |= {"key_id": principal.key_id, "workspace_id": principal.workspace_id}
        elif principal is not None:
            fields |= {"wallet_address": principal.wallet_address, "workspace_id": principal.workspace_id}
        session_id = _session_named(template, request.params)
        if session_id is not None:
            fields["session_id"] = session_id
        if outgoing.code is not None:
            fields["code"] = outgoing.code.value
        if request.cause is not None:
            fields["cause"] = request.cause
        self._log.info(
            "http_call",
            request_id=request.request_id,
            method=request.method,
            route=template,
            status=outgoing.status,
            client_ip=request.client_ip,
            duration_ms=int(seconds * 1_000_000) / 1_000,  # a tenth of what `round` costs
            **fields,
        )


def _session_named(template: str, params: Mapping[str, str]) -> str | None:
    """The session in the path of a call; None if the call is not about one."""
    if not template.startswith(_OF_SESSION):
        return None
    return params.get("sessionId" if "{sessionId}" in template else "id")


def _headers_of(scope: Scope) -> Headers:
    """Made once for all requests of a connection that have the same head."""
    kept: dict[str, Headers] | None = (scope.get("extensions") or {}).get(MADE_OF_HEAD)
    if kept is None:
        return Headers(scope["headers"])
    headers = kept.get("headers")
    if headers is None:
        headers = kept["headers"] = Headers(scope["headers"])
    return headers


def _ticket(request: Incoming) -> str | None:
    """The stream ticket of the URL. An Authorization header takes precedence."""
    if b"ticket=" not in request.query_string or request.headers.get("authorization") is not None:
        return None
    tickets = _query_fields(request.query_string).get("ticket")
    return None if tickets is None else tickets[0]


def _rate_key(request: Incoming, match: Match) -> str:
    """The bucket of a request: the caller's share link, else its workspace, else its wallet, else its address."""
    principal = request.principal
    if match.route.rate is RateClass.AUTH or principal is None:
        return address_key(request.client_ip)
    budget = budget_of(principal)
    if budget is not None:
        return budget
    assert isinstance(principal, WalletPrincipal)
    return principal.wallet_address


def _query_fields(query_string: bytes) -> dict[str, list[str]]:
    try:
        text = query_string.decode("ascii")
        return parse_qs(text, keep_blank_values=True, errors="strict", max_num_fields=_QUERY_FIELDS_MAX)
    except ValueError as error:
        raise ApiError(Code.INVALID_INPUT, "query:encoding") from error


def _parse_body(route: Route, request: Incoming) -> Any:
    if route.raw_body:
        if _media_type(request.headers.get("content-type")) not in route.raw_body:
            raise _unsupported(route.raw_body)
        return None
    if route.body is None:
        return None
    sent = request.headers.get("content-type")
    if not request.body and (sent is None or not route.body_required):
        return route.body.parse({})  # names the first field that is missing
    if sent != "application/json" and _media_type(sent) != "application/json":
        raise _unsupported(("application/json",))
    return route.body.parse(parse_json(request.body))


def _media_type(content_type: str | None) -> str:
    return (content_type or "").partition(";")[0].strip().lower()


def _unsupported(accepted: tuple[str, ...]) -> ApiError:
    accept = ", ".join(accepted)
    return ApiError(
        Code.INVALID_INPUT,
        "body:contentType",
        f"Unsupported content type. Send the body as {accept}",
        status=415,
        headers=[(b"accept", accept.encode("ascii"))],
    )


def _is_unchanged(request: Incoming, headers: RawHeaders) -> bool:
    wanted = request.headers.get("if-none-match")
    if wanted is None:
        return False
    etag = next((value.decode("latin-1") for name, value in headers if name == b"etag"), None)
    named = {each.strip().removeprefix("W/") for each in wanted.split(",")}
    return etag is not None and (etag.removeprefix("W/") in named or "*" in named)


def _encode(headers: TextHeaders) -> RawHeaders:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
