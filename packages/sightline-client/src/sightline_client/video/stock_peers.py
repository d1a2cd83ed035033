"""Settings of aioice for stock aiortc peers: the publisher and the player.

aiortc takes none of them as an argument, so constants and a function of `aioice.ice` are replaced. aiortc and aioice
are pinned to minor versions, and tests/client/video/test_stock_peers.py checks each name, so that an upgrade fails
there.
"""

import aioice.ice

_stock_host_addresses = aioice.ice.get_host_addresses


def tune_stock_peers() -> None:
    """Let stock aiortc peers in this process use 127.0.0.1 and notice a dead server within about 8 s. Idempotent."""
    aioice.ice.CONSENT_INTERVAL = 2
    aioice.ice.CONSENT_FAILURES = 3
    aioice.ice.get_host_addresses = _with_loopback


def _with_loopback(use_ipv4: bool, use_ipv6: bool) -> list[str]:
    found: list[str] = _stock_host_addresses(use_ipv4, use_ipv6)
    return found if "127.0.0.1" in found or not use_ipv4 else [*found, "127.0.0.1"]
