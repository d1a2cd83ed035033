"""Settings of aioice for stock aiortc peers (publisher, player) and the machine's own addresses.

This module, `ice` and `dtls` are the only ones that use private names of aiortc and aioice. Both are pinned to minor
versions, and tests/video/rtc/test_patches.py checks each name, so that an upgrade fails there.
"""

import aioice.ice

_stock_host_addresses = aioice.ice.get_host_addresses


def host_addresses(*, ipv6: bool) -> list[str]:
    """The machine's own addresses without loopback."""
    return list(aioice.ice.get_host_addresses(use_ipv4=True, use_ipv6=ipv6))


def tune_stock_peers() -> None:
    """Let stock aiortc peers in this process use 127.0.0.1 and notice a dead server within about 8 s. Idempotent."""
    aioice.ice.CONSENT_INTERVAL = 2
    aioice.ice.CONSENT_FAILURES = 3
    aioice.ice.get_host_addresses = _with_loopback


def _with_loopback(use_ipv4: bool, use_ipv6: bool) -> list[str]:
    found: list[str] = _stock_host_addresses(use_ipv4, use_ipv6)
    return found if "127.0.0.1" in found or not use_ipv4 else [*found, "127.0.0.1"]
