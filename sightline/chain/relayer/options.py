"""Settings of the relayer."""

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RelayerOptions:
    """Times, depth and limits."""

    depth: int = 0
    """Blocks on top of a transaction's block before it counts as CONFIRMED."""
    poll_ms: int = 200
    """Between rounds while something is in flight."""
    idle_ms: int = 2_000
    """Between rounds while nothing is in flight; `notify` ends the wait."""
    batch_max: int = 50
    """Settlements with a charge in flight together."""
    retry_batch_max: int = 10
    """Of these, places kept for settlements that were refused before; so many are examined at a time."""
    settle_gas: int = 300_000
    fee_cap_wei: int = 500_000_000_000
    """The most ever offered per gas; above it settlements wait."""
    resend_ms: int = 5_000
    """A transaction without receipt is sent again this often."""
    replace_ms: int = 30_000
    """A transaction without receipt is replaced after this long, doubled with each replacement."""
    retry_ms_min: int = 2_000
    retry_ms_max: int = 86_400_000
    """The longest wait of a settlement that the payer must make payable; a change of the wallet ends it."""
    retry_ms_max_ours: int = 300_000
    """The longest wait of any other refused settlement."""
    retry_every_ms: int = 2_000
    """Refused settlements are examined at most this often."""
    free_every_ms: int = 600_000
    """Sessions without charge are settled together, at most this often."""
    free_batch_max: int = 50
    settles_many: bool = True
    """Whether the contract has `settleMany`. Older deployments settle free sessions one by one, as often."""
    free_settle_gas: int = 50_000
    """Gas offered for each session of a batch, on top of `free_batch_gas`."""
    free_batch_gas: int = 100_000
    lease_ms: int = 5_000
    """After a crash, another holder waits this long before it signs with the key."""
    holder: str | None = None
    """Identity of the lease's holder; a fresh id by default. The same after a restart where no two can run at once."""
    start_block: int = 0
    """Where the settlement contract was deployed: events are looked for from here."""
    recheck_blocks: int = 256
    """At start, transactions in this many last blocks are looked at again."""
