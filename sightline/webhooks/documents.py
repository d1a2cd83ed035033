"""Reads small documents that strangers name by URL, with the checks of webhooks: public addresses, no redirects."""

import ssl
from typing import Final, final

import httpcore
import structlog
import trio

from sightline.webhooks.http_client import (
    AddressRefusedError,
    CheckedNetwork,
    NameNotResolvedError,
    WebhookClientOptions,
)

log = structlog.get_logger()
TIMEOUT_S: Final = 5.0
"""For resolving, connecting, and the whole answer."""
AT_ONCE: Final = 8


@final
class PublicDocuments:
    """Gets documents. Connections are not kept."""

    def __init__(self, options: WebhookClientOptions, *, bytes_max: int) -> None:
        self._options = options
        self._bytes_max = bytes_max
        self._free = trio.CapacityLimiter(AT_ONCE)

    async def get(self, url: str) -> bytes | None:
        """Get a JSON document. None if there is none, it is too long, or its server does not answer in time."""
        network = CheckedNetwork(
            self._options.resolve, self._options.network, allows_loopback=self._options.allows_loopback
        )
        headers = [("accept", "application/json"), ("user-agent", "Sightline/1")]
        try:
            with trio.fail_after(TIMEOUT_S):
                async with (
                    self._free,
                    httpcore.AsyncConnectionPool(
                        ssl_context=self._options.ssl_context, network_backend=network, max_keepalive_connections=0
                    ) as pool,
                    pool.stream("GET", url, headers=headers) as answer,
                ):
                    return await self._body(answer) if answer.status == 200 else None
        except (
            AddressRefusedError,
            NameNotResolvedError,
            trio.TooSlowError,
            httpcore.TimeoutException,
            httpcore.NetworkError,
            httpcore.ProtocolError,
            httpcore.UnsupportedProtocol,
            ssl.SSLError,
        ) as error:
            log.info("document_not_read", url=url, reason=type(error).__name__)
            return None

    async def _body(self, answer: httpcore.Response) -> bytes | None:
        kept = b""
        # Cancelled, not left: the generators of httpcore end in order only where they wait for the network.
        with trio.CancelScope() as reading:
            async for part in answer.aiter_stream():
                kept += part
                if len(kept) > self._bytes_max:
                    reading.cancel()
        return None if reading.cancel_called else kept
