"""Health of the RPC endpoints of one chain: which of them answer reads, and what was wrong with the others."""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, final
from urllib.parse import urlsplit

import structlog
import trio

log = structlog.get_logger()

LAG_BLOCKS: Final = 3
"""Number of blocks behind the newest head from which an endpoint lags. Healthy ones differ by a block or two."""
OUTVOTING: Final = 3
"""Number of endpoints from which one alone cannot set the newest head."""


class EndpointFault(StrEnum):
    """Why an endpoint is left out of reads."""

    UNREACHABLE = "unreachable"
    LAGS = "lags"
    DISAGREES = "disagrees"
    OTHER_CHAIN = "other_chain"


@final
class EndpointHealth:
    """Health of one endpoint. `name` has no credentials and may be logged."""

    def __init__(self, name: str, *, left_out_s: float) -> None:
        self.name = name
        self.head: int | None = None
        """Newest block when it was last asked; None: it did not answer, or was not asked yet."""
        self.is_lagging = False
        self.faults: Counter[EndpointFault] = Counter()
        self._left_out_s = left_out_s
        self._left_out_until: float | None = None

    @property
    def is_left_out(self) -> bool:
        """Whether the endpoint had a fault within the last `left_out_s` seconds."""
        return self._left_out_until is not None and trio.current_time() < self._left_out_until

    def leave_out(self, fault: EndpointFault, reason: str) -> None:
        """Leave the endpoint out of reads for a while. It still gets transactions and is asked for confirmation."""
        if not self.is_left_out:
            log.warning("chain_endpoint_left_out", endpoint=self.name, fault=fault.value, reason=reason)
        self.faults[fault] += 1
        self._left_out_until = trio.current_time() + self._left_out_s

    def disagrees(self, *, is_outvoted: bool) -> None:
        """Count an outcome that another endpoint does not report; leave the endpoint out if two contradict it."""
        if is_outvoted:
            self.leave_out(EndpointFault.DISAGREES, "two other endpoints agree on another outcome")
        else:
            self.faults[EndpointFault.DISAGREES] += 1

    def answered(self, head: int) -> None:
        """Record an answer to the regular question for the head."""
        self.head = head
        if self._left_out_until is not None and not self.is_left_out:
            self._left_out_until = None
            log.info("chain_endpoint_back", endpoint=self.name, head=head)

    def compare(self, newest: int) -> None:
        """Record whether the endpoint lags behind the newest head."""
        was_lagging, self.is_lagging = self.is_lagging, self.head is not None and newest - self.head > LAG_BLOCKS
        if self.is_lagging and not was_lagging:
            self.faults[EndpointFault.LAGS] += 1
            log.warning("chain_endpoint_lags", endpoint=self.name, head=self.head, newest=newest)


def newest_head(heads: Sequence[int]) -> int:
    """Return the head that the others are compared with: of three or more the second, so that one cannot invent it."""
    return sorted(heads)[-2] if len(heads) >= OUTVOTING else max(heads)


def urls_in(text: str) -> list[str]:
    """Split a comma list of URLs."""
    return [url.strip() for url in text.split(",") if url.strip()]


def names_of(urls: Sequence[str]) -> list[str]:
    """Name each endpoint by host and port: user, path and query of an RPC URL often hold a key."""
    hosts = [urlsplit(url).netloc.rpartition("@")[2] for url in urls]
    return [
        host if hosts.count(host) == 1 else f"{host}#{hosts[: place + 1].count(host)}"
        for place, host in enumerate(hosts)
    ]
