"""HTTP headers between the public JSON-RPC endpoint and the embedded chain."""

from typing import Final

GUEST_HEADER: Final = "x-guest"
"""Sent with what comes from outside: it waits behind the service's own requests, and its CPU time is limited."""
CPU_HEADER: Final = "x-cpu-ms"
"""CPU time in ms that the chain spent on a request."""
