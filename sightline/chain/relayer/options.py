"""Settings of the relayer."""

from typing import final

from sightline.domain.value import Value


@final
class RelayerOptions(Value, kw_only=True):
    """Intervals, limits and confirmation depth of the relayer."""

    depth: int = 0
    """Number of blocks above a transaction's block before the settlement is CONFIRMED."""
    poll_ms: int = 200
    """Time between rounds while a settlement is in flight."""
    idle_ms: int = 2_000
    """Time between rounds while none is in flight; `notify` starts a round earlier."""
    batch_max: int = 50
    """Maximum number of settlements with a charge in flight."""
    retry_batch_max: int = 10
    """Part of `batch_max` reserved for retries of refused settlements, and the number examined at once."""
    settle_gas: int = 300_000
    """Gas limit of a settlement; higher where the node estimates more."""
    estimates_gas: bool = False
    """Whether the node is asked for the gas of each transaction. On the embedded chain, whose gas costs are known, the
    estimate takes as long as the transaction.
    """
    fee_cap_wei: int = 500_000_000_000
    """Maximum fee per gas in wei; settlements wait while the chain's fees are higher."""
    resend_ms: int = 5_000
    """Interval at which a transaction without a receipt is broadcast again."""
    replace_ms: int = 30_000
    """Time after which a transaction without a receipt is replaced; doubled with each replacement."""
    retry_ms_min: int = 2_000
    retry_ms_max: int = 86_400_000
    """Maximum retry delay when the payer must act; a change of the wallet ends it early."""
    retry_ms_max_ours: int = 300_000
    """Maximum retry delay of every other refused settlement."""
    retry_every_ms: int = 2_000
    """Minimum time between examinations of refused settlements."""
    free_every_ms: int = 600_000
    """Minimum time between batches of sessions without a charge."""
    free_batch_max: int = 50
    settles_many: bool = True
    """Whether the contract has `settleMany`. Older deployments settle free sessions one by one, at the same interval.
    """
    free_settle_gas: int = 50_000
    """Gas limit for each session of a batch, added to `free_batch_gas`."""
    free_batch_gas: int = 100_000
    capture_window_ms: int = 0
    """How long an ended session whose amount is in escrow waits for others, to be captured in one transaction."""
    start_block: int = 0
    """Block in which the settlement contract was deployed; the search for events starts here."""

    @property
    def in_flight_max(self) -> int:
        """Maximum number of settlements in flight, those of a batch without a charge included."""
        return self.batch_max + self.free_batch_max
