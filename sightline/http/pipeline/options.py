"""Options of the pipeline, and the Protocols that it needs."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias, final

from msgspec import field

from sightline.domain.access import Operation, Principal
from sightline.domain.refusal import Refusal
from sightline.domain.value import Value
from sightline.http.budgets import RateLimits
from sightline.http.pipeline.headers import Headers
from sightline.http.pipeline.listener_access import ListenerAccess
from sightline.http.pipeline.rate_limit import RateSharing
from sightline.http.pipeline.stream_tickets import StreamTickets
from sightline.http.recent_failures import RecentFailures
from sightline.ports.clock import Clock
from sightline.ports.ids import Ids

Authenticate: TypeAlias = Callable[[Headers], Awaitable[Principal]]
Authorize: TypeAlias = Callable[[Principal, Operation], Awaitable[Principal]]
Observe: TypeAlias = Callable[[str, str, int, float], None]


class CheckOrigin(Protocol):
    """The rule for requests that a browser makes with its cookies."""

    def __call__(
        self,
        principal: Principal | None,
        method: str,
        headers: Headers,
        own_origins: frozenset[str],
        is_websocket: bool,
        /,
    ) -> Refusal | None:
        """Refuse a request made by a page of another origin. `principal` None: a public call that sets a cookie."""
        ...


def _observe_nothing(route: str, method: str, status: int, seconds: float, /) -> None:
    del route, method, status, seconds


@final
class PipelineServices(Value, kw_only=True):
    """The services that the pipeline calls.

    `authenticate` and `authorize` raise RefusedError; `authorize` returns the principal with its current role.
    `observe` is called once for each request. `owns_data` says whether this server holds a valid lease on the database:
    without one, what it has in memory may be outdated. `tickets` is None where no route takes one. `rate_sharing`
    connects the rate limits of several servers. `failures` counts the calls that failed because of the database.
    """

    authenticate: Authenticate
    authorize: Authorize
    check_origin: CheckOrigin
    clock: Clock
    ids: Ids
    observe: Observe = _observe_nothing
    owns_data: Callable[[], bool] = lambda: True
    tickets: StreamTickets | None = None
    rate_sharing: RateSharing | None = None
    failures: RecentFailures | None = None


@final
class PipelineOptions(Value, kw_only=True):
    """Settings of the pipeline.

    `public_url` is the base URL of the server without a trailing slash; None uses the Host header of each request.
    `strict_transport_s` is the Strict-Transport-Security max-age in seconds; None omits the header.
    """

    public_url: str | None = None
    strict_transport_s: int | None = None
    access: ListenerAccess = field(default_factory=ListenerAccess)
    rate_limits: RateLimits = field(default_factory=RateLimits)
    recheck_s: float = 15.0
    """How often the credential of an open stream or WebSocket is checked again."""
    log_heartbeat_every: int = 1
    """One in N successful heartbeat calls is logged; 0 logs none."""
    version: str = "0.1.0"
    # How long calls that outlive their caller may take when the server stops.
    finish_s: float = 5.0
