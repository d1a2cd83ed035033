"""The client: one server, one credential."""

import os
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self

import httpx2

from sightline_client._sync.resources import Auth, Keys, Sessions, Wallets, Workspaces
from sightline_client._sync.transport import Transport
from sightline_client._sync.view import View
from sightline_client._sync.webhooks import Webhooks
from sightline_client.escrow import Payment, TypedDataSigner
from sightline_client.models import ChainConfig, Health, Identity, Quote, StreamTicket
from sightline_client.retry import RetryPolicy
from sightline_client.runtime import new_key
from sightline_client.wire import given, server_url, session_seconds, usable_key

DEFAULT_URL: Final = "http://127.0.0.1:8080"
TIMEOUT_S: Final = 35.0
"""Longer than the server's own limit for a call."""


class Sightline:
    """Client of a Sightline server.

    Args:
        url: URL of the server; default: SIGHTLINE_URL, else http://127.0.0.1:8080.
        key: API key; default: SIGHTLINE_API_KEY. Whitespace around it is removed. Without one, sign in with a wallet.
        retry: How failed calls are repeated; a change is repeated with the same Idempotency-Key. By default a server
            that is down is tried 8 times within 8 to 16 s before NotReachedError; `NO_RETRY` raises it at once.
        timeout_s: Longest time to wait for an answer.
        http: HTTP client to use in place of an own one; it is not closed.
        keys: Creates Idempotency-Keys.

    Raises:
        InvalidArgumentError: The URL is not http or https with a host, or the key has not the form of one.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        retry: RetryPolicy | None = None,
        timeout_s: float = TIMEOUT_S,
        http: httpx2.Client | None = None,
        keys: Callable[[], str] = new_key,
    ) -> None:
        address = server_url(url or os.environ.get("SIGHTLINE_URL") or DEFAULT_URL)
        self._owns_http = http is None
        self._http = httpx2.Client(timeout=timeout_s) if http is None else http
        self.transport = Transport(
            self._http,
            url=address,
            key=usable_key(key if key is not None else os.environ.get("SIGHTLINE_API_KEY")),
            retry=RetryPolicy() if retry is None else retry,
            keys=keys,
        )
        self.auth = Auth(self.transport)
        self.workspaces = Workspaces(self.transport)
        self.keys = Keys(self.transport)
        self.sessions = Sessions(self.transport)
        self.wallet = Wallets(self.transport)
        self.webhooks = Webhooks(self.transport)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.transport.url!r})"

    @property
    def url(self) -> str:
        """URL of the server."""
        return self.transport.url

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        if self._owns_http:
            self._http.close()

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> dict[str, Any]:
        """Make a call that has no method of its own, and return the `data` of the envelope.

        It is repeated like every other call, except that a change without `idempotency_key` is not repeated after a
        lost answer.
        """
        return self.transport.data(method, path, body=body, query=query, key=idempotency_key)

    def health(self) -> Health:
        """Read whether the server answers. Needs no credential."""
        return self.transport.get(Health, "/health")

    def config(self) -> ChainConfig:
        """Read the chain's addresses. Needs no credential."""
        return self.transport.get(ChainConfig, "/config")

    def me(self) -> Identity:
        """Return who the credential belongs to."""
        return self.auth.me()

    def quote(self, lat: float, lng: float, *, seconds: int = 300) -> Quote:
        """Get a price, valid for 120 s and for one session.

        Raises:
            InvalidArgumentError: seconds is below 1.
        """
        query = given(lat=lat, lng=lng, durationSeconds=session_seconds(seconds))
        return self.transport.get(Quote, "/pricing/quote", query)

    def stream_ticket(self, path: str) -> StreamTicket:
        """Get a ticket with which a browser opens one stream, once and within 30 s: add `?ticket=` to its URL.

        Args:
            path: Path of the stream, for example `/api/v1/sessions/{id}/events`.
        """
        return self.transport.change(StreamTicket, "POST", "/stream-tickets", {"path": path})

    def view(
        self,
        lat: float,
        lng: float,
        *,
        seconds: int = 300,
        quote: Quote | None = None,
        max_charge: int | None = None,
        radius_meters: int | None = None,
        instructions: str | None = None,
        operator_wait_s: float = 60.0,
        lease_s: int | None = 120,
        payer: TypedDataSigner | None = None,
        payment: Payment | None = None,
        require_coverage: bool = True,
        idempotency_key: str | None = None,
    ) -> View:
        """Watch a place: `with sl.view(lat, lng, seconds=300) as view`. Leaving the block ends the session.

        Args:
            seconds: Longest duration; the session ends by itself after it.
            quote: Price to use; default: a new quote.
            max_charge: Highest charge in micro-USDC, for example `usdc("0.50")`. If the price of `seconds` is higher,
                MaxChargeError is raised and nothing is requested.
            radius_meters: Radius of the geofence.
            instructions: Text for the operator.
            operator_wait_s: How long to wait for an available operator. The logger `sightline_client` warns when a wait
                begins; at INFO it also says when there is an operator.
            lease_s: The server ends the session when this program makes no call about it for so many seconds, 15 to
                600, so that a killed program is not charged for long. Frames, reads, an open event stream and a WHEP
                viewer count. Raise it if you pause longer between two frames; None: the session needs no calls.
            payer: Wallet that signs the payment of this session, where the server holds it in escrow.
            payment: A payment that was signed before, such as `sign_mandate(...)`.
            require_coverage: Take only operators whose coverage contains the place. False takes a distant operator if
                there is no other; its frames have `in_geofence` False, and the meter pauses.
            idempotency_key: Key of the session's creation.

        Raises:
            InvalidArgumentError: max_charge is not a whole number, such as 0.5, or seconds is below 1.
        """
        return View(
            self.transport,
            lat=lat,
            lng=lng,
            seconds=session_seconds(seconds),
            quote=quote,
            max_charge=max_charge,
            radius_meters=radius_meters,
            instructions=instructions,
            operator_wait_s=operator_wait_s,
            lease_s=lease_s,
            payer=payer,
            payment=payment,
            require_coverage=require_coverage,
            idempotency_key=idempotency_key,
        )
