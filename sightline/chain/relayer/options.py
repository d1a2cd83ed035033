"""How the relayer works."""

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RelayerOptions:
    """Times, depth and limits."""

    depth: int = 0
    """Blocks on top of a transaction's block before it counts as CONFIRMED."""
    poll_ms: int = 200
    """Between looks while something is on its way."""
    idle_ms: int = 2_000
    """Between looks at an outbox from which nothing waits; `notify` ends the wait."""
    batch_max: int = 50
    """Settlements signed in one round, and on their way together."""
    settle_gas: int = 300_000
    fee_cap_wei: int = 500_000_000_000
    """The most ever offered per gas; above it settlements wait."""
    resend_ms: int = 5_000
    """A transaction without receipt is sent again this often."""
    replace_ms: int = 30_000
    """A transaction without receipt is replaced after this long, doubled with each replacement."""
    retry_ms_min: int = 2_000
    retry_ms_max: int = 300_000
    """A refused settlement is tried again after a wait between these."""
    lease_ms: int = 5_000
    """After a crash, another holder waits this long before it signs with the key."""
    holder: str | None = None
    """Who we are to the lease; a fresh id by default. The same after a restart where no two can run at once."""
    start_block: int = 0
    """Where the settlement contract was deployed: events are looked for from here."""
    recheck_blocks: int = 256
    """At start, transactions in this many last blocks are looked at again."""
